"""What a runner claimed ahead, and cannot begin."""

from __future__ import annotations

import threading
import typing as t
from contextlib import nullcontext

import pytest

from faults import CLOSED, LOST_REPLY, failing
from flask_henri_jobs import HenriJobs, current_job
from flask_henri_jobs.store.claims import Claims
from flask_henri_jobs.store.doubts import Doubt
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask
    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.store import Store
    from hearing import Heard

Document: t.TypeAlias = dict[str, t.Any]

PATIENCE = 20.0


class Stand:
    """A task that is short at first, and stands still when it is told to."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.performed: list[int] = []
        self.before_it_stands: Callable[[], None] = lambda: None

    def __call__(self, n: int, stand: bool = False) -> None:
        if stand:
            self.before_it_stands()
            self.entered.set()
            assert self.go_on.wait(PATIENCE)
        self.performed.append(n)


@pytest.fixture
def stand() -> Stand:
    return Stand()


class Runners:
    """Runners with one thread each, in threads of their own."""

    def __init__(self, make: Callable[[], Runner]) -> None:
        self._make = make
        self._started: list[tuple[Runner, threading.Thread]] = []

    def start(self) -> Runner:
        runner = self._make()
        thread = threading.Thread(target=runner.run)
        thread.start()
        self._started.append((runner, thread))
        return runner

    def stop(self) -> None:
        """Stop them all, and wait for their end."""
        for runner, thread in self._started:
            runner.stop()
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def runners(app: Flask, jobs: HenriJobs, store: Store, stand: Stand) -> Iterator[Runners]:
    runners = Runners(lambda: Runner(app, jobs.tasks, store, jobs.state.settings, threads=1))
    yield runners
    stand.go_on.set()
    runners.stop()


QUICK, BEHIND = 200, 20
STANDS = QUICK + 5
"""The job that stands still."""


@pytest.fixture
def behind(
    jobs: HenriJobs,
    stand: Stand,
    runners: Runners,
    stored: Collection[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> list[Document]:
    """Jobs that were claimed ahead behind one that stands still: as they were before.

    The runner had many short ones of the task before them, and so took these as well.
    """
    # A ring that is late would have the one that stands still claimed alone.
    monkeypatch.setattr(Claims, "_may_hurry", lambda *_: False)
    task = jobs.task(name="work")(stand)
    task.delay_many([{"n": n} for n in range(QUICK)])
    runners.start()
    wait_until(lambda: stored.count_documents({"state": "done"}) == QUICK, "the short jobs")
    many = [{"n": n, "stand": n == STANDS} for n in range(QUICK, STANDS + BEHIND + 1)]
    # As they were stored: by now they may be claimed.
    return [dict(job.row) for job in task.delay_many(many)][-BEHIND:]


def as_before(row: Document) -> Document:
    """Return what a hand-back restores of a row: all but when it was touched."""
    return {key: value for key, value in row.items() if key not in {"updated_at", "claim_token"}}


def test_what_cannot_begin_soon_goes_back(
    behind: list[Document], stand: Stand, stored: Collection[Document], heard: Heard
) -> None:
    """W4: What was claimed ahead of a thread that stands still is handed back, each job with its
    attempt, its place and its history as they were; afterwards each is performed once."""
    assert stand.entered.wait(PATIENCE)
    ids = [row["_id"] for row in behind]
    wait_until(
        lambda: stored.count_documents({"_id": {"$in": ids}, "state": "pending"}) == BEHIND,
        "the hand-back",
    )

    now = list(stored.find({"_id": {"$in": ids}}).sort("_id"))
    assert list(map(as_before, now)) == list(map(as_before, behind))
    stand.go_on.set()
    wait_until(lambda: not stored.count_documents({"state": {"$ne": "done"}}), "all jobs")
    assert stand.performed == list(range(STANDS + BEHIND + 1))
    assert stored.distinct("attempts") == [1]
    assert stored.distinct("history") == ["[]"]
    assert not heard.of("job_lost")


@pytest.mark.parametrize(
    "how",
    [{"times": 2, **CLOSED}, {"times": 2, **LOST_REPLY}, {"times": 1, "errorCode": 1}],
    ids=["closed", "lost reply", "refused"],
)
def test_a_hand_back_that_fails(
    jobs: HenriJobs,
    stand: Stand,
    stored: Collection[Document],
    client: MongoClient[Document],
    request: pytest.FixtureRequest,
    how: Document,
) -> None:
    """W4, W10: Where a hand-back fails, the jobs are still held, and nobody waits for them to be
    recovered: they are handed back again, or begun."""
    faults = failing(client, "update", **how)
    stand.before_it_stands = faults.__enter__
    try:
        request.getfixturevalue("behind")
        assert stand.entered.wait(PATIENCE)
        waiting = {"args": {"$not": {"$regex": "true"}}, "state": "pending"}
        wait_until(lambda: stored.count_documents(waiting) == BEHIND, "the hand-back")
    finally:
        faults.__exit__(None, None, None)
    stand.go_on.set()

    wait_until(lambda: not stored.count_documents({"state": {"$ne": "done"}}), "all jobs")
    assert sorted(stand.performed) == list(range(STANDS + BEHIND + 1))
    assert stored.distinct("attempts") == [1]


@pytest.mark.parametrize("refused", [False, True])
def test_a_stop_hands_back(
    request: pytest.FixtureRequest,
    runners: Runners,
    stand: Stand,
    stored: Collection[Document],
    client: MongoClient[Document],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refused: bool,
) -> None:
    """W5: What has not begun at a stop is handed back, what runs is finished, and its outcome
    written, also where the database refuses the hand-back."""
    monkeypatch.setattr("flask_henri_jobs.worker.appetite.LONGEST_WAIT", 3600)
    behind: list[Document] = request.getfixturevalue("behind")
    assert stand.entered.wait(PATIENCE)
    running = {"state": "running"}
    wait_until(lambda: stored.count_documents(running) == BEHIND + 1, "the claim ahead")
    waiting = {"args": {"$not": {"$regex": "true"}}, "state": "pending"}

    with failing(client, "update", times=1, errorCode=1) if refused else nullcontext():
        stopping = threading.Thread(target=runners.stop)
        stopping.start()
        wait_until(
            lambda: stored.count_documents(waiting) == BEHIND or "refuses" in caplog.text,
            "the hand-back",
        )
    stand.go_on.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()

    now = list(stored.find({"_id": {"$in": [row["_id"] for row in behind]}}).sort("_id"))
    if not refused:
        assert list(map(as_before, now)) == list(map(as_before, behind))
    assert len(stand.performed) == STANDS + 1
    assert stored.count_documents({"state": "done"}) == STANDS + 1


def test_a_claim_whose_reply_was_lost_long_ago(
    jobs: HenriJobs,
    store: Store,
    stored: Collection[Document],
    runners: Runners,
) -> None:
    """A5, A9: What is found to have been claimed long ago is begun only after a heartbeat."""
    beaten: list[int] = []

    @jobs.task(name="work")
    def work() -> None:
        row = stored.find_one({"_id": current_job.id})
        assert row is not None
        beaten.append(row["heartbeat_at"])

    work.delay()
    (job,) = store.claims.take(Wish(runner="host:1:us", at_most=1))
    long_ago = store.clock.now() - 200_000
    stored.update_one({"_id": job.id}, {"$set": {"heartbeat_at": long_ago}})
    doubts = store.claims.doubts
    doubts.open.append(Doubt(job.row["claim_token"], doubts.steady() + 10))

    runners.start()

    wait_until(lambda: job.refresh().state == "done", "the job")
    assert beaten[0] > long_ago
    assert job.attempts == 1
