"""``timeout=`` really ends an attempt (W7)."""

from __future__ import annotations

import asyncio
import threading
import time
import typing as t

import pytest

from flask_henri_jobs import Discard, HenriJobs, Job, JobTimeout, Retry, signals
from flask_henri_jobs.errors import ThreadsStuck
from flask_henri_jobs.setting_readers import READERS
from flask_henri_jobs.worker import runner

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from .conftest import Perform, Silent

BRIEF: t.Any = {"timeout": "50ms", "max_attempts": 1}


def take_long() -> None:
    """Take much longer than any timeout here, in short steps."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.001)


def test_soft(jobs: HenriJobs, perform: Perform) -> None:
    """The thread gets JobTimeout, its ``finally`` runs, and the job is dead as timed out."""
    cleaned: list[str] = []

    @jobs.task(**BRIEF)
    def work() -> None:
        try:
            take_long()
        except Exception:  # noqa: BLE001 - what a task may do
            cleaned.append("except Exception")
        finally:
            cleaned.append("finally")

    job = perform(work.delay())

    assert cleaned == ["finally"]
    assert (job.state, job.dead_reason, job.attempts) == ("dead", "timeout", 1)
    assert job.error == "JobTimeout: The attempt took longer than 50ms."
    assert "in take_long" in (job.error_stack or "")
    assert [attempt["message"] for attempt in job.history] == [job.error]


def test_caught(jobs: HenriJobs, perform: Perform, impatient: None) -> None:
    """A JobTimeout that the task catches and goes on from is thrown again, until it has left."""
    caught: list[JobTimeout] = []

    @jobs.task(**BRIEF)
    def work() -> None:
        while len(caught) < 2:
            try:
                take_long()
            except JobTimeout as timeout:
                caught.append(timeout)
        take_long()

    job = perform(work.delay())

    assert len(caught) == 2
    assert (job.state, job.dead_reason) == ("dead", "timeout")


@pytest.mark.parametrize(
    ("raised", "reason", "message"),
    [
        (Discard("not worth it"), "discarded", "not worth it"),
        (ValueError("half done"), "failed", "ValueError: half done"),
    ],
)
def test_raised_in_its_place(
    jobs: HenriJobs, perform: Perform, raised: BaseException, reason: str, message: str
) -> None:
    """What the task raises for a JobTimeout decides, as ever."""

    @jobs.task(**BRIEF)
    def work() -> None:
        try:
            take_long()
        except JobTimeout:
            raise raised from None

    job = perform(work.delay())

    assert (job.dead_reason, job.error) == (reason, message)


@pytest.mark.parametrize(
    ("options", "state", "waits"),
    [
        ({}, "pending", 5.0),
        ({"retry_on": ConnectionError}, "pending", 5.0),
        ({"retry_on": JobTimeout, "backoff": {"base": "1h", "jitter": 0}}, "pending", 3600.0),
        ({"discard_on": JobTimeout}, "dead", None),
    ],
)
def test_retried(
    jobs: HenriJobs,
    perform: Perform,
    options: t.Any,
    state: str,
    waits: float | None,
) -> None:
    """Q5: a timeout is retried after the backoff, unless ``discard_on`` names it."""

    @jobs.task(timeout="50ms", max_attempts=3, **options)
    def work() -> None:
        take_long()

    job = perform(work.delay())

    assert (job.state, job.attempts) == (state, 1)
    if waits is None:
        assert job.dead_reason == "timeout"
    else:
        wait = (job.run_at - job.updated_at).total_seconds()
        assert 0.8 * waits <= wait <= waits


@pytest.mark.parametrize(
    ("of_the_setting", "of_the_task", "of_the_enqueue", "seconds"),
    [
        ("10s", None, None, 10.0),
        ("10s", "20s", None, 20.0),
        ("10s", "20s", 0.5, 0.5),
        (None, None, "1m", 60.0),
        (None, None, None, None),
    ],
)
def test_whose(
    app: Flask,
    jobs: HenriJobs,
    of_the_setting: str | None,
    of_the_task: t.Any,
    of_the_enqueue: t.Any,
    seconds: float | None,
) -> None:
    """The enqueue's timeout wins over the task's, and that over the setting."""

    @jobs.task(timeout=of_the_task)
    def work() -> None: ...

    timeout = READERS["timeout"](of_the_setting, "HENRI_JOBS_TIMEOUT")
    with jobs.with_settings(app, timeout=timeout):
        job = work.using(timeout=of_the_enqueue).delay()
        by_name = jobs.enqueue("henri/task", timeout=of_the_enqueue or "3s")

    assert (job.timeout and job.timeout.total_seconds()) == seconds
    assert by_name.timeout is not None


def test_in_time(jobs: HenriJobs, perform: Perform) -> None:
    """Jobs that end in time are done, however near; a timeout of one is none of the next."""
    ended: list[int] = []

    @jobs.task(timeout="20ms", max_attempts=1)
    def work(number: int) -> None:
        time.sleep(0.019 if number % 2 else 0.0)
        ended.append(number)

    many = work.delay_many([{"number": number} for number in range(60)])
    perform(many[-1], threads=2)

    states = {job.args["number"]: job.refresh().state for job in many}
    assert all(states[number] == "done" for number in range(0, 60, 2))
    assert {number for number in states if states[number] == "done"} <= set(ended)
    assert set(states.values()) <= {"done", "dead"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_around_the_task(
    app: Flask, jobs: HenriJobs, perform: Perform, when: str, impatient: None
) -> None:
    """Time that is spent before or after the task counts; nothing is thrown there."""
    called: list[str] = []
    told = threading.Event()

    def be_slow(*_args: object, **_facts: object) -> None:
        told.wait(0.1)
        called.append("slow")

    if when == "before":
        signals.job_started.connect(be_slow, app)
    else:
        app.teardown_appcontext(be_slow)

    @jobs.task(timeout="30ms", max_attempts=1)
    def work() -> None:
        called.append("work")

    job = perform(work.delay())

    if when == "before":
        assert (job.state, job.dead_reason) == ("dead", "timeout")
        assert called == ["slow"]
    else:
        assert job.state == "done"
        assert called[called.index("work") + 1] == "slow"


def test_blocked(jobs: HenriJobs, perform: Perform, silent: Silent, impatient: None) -> None:
    """An attempt that cannot be reached is settled under its token, and says where it is."""

    @jobs.task(**BRIEF)
    def work() -> None:
        silent.recv(1)

    job = perform(work.delay())

    assert (job.state, job.dead_reason, job.attempts) == ("dead", "timeout", 1)
    assert job.error == "JobTimeout: The attempt took longer than 50ms."
    assert (job.error_stack or "").splitlines()[-2].strip() == "silent.recv(1)"


def test_blocked_and_its_neighbours(
    app: Flask, jobs: HenriJobs, perform: Perform, silent: Silent, impatient: None
) -> None:
    """Where nobody replaces the process another thread takes the place of the one that is given
    up, its permit is free, and whatever it still does changes nothing."""
    left = threading.Event()
    lost: list[Job] = []

    @jobs.task(concurrency=1, **BRIEF)
    def block() -> None:
        try:
            silent.recv(1)
        finally:
            left.set()
            raise Retry

    @jobs.task(concurrency={"limit": 1, "group": block.name})
    def follow() -> None: ...

    blocked, followed = block.delay(), [follow.delay() for _ in range(3)]

    def hear(_app: Flask, job: Job, **_facts: t.Any) -> None:
        lost.append(job)

    with signals.job_lost.connected_to(hear, app):
        row = perform(blocked, threads=1).row
        assert [job.refresh().state for job in followed] == ["done"] * 3
        assert jobs.state.store.permits.held() == []

        assert not left.is_set()
        silent.end()
        assert left.wait(5)
    assert blocked.refresh().row == row
    assert lost == []


def test_too_many(
    jobs: HenriJobs,
    perform: Perform,
    silent: Silent,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that nobody replaces stops when too many of its threads are gone, and says so."""
    monkeypatch.setattr(runner, "MOST_GIVEN_UP", 2)

    @jobs.task(**BRIEF)
    def block() -> None:
        silent.recv(1)

    many = [block.delay() for _ in range(4)]

    with pytest.raises(ThreadsStuck, match="2 jobs did not end when they were told to"):
        perform(many[0], threads=1)

    states = [job.refresh().state for job in many]
    assert states == ["dead", "dead", "pending", "pending"]


