"""A runner that would sleep for a minute is woken for what it may take (W3)."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from flask_henri_jobs import HenriJobs, JobFailed, Snooze
from flask_henri_jobs.errors import UnknownJob
from flask_henri_jobs.queues import QueueSelection
from flask_henri_jobs.store import lookup, waiting_keys
from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from flask_henri_jobs import Job
    from integration.conftest import MakeApp

PATIENCE = 20.0
POLL = "60s"
"""Whoever is not woken fails the test."""


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(HENRI_JOBS_POLL_INTERVAL=POLL)


class StartRunner(t.Protocol):
    def __call__(self, queues: str | None = None, threads: int = 2) -> Runner:
        """Start a runner in a thread, and return when it sleeps."""


@pytest.fixture
def start_runner(app: Flask, jobs: HenriJobs) -> Iterator[StartRunner]:
    running: list[tuple[Runner, threading.Thread]] = []

    def start(queues: str | None = None, threads: int = 2) -> Runner:
        state = jobs.state_of(app)
        selection = None if queues is None else QueueSelection.read(queues, "queues")
        runner = Runner(
            app, jobs.tasks, state.store, state.settings, queues=selection, threads=threads
        )
        thread = threading.Thread(target=runner.run)
        thread.start()
        running.append((runner, thread))
        wait_until(lambda: state.store.tail.is_open, "the rings to be heard")
        return runner

    yield start
    for runner, _ in running:
        runner.stop()
    for _, thread in running:
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Performed:
    """What was performed, in order."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._changed = threading.Condition()

    def note(self, what: str) -> None:
        with self._changed:
            self._order.append(what)
            self._changed.notify_all()

    def has(self, *what: str) -> bool:
        """Wait until each of these was performed."""
        with self._changed:
            return self._changed.wait_for(lambda: all(one in self._order for one in what), PATIENCE)

    def times(self, what: str) -> int:
        return self._order.count(what)


@pytest.fixture
def performed() -> Performed:
    return Performed()


def test_an_enqueue_wakes(jobs: HenriJobs, start_runner: StartRunner, performed: Performed) -> None:
    """W3: a job starts when it is stored, in a queue too that had none before."""

    @jobs.task(queue="new")
    def work(what: str) -> None:
        performed.note(what)

    start_runner()
    work.delay("one")
    assert performed.has("one")
    work.delay_many([{"what": "two"}, {"what": "three"}])
    assert performed.has("two", "three")


