"""A whole runner, some of whose commands take effect and are not acknowledged, or fail outright."""

from __future__ import annotations

import threading
import typing as t
from collections import Counter
from functools import partial

import pytest
from flask import Flask

from faults import CLOSED, LOST_REPLY, faulty_client, seldom_failing
from flask_henri_jobs import HenriJobs, StoreUnavailable, current_job
from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo import MongoClient

    from faults import Document

COMMANDS = ("insert", "update", "delete", "findAndModify")
SINGLE, BATCHES, MEMBERS = 40, 2, 20
LIMIT = 2
SILENCE = 90.0
"""A claim in doubt keeps a place of a key for 10 s, and several may follow each other."""

MOST_TRIES = 100


KINDS = {"not acknowledged": (LOST_REPLY, 0.1), "cut off": (CLOSED, 0.03)}
"""How commands fail, and how likely: what is cut off takes a pause, of up to ten seconds each."""

T = t.TypeVar("T")


@pytest.fixture(params=["mongo_uri", "standalone_uri", "three_member_uri"])
def client(request: pytest.FixtureRequest) -> Iterator[MongoClient[Document]]:
    """The runner's client, of every kind of deployment."""
    with faulty_client(request.getfixturevalue(request.param)) as client:
        yield client


@pytest.fixture
def jobs(client: MongoClient[Document]) -> HenriJobs:
    return HenriJobs(client=lambda: client)


@pytest.fixture
def app(database_name: str, jobs: HenriJobs, client: MongoClient[Document]) -> Iterator[Flask]:
    app = Flask("shop")
    app.config.update(HENRI_JOBS_DATABASE=database_name, HENRI_JOBS_POLL_INTERVAL="20ms")
    jobs.init_app(app)
    with app.app_context():
        jobs.install()
        yield app
    client.drop_database(database_name)


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_writes_that_are_not_acknowledged(
    app: Flask, jobs: HenriJobs, client: MongoClient[Document], kind: str
) -> None:
    """W10: Of all claims, outcomes, permits, counts and enqueues many are not acknowledged, or come
    to nothing with their connection. Each job runs once and none is lost; no limit is
    exceeded, no permit is left, and each batch calls back once, with exact counts."""
    tasks, (how, chance) = Tasks(jobs), KINDS[kind]
    state = jobs.state
    runner = Runner(app, jobs.tasks, state.store, state.settings)
    thread = threading.Thread(target=runner.run)
    with seldom_failing(client, *COMMANDS, chance=chance, **how) as came:
        thread.start()
        try:
            for n in range(SINGLE):
                again_and_again(tasks.limited.using(id=f"limited {n}").delay, n)
                again_and_again(tasks.plain.using(id=f"plain {n}").delay, n)
            batches = [filled(jobs, tasks) for _ in range(BATCHES)]
            # After each failure it pauses, for longer the more come in a row: as long as it goes
            # on, it has its time.
            while not ended(jobs):
                go_on = partial(has_gone_on, jobs, progress(jobs))
                wait_until(go_on, "the next to end", patience=SILENCE)
        finally:
            runner.stop()
            thread.join()
    print(f"{kind}: {came['times']} commands failed over {tasks.ran.total()} jobs")

    assert came["times"] > 3
    assert set(tasks.ran.values()) == {1}
    assert tasks.ran.total() == 2 * SINGLE + BATCHES * MEMBERS
    assert not tasks.too_many
    assert jobs.database["henri_jobs"].distinct("attempts") == [1]
    counts = {"total": MEMBERS, "done": MEMBERS, "failed": 0, "succeeded": MEMBERS}
    found = {batch.pop("id"): batch for batch in tasks.called}
    assert len(tasks.called) == BATCHES
    assert found == {batch: {"name": None, **counts} for batch in batches}
    state.store.permits.tidy()
    assert state.store.permits.held() == []


class Tasks:
    """The tasks, and what they were called with."""

    def __init__(self, jobs: HenriJobs) -> None:
        self.ran: Counter[str] = Counter()
        self.called: list[Document] = []
        self.too_many = False
        self._inside = threading.Semaphore(LIMIT)

        @jobs.task(name="limited", concurrency=LIMIT)
        def limited(n: int) -> None:
            self.too_many |= not self._inside.acquire(blocking=False)
            self._note()
            self._inside.release()

        @jobs.task(name="plain")
        def plain(n: int) -> None:
            self._note()

        @jobs.task(name="finished")
        def finished(batch: Document) -> None:
            self.called.append(batch)

        self.limited, self.plain, self.finished = limited, plain, finished

    def _note(self) -> None:
        self.ran[current_job.id] += 1


def again_and_again(ask: Callable[..., T], *args: t.Any) -> T:
    """Repeat what may be repeated, until the database has acknowledged it."""
    for _ in range(MOST_TRIES):
        try:
            return ask(*args)
        except StoreUnavailable:
            continue
    raise AssertionError(f"{ask} was never acknowledged")


def filled(jobs: HenriJobs, tasks: Tasks) -> str:
    """Store a batch of both kinds of jobs, and return its id."""
    batch = again_and_again(lambda: jobs.batch(callback=tasks.finished))
    for n in range(MEMBERS):
        task = tasks.limited if n % 2 else tasks.plain
        for _ in range(MOST_TRIES):
            try:
                batch.add(task, n)
            except StoreUnavailable as error:
                # What may be stored is stored before the seal at the latest.
                if error.maybe_stored is None:
                    continue
            break
    again_and_again(batch.seal)
    return batch.id


def has_gone_on(jobs: HenriJobs, before: int) -> bool:
    """Whether a job has ended since, or nothing is left to do."""
    return progress(jobs) > before or ended(jobs)


def progress(jobs: HenriJobs) -> int:
    """Return how many jobs have ended, the callbacks of batches among them."""
    return jobs.database["henri_jobs"].count_documents({"state": {"$in": ["done", "dead"]}})


def ended(jobs: HenriJobs) -> bool:
    database = jobs.database
    waiting = {"state": {"$in": ["pending", "running"]}}
    unfinished = {"finished_at": None, "sealed_at": {"$ne": None}}
    return not (
        database["henri_jobs"].count_documents(waiting)
        or database["henri_jobs_batches"].count_documents(unfinished)
    )