async def waits(cleaned: list[str]) -> None:
    try:
        await asyncio.sleep(10)
    finally:
        await asyncio.sleep(0.01)
        cleaned.append("finally")


async def waits_for_others(cleaned: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(waits(cleaned))
        await asyncio.sleep(10)


async def computes(cleaned: list[str]) -> None:
    try:
        take_long()
    finally:
        cleaned.append("finally")


async def computes_in_a_group(cleaned: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(computes(cleaned))


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (waits, "in waits"),
        (waits_for_others, "in waits_for_others"),
        (computes, "in computes"),
        (computes_in_a_group, "in computes"),
    ],
)
def test_coroutine(
    jobs: HenriJobs,
    perform: Perform,
    impatient: None,
    function: Callable[[list[str]], t.Awaitable[None]],
    shown: str,
) -> None:
    """W9: an ``async def`` task is cancelled as a task; one that blocks its loop is thrown into."""
    cleaned: list[str] = []

    @jobs.task(**BRIEF)
    async def work() -> None:
        await function(cleaned)

    job = perform(work.delay())

    assert cleaned == ["finally"]
    assert (job.state, job.dead_reason) == ("dead", "timeout")
    assert "The attempt took longer than 50ms." in (job.error or "")
    assert shown in (job.error_stack or "")


def test_coroutine_that_goes_on(jobs: HenriJobs, perform: Perform, impatient: None) -> None:
    """A coroutine that swallows its cancelling is cancelled again."""
    cancelled: list[BaseException] = []

    @jobs.task(**BRIEF)
    async def work() -> None:
        while len(cancelled) < 2:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError as error:
                cancelled.append(error)
        await asyncio.sleep(10)

    job = perform(work.delay())

    assert len(cancelled) == 2
    assert (job.state, job.dead_reason) == ("dead", "timeout")


def test_coroutine_that_waits_for_a_thread(
    jobs: HenriJobs, perform: Perform, silent: Silent, impatient: None
) -> None:
    """A thread that a coroutine left behind holds its loop up: the attempt is given up."""

    @jobs.task(**BRIEF)
    async def work() -> None:
        await asyncio.to_thread(silent.recv, 1)

    job = perform(work.delay())
    silent.end()

    assert (job.state, job.dead_reason) == ("dead", "timeout")