def test_a_burst_is_seen_whole(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """B7: jobs that a burst did not ring for are found by the looks after the first one."""

    @jobs.task
    def work(what: str) -> None:
        performed.note(what)

    start_runner()
    for number in range(30):
        work.delay(str(number))
        threading.Event().wait(0.002)

    assert performed.has(*map(str, range(30)))


def test_a_limited_job_wakes(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """W3: a limited job is found by the same look as another."""

    @jobs.task(concurrency=1)
    def limited(what: str) -> None:
        performed.note(what)

    @jobs.task
    def unlimited(what: str) -> None:
        performed.note(what)

    start_runner()
    limited.delay("one")
    assert performed.has("one")
    unlimited.delay("two")
    limited.delay("three")
    assert performed.has("two", "three")


def test_a_limited_job_of_a_burst(
    jobs: HenriJobs,
    start_runner: StartRunner,
    performed: Performed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W3, B7: the last look after a ring sees a job of a key that had none before, however long
    reading the keys takes, and what was read of them is used."""
    monkeypatch.setattr(waiting_keys, "SHORTEST_MEMORY", PATIENCE)

    @jobs.task(concurrency=1)
    def limited(what: str) -> None:
        performed.note(what)

    @jobs.task
    def unlimited(what: str) -> None:
        performed.note(what)

    start_runner()
    for number in range(5):
        unlimited.delay(f"two {number}")
        assert performed.has(f"two {number}")
        limited.delay(f"three {number}")
        assert performed.has(f"three {number}")


def test_a_job_of_the_near_future(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """W3: rings carry when a job is due, and it starts then, no earlier and no poll later."""

    @jobs.task(queue="later")
    def work(what: str) -> None:
        performed.note(what)

    start_runner()
    job = work.using(wait=timedelta(milliseconds=300)).delay("one")

    assert performed.has("one")
    wait_until(lambda: job.refresh().state == "done", "its outcome")
    assert job.started_at is not None
    assert 0 <= (job.started_at - job.run_at).total_seconds() < PATIENCE


def test_what_goes_back_is_not_forgotten(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """W3: the runner knows when its own put-backs are due: retries and snoozes."""

    @jobs.task(backoff={"base": "100ms", "jitter": 0.0}, max_attempts=2)
    def fail() -> None:
        performed.note("failed" if performed.times("failed") else "first")
        performed.note("failed")
        raise ValueError("again")

    @jobs.task
    def snooze() -> None:
        performed.note("snoozed")
        if performed.times("snoozed") == 1:
            raise Snooze("100ms")
        performed.note("awake")

    start_runner()
    job = fail.delay()
    snooze.delay()

    assert performed.has("awake")
    wait_until(lambda: job.refresh().state == "dead", "the second attempt")
    assert job.attempts == 2


def test_a_retry_by_hand_wakes(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """W3: an operator's retry starts at once, of one job and of many."""

    @jobs.task(max_attempts=1)
    def work() -> None:
        performed.note("again")
        if performed.times("again") == 1:
            raise ValueError("once")

    start_runner()
    job = work.delay()
    wait_until(lambda: job.refresh().state == "dead", "its death")
    jobs.retry(job.id)
    wait_until(lambda: job.refresh().state == "done", "its second life")


def test_a_callback_wakes(jobs: HenriJobs, start_runner: StartRunner, performed: Performed) -> None:
    """W3: the callback of a batch starts as soon as its last member has ended."""

    @jobs.task(queue="callbacks")
    def finish(batch: dict[str, t.Any]) -> None:
        performed.note("finished")

    @jobs.task(queue="members")
    def member() -> None: ...

    start_runner("members")
    start_runner("callbacks")
    with jobs.batch(callback=finish) as batch:
        batch.add(member)

    assert performed.has("finished")


def test_wake_by_hand(jobs: HenriJobs, start_runner: StartRunner, performed: Performed) -> None:
    """Section 7: ``jobs.wake`` is for jobs that nothing rang for."""

    @jobs.task(queue="quiet")
    def work() -> None:
        performed.note("quiet")

    start_runner()
    row = work.using(wait="1h").delay().row
    collection = jobs.database["henri_jobs"]
    collection.delete_one({"_id": row["_id"]})
    collection.insert_one({**row, "run_at": row["created_at"]})
    jobs.wake("quiet")

    assert performed.has("quiet")


def test_a_hand_back_wakes_others(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """W3: what a runner that stops had not begun is taken by another at once."""
    may_end = threading.Event()

    @jobs.task
    def work(what: str) -> None:
        performed.note(what)
        may_end.wait(PATIENCE)

    first = start_runner(threads=1)
    work.delay("one")
    assert performed.has("one")
    start_runner(threads=1)
    first.stop()
    work.delay("two")
    assert performed.has("two")
    may_end.set()


def test_the_end_of_a_transaction_wakes(
    jobs: HenriJobs, start_runner: StartRunner, performed: Performed
) -> None:
    """A7: a job that was stored in a transaction is rung for after the commit."""

    @jobs.task
    def work(what: str) -> None:
        performed.note(what)

    start_runner()
    with jobs.client.start_session() as session, session.start_transaction():
        work.using(session=session).delay("one")

    assert performed.has("one")


@pytest.mark.parametrize("ending", ["done", "dead"])
def test_who_waits_is_told(
    jobs: HenriJobs,
    start_runner: StartRunner,
    performed: Performed,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    """X3: ``job.wait`` is woken by the end of its job; a look by the clock alone would be late."""
    monkeypatch.setattr(lookup, "FIRST_PAUSE", PATIENCE)
    monkeypatch.setattr(lookup, "LONGEST_PAUSE", PATIENCE)
    may_end = threading.Event()

    @jobs.task(max_attempts=1)
    def work() -> None:
        performed.note("begun")
        may_end.wait(PATIENCE)
        if ending == "dead":
            raise ValueError("on purpose")

    runner = start_runner()
    job = work.delay()
    assert performed.has("begun")
    waiting = threading.Thread(target=lambda: waited(job), daemon=True)
    waiting.start()
    wait_until(lambda: bool(runner._awaited._until), "the runner to be asked")
    may_end.set()
    began = time.monotonic()
    waiting.join(PATIENCE)

    assert time.monotonic() - began < PATIENCE / 2
    assert job.state == ending


def waited(job: Job) -> None:
    with contextlib.suppress(JobFailed):
        job.wait(PATIENCE)


def listening() -> set[int | None]:
    return {one.ident for one in threading.enumerate() if one.name == "henri-jobs-wakeups"}


def test_many_wait_at_once(jobs: HenriJobs, start_runner: StartRunner) -> None:
    """X3: the threads of a process that wait share one cursor, and each gets its own job's end."""

    @jobs.task
    def work(number: int) -> None: ...

    before = listening()
    start_runner()
    all_jobs = work.delay_many({"number": number} for number in range(40))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(waited, all_jobs))

    assert {job.state for job in all_jobs} == {"done"}
    assert len(listening() - before) == 1


def test_a_deleted_job_is_waited_for_no_longer(
    jobs: HenriJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X3: an operator's deletion ends the wait."""
    monkeypatch.setattr(lookup, "FIRST_PAUSE", PATIENCE)
    job = jobs.enqueue("nobody")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(job.wait, PATIENCE)
        wait_until(lambda: jobs.state.store.tail.is_open, "the wait to listen")
        jobs.delete(job.id)
        began = time.monotonic()
        with pytest.raises(UnknownJob):
            waiting.result(PATIENCE)

    assert time.monotonic() - began < PATIENCE / 2
