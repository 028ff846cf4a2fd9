"""A job that is cancelled ends, whatever it does, and does not begin again (W8)."""

from __future__ import annotations

import asyncio
import threading
import time
import typing as t

import pytest

from flask_henri_jobs import (
    Discard,
    HenriJobs,
    Job,
    JobCancelled,
    JobFailed,
    Snooze,
    current_job,
    signals,
)
from flask_henri_jobs.errors import UnknownJob
from flask_henri_jobs.worker import attempts, cancels
from flask_henri_jobs.worker.keeper import Keeper
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

    from .conftest import Perform, Silent


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look every 20 ms, not every 500; with ``once=True`` no ring is heard."""
    monkeypatch.setattr(cancels, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(cancels, "SHORT_MS", 0)


def go_on() -> None:
    """Go on for much longer than any test, in short steps."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.001)


class Heard:
    """The signals of jobs, in their order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, name: str) -> Callable[..., None]:
        return lambda _app, job, **_facts: self.told.append((name, job.id))

    def of(self, job: Job) -> list[str]:
        return [name for name, job_id in self.told if job_id == job.id]


@pytest.fixture
def heard(app: Flask) -> Iterator[Heard]:
    heard = Heard()
    names = ("started", "succeeded", "failed", "retried", "died", "snoozed", "cancelled", "lost")
    receivers = {name: heard(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, f"job_{name}").connect(receiver, app)
    yield heard
    for name, receiver in receivers.items():
        getattr(signals, f"job_{name}").disconnect(receiver, app)


def test_waiting(jobs: HenriJobs, perform: Perform, heard: Heard) -> None:
    """A waiting job is dead at once, is told of, frees its key, and is never performed."""

    @jobs.task(unique=True)
    def work() -> None:
        pytest.fail("It has begun.")

    job = jobs.cancel(work.delay().id)

    assert (job.state, job.dead_reason, job.attempts) == ("dead", "cancelled", 0)
    assert heard.of(job) == ["cancelled", "died"]
    assert perform(job).attempts == 0
    assert work.delay().created
    assert jobs.count(state="pending") == 1


def test_cancelled_twice_and_after_the_end(jobs: HenriJobs, perform: Perform, heard: Heard) -> None:
    """A job that has ended stays as it is, and nothing more is told."""

    @jobs.task
    def work() -> None:
        pass

    done, dead = work.delay(), jobs.cancel(work.delay().id)
    perform(done)

    assert jobs.cancel(done.id).state == "done"
    assert jobs.cancel(dead.id) == dead
    assert heard.of(dead) == ["cancelled", "died"]
    assert heard.of(done) == ["started", "succeeded"]


def test_somebody_waits(jobs: HenriJobs, app: Flask) -> None:
    """X3: Whoever waits for a waiting job learns at once that it is dead."""

    @jobs.task
    def work() -> None:
        pass

    job = work.using(wait="1h").delay()
    ended: list[float] = []

    def wait() -> None:
        with app.app_context(), pytest.raises(JobFailed):
            job.wait(20)
        ended.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    waiting.start()
    tail = jobs.state.store.tail
    while not tail.is_open:
        time.sleep(0.01)
    began = time.monotonic()
    jobs.cancel(job.id)
    waiting.join(20)

    assert ended[0] - began < 1


def cancelling(jobs: HenriJobs) -> None:
    """Cancel the job in hand, as somebody else does."""
    jobs.cancel(current_job.id)


@pytest.mark.parametrize("times", [1, 3])
def test_asks(jobs: HenriJobs, perform: Perform, heard: Heard, times: int) -> None:
    """A task that asks sees it, and has its job cancelled with what it returns then dropped."""

    @jobs.task(store_result=True)
    def work() -> str:
        assert not current_job.cancelled
        for _ in range(times):
            cancelling(jobs)
        deadline = time.monotonic() + 5
        while not current_job.cancelled and time.monotonic() < deadline:
            time.sleep(0.001)
        return "half of it"

    job = perform(work.delay())

    assert (job.state, job.dead_reason, job.attempts) == ("dead", "cancelled", 1)
    assert job.error == "The job was cancelled."
    assert (job.result, job.error_stack) == (None, None)
    assert [past["message"] for past in job.history] == [job.error]
    assert heard.of(job) == ["started", "cancelled", "died"]


def test_is_done_first(jobs: HenriJobs, perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that returns before it has seen anything of it is done."""
    monkeypatch.setattr(cancels, "LOOK_SECONDS", 5)

    @jobs.task(store_result=True)
    def work() -> str:
        cancelling(jobs)
        return "all of it"

    job = perform(work.delay())

    assert (job.state, job.result, job.dead_reason) == ("done", "all of it", None)
    assert job.cancel_requested is not None


def test_told(jobs: HenriJobs, perform: Perform, impatient: None, heard: Heard) -> None:
    """A task that does not ask gets JobCancelled, its ``finally`` runs, and its stack is kept."""
    seen: list[object] = []

    @jobs.task(max_attempts=3)
    def work() -> None:
        cancelling(jobs)
        try:
            go_on()
        except JobCancelled as cancelled:
            seen.append(type(cancelled))
            raise
        finally:
            seen.append(current_job.cancelled)

    job = perform(work.delay())

    assert seen == [JobCancelled, True]
    assert (job.state, job.dead_reason, job.attempts) == ("dead", "cancelled", 1)
    assert job.error == "JobCancelled: The job was cancelled."
    assert "in go_on" in (job.error_stack or "")
    assert heard.of(job) == ["started", "failed", "cancelled", "died"]


@pytest.mark.parametrize(
    ("raised", "reason", "error"),
    [
        (ValueError("half done"), "cancelled", "ValueError: half done"),
        (Snooze("1h"), "cancelled", "The job was cancelled."),
        (Discard("enough"), "discarded", "enough"),
    ],
)
def test_raises_in_its_place(
    jobs: HenriJobs, perform: Perform, heard: Heard, raised: BaseException, reason: str, error: str
) -> None:
    """B12: What the task raises may have it dead, and cannot have it wait again."""

    @jobs.task(max_attempts=3)
    def work() -> None:
        cancelling(jobs)
        raise raised

    job = perform(work.delay())

    assert (job.state, job.dead_reason, job.error) == ("dead", reason, error)
    assert ("cancelled" in heard.of(job)) is (reason == "cancelled")
    assert not {"retried", "snoozed"} & {*heard.of(job)}


def test_timeout_first(jobs: HenriJobs, perform: Perform, heard: Heard) -> None:
    """A job whose time is up as well is dead as cancelled, with attempts left."""

    @jobs.task(timeout="50ms", max_attempts=3)
    def work() -> None:
        cancelling(jobs)
        go_on()

    job = perform(work.delay())

    assert (job.state, job.dead_reason, job.attempts) == ("dead", "cancelled", 1)


def test_coroutine(jobs: HenriJobs, perform: Perform, impatient: None) -> None:
    """W9: An ``async def`` task is cancelled as a task."""
    seen: list[str] = []

    @jobs.task
    async def work() -> None:
        cancelling(jobs)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append("finally")

    job = perform(work.delay())

    assert seen == ["cancelled", "finally"]
    assert (job.dead_reason, job.error) == ("cancelled", "JobCancelled: The job was cancelled.")


def test_coroutine_that_asks(jobs: HenriJobs, perform: Perform) -> None:
    """An ``async def`` task may ask as well."""

    @jobs.task
    async def work() -> None:
        cancelling(jobs)
        while not current_job.cancelled:
            await asyncio.sleep(0.001)

    assert perform(work.delay()).error == "The job was cancelled."


def test_blocked(jobs: HenriJobs, perform: Perform, impatient: None, silent: Silent) -> None:
    """One that cannot be reached is given up; its job is cancelled, and the others go on."""
    beside: list[str] = []

    @jobs.task
    def blocked() -> None:
        cancelling(jobs)
        silent.recv(1)

    @jobs.task
    def work() -> None:
        beside.append("done")

    job = blocked.delay()
    work.using(wait="300ms").delay()

    job = perform(job, threads=1)

    assert (job.dead_reason, job.attempts) == ("cancelled", 1)
    assert "silent.recv(1)" in (job.error_stack or "")
    jobs.run_worker(once=True)
    assert beside == ["done"]


def test_claimed_and_not_begun(
    app: Flask, jobs: HenriJobs, perform: Perform, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is claimed, and cancelled before a thread comes to it, is not begun."""
    may_begin = Keeper.may_begin

    def cancelled_before(self: Keeper, job: Job) -> bool:
        with app.app_context():
            jobs.cancel(job.id)
        wait_until(lambda: self._holdings.is_cancelled(job), "the look")
        return may_begin(self, job)

    monkeypatch.setattr(Keeper, "may_begin", cancelled_before)

    @jobs.task
    def work() -> None:
        pytest.fail("It has begun.")

    job = perform(work.delay())

    assert (job.state, job.dead_reason) == ("dead", "cancelled")
    assert job.error == "The job was cancelled before it was begun."
    assert heard.of(job) == ["cancelled", "died"]


def test_claimed_and_handed_back(
    app: Flask, jobs: HenriJobs, perform: Perform, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was claimed and is handed back, since its claim is old, is dead and told of; its
    batch ends with it."""
    monkeypatch.setattr(cancels, "LOOK_SECONDS", 5)

    def not_any_more(_self: Keeper, job: Job) -> bool:
        with app.app_context():
            jobs.cancel(job.id)
        return False

    monkeypatch.setattr(Keeper, "may_begin", not_any_more)

    @jobs.task
    def work() -> None:
        pytest.fail("It has begun.")

    with jobs.batch() as batch:
        job = batch.add(work)

    job = perform(job)

    assert (job.state, job.dead_reason, job.attempts) == ("dead", "cancelled", 0)
    assert "died" in heard.of(job)
    assert (batch.refresh().state, batch.refresh().failed) == ("finished", 1)


@pytest.mark.parametrize("callback", ["callback", "on_failure"])
def test_last_of_a_batch(jobs: HenriJobs, perform: Perform, callback: str) -> None:
    """B2, B3: A batch whose last waiting member is cancelled ends, and its callback is told the
    truth; so it is where a running one was the last."""
    told: list[dict[str, t.Any]] = []

    @jobs.task
    def work(asks: bool) -> None:
        if asks:
            cancelling(jobs)
            while not current_job.cancelled:
                time.sleep(0.001)

    @jobs.task
    def finished(batch: dict[str, t.Any]) -> None:
        told.append({name: batch[name] for name in ("total", "done", "failed", "succeeded")})

    options: t.Any = {callback: finished}
    with jobs.batch(**options) as batch:
        batch.add(work, asks=False)
        batch.add(work, asks=True)
        waiting = batch.add(work.using(wait="1h"), asks=False)
    jobs.run_worker(once=True)
    assert batch.refresh().state == "running"
    assert (batch.refresh().done, batch.refresh().failed) == (2, 1)

    jobs.cancel(waiting.id)

    assert batch.refresh().state == "finished"
    jobs.run_worker(once=True)
    assert told == [{"total": 3, "done": 3, "failed": 2, "succeeded": 1}]


def test_batch_with_running_members(jobs: HenriJobs, app: Flask) -> None:
    """W8, B2: Cancelling a batch ends its running members too, and then its callback is told."""
    told: list[dict[str, t.Any]] = []
    begun = threading.Semaphore(0)

    @jobs.task
    def work() -> None:
        begun.release()
        while not current_job.cancelled:
            time.sleep(0.001)

    @jobs.task
    def finished(batch: dict[str, t.Any]) -> None:
        told.append({name: batch[name] for name in ("total", "done", "failed", "succeeded")})

    with jobs.batch(callback=finished) as batch:
        batch.add_many(work, [{}] * 5)

    def perform() -> None:
        with app.app_context():
            jobs.run_worker(once=True, threads=2)

    performing = threading.Thread(target=perform)
    performing.start()
    assert begun.acquire(timeout=10)
    assert begun.acquire(timeout=10)
    jobs.batches.cancel(batch.id)
    performing.join(20)

    assert told == [{"total": 5, "done": 5, "failed": 5, "succeeded": 0}]
    assert jobs.count(batch=batch.id, reason="cancelled") == 5


def test_retried_by_hand(jobs: HenriJobs, perform: Perform) -> None:
    """A cancelled job that somebody retries is performed, and is not cancelled any more."""
    asked: list[bool] = []

    @jobs.task
    def work() -> None:
        if not asked:
            cancelling(jobs)
            while not current_job.cancelled:
                time.sleep(0.001)
        asked.append(current_job.cancelled)

    job = perform(work.delay())
    assert (job.dead_reason, asked) == ("cancelled", [True])

    job = perform(jobs.retry(job.id))

    assert (job.state, job.cancel_requested, asked) == ("done", None, [True, False])


def test_henri_put_it_back(jobs: HenriJobs, perform: Perform, heard: Heard) -> None:
    """A job that a henri runner put back with a request it does not know is not begun by ours."""

    @jobs.task
    def work() -> None:
        pytest.fail("It has begun.")

    job = work.delay()
    at = {"$set": {"cancel_requested_at": 1}}
    jobs.state.store.admin.jobs.update_one({"_id": job.id}, at)

    job = perform(job)

    assert (job.state, job.dead_reason) == ("dead", "cancelled")
    assert heard.of(job) == ["cancelled", "died"]


def test_unknown(jobs: HenriJobs, app: Flask) -> None:
    """A job that is not there is named; so is another tenant's (T2)."""

    @jobs.task
    def work() -> None:
        pass

    with pytest.raises(UnknownJob, match="There is no job nowhere"):
        jobs.cancel("nowhere")
    theirs = work.using(tenant="acme").delay()
    with jobs.tenant("other"), pytest.raises(UnknownJob):
        jobs.cancel(theirs.id)
    assert theirs.refresh().state == "pending"


@pytest.mark.usefixtures("impatient")
def test_no_longer_than_it_takes(jobs: HenriJobs, perform: Perform) -> None:
    """W7: One that swallows what it is told is told again."""
    swallowed: list[JobCancelled] = []

    @jobs.task
    def work() -> None:
        cancelling(jobs)
        while len(swallowed) < 2:
            try:
                go_on()
            except JobCancelled as cancelled:
                swallowed.append(cancelled)
        go_on()

    job = perform(work.delay())

    assert job.dead_reason == "cancelled"
    assert len(swallowed) == 2
    assert attempts.PATIENCE_SECONDS < 1
