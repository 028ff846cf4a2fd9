"""What tasks do to a whole runner: nothing, whatever they raise."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import typing as t
import weakref

import pytest
from flask import Flask, g

from flask_henri_jobs import (
    ConfigError,
    Discard,
    HenriJobs,
    Job,
    Retry,
    Snooze,
    current_job,
    current_tenant,
    signals,
)

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask_henri_jobs.task import Task
    from hearing import Heard


class Elusive(Exception):
    """An error that exits when it is asked whether it may be retried."""

    @property
    def retryable(self) -> bool:
        raise SystemExit(1)


class Unprintable(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


RAISED = [SystemExit, KeyboardInterrupt, GeneratorExit, Elusive, Unprintable, ValueError]


@pytest.fixture
def ends(app: Flask, jobs: HenriJobs) -> Callable[[str], str]:
    """Run the worker to its end. Return how a job of a task ended: its state, or why it died."""

    def run(name: str) -> str:
        jobs.run_worker(once=True, threads=1)
        (job,) = jobs.list(name=name)
        return job.dead_reason or job.state

    return run


@pytest.mark.parametrize("raised", RAISED)
def test_a_runner_outlives_its_tasks(
    app: Flask, jobs: HenriJobs, ends: Callable[[str], str], raised: type[BaseException]
) -> None:
    """W10: Whatever a task raises ends its attempt. The one thread performs the next job."""

    @jobs.task(name="plain", max_attempts=2)
    def plain() -> None:
        raise raised

    @jobs.task(name="coroutine", max_attempts=2)
    async def coroutine() -> None:
        await asyncio.sleep(0)
        raise raised

    @jobs.task(name="next")
    def following() -> None: ...

    for task in (plain, coroutine, following):
        t.cast("Task[[], None]", task).delay()

    assert ends("next") == "done"
    assert ends("plain") == ends("coroutine") == "pending"
    for job in jobs.list(state="pending"):
        assert (job.error or "").startswith(raised.__name__)
        assert len(job.history) == 1


def test_nothing_leaks_through_a_thread(app: Flask, jobs: HenriJobs) -> None:
    """W9: Jobs that one thread performs in turn know nothing of each other, nor does a receiver."""
    seen: list[t.Any] = []
    told: list[t.Any] = []

    @jobs.task(name="look")
    def look(n: int, fail: bool) -> None:
        seen.append((n, current_job.args["n"], current_tenant(), dict(vars(g))))
        g.n = n
        if fail:
            raise Discard(str(n))

    def hear(_app: Flask, job: Job, **_facts: t.Any) -> None:
        told.append((bool(current_job), current_tenant(), dict(vars(g))))
        g.told = True

    with (
        signals.job_succeeded.connected_to(hear, app),
        signals.job_died.connected_to(hear, app),
    ):
        for n in range(4):
            look.using(tenant=None if n % 2 else f"tenant {n}").delay(n=n, fail=n == 1)
        jobs.run_worker(once=True, threads=1)

    assert sorted(seen) == sorted(
        [(0, 0, "tenant 0", {}), (1, 1, None, {}), (2, 2, "tenant 2", {}), (3, 3, None, {})]
    )
    assert told == [(False, None, {})] * 4


class Local:
    """Something large that a task works on."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Collect no circles within the test: what is freed is freed by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_a_failed_task_is_freed(
    app: Flask, jobs: HenriJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q5: A runner keeps nothing of a failed task once its ending was announced."""
    # The records that pytest captures keep what they tell of.
    monkeypatch.setattr(logging.getLogger("flask_henri_jobs"), "propagate", False)
    refs: list[weakref.ref[Local]] = []
    errors: list[str] = []

    @jobs.task(name="plain", max_attempts=1)
    def plain() -> None:
        local = Local()
        refs.append(weakref.ref(local))
        raise ValueError("no")

    @jobs.task(name="coroutine", max_attempts=1)
    async def coroutine() -> None:
        local = Local()
        refs.append(weakref.ref(local))
        await asyncio.sleep(0)
        raise ValueError("no")

    def hear(_app: Flask, error: BaseException, **_facts: t.Any) -> None:
        # Here it is alive, for who reports errors with what their frames held.
        assert refs[len(errors)]() is not None
        errors.append(str(error))

    with signals.job_died.connected_to(hear, app):
        for task in (plain, coroutine):
            t.cast("Task[[], None]", task).delay()
        jobs.run_worker(once=True, threads=1)

    assert errors == ["no", "no"]
    assert [ref() for ref in refs] == [None, None]


def test_verdicts(app: Flask, jobs: HenriJobs, heard: Heard) -> None:
    """Q5: Each verdict, in a task or alone in a group of a coroutine, has its ending stored."""
    verdicts = {"retry": Retry("not yet", wait="1h"), "snooze": Snooze("1h"), "discard": Discard()}

    @jobs.task(name="plain", max_attempts=2)
    def plain(verdict: str) -> None:
        raise verdicts[verdict]

    @jobs.task(name="grouped", max_attempts=2)
    async def grouped(verdict: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(plain, verdict))

    for verdict in verdicts:
        plain.delay(verdict)
        t.cast("Task[[str], None]", grouped).delay(verdict)
    jobs.run_worker(once=True)

    expected = {
        "retry": ("pending", 1, 1, None),
        "snooze": ("pending", 0, 0, None),
        "discard": ("dead", 1, 1, "discarded"),
    }
    found = [
        (job.args["verdict"], (job.state, job.attempts, len(job.history), job.dead_reason))
        for job in jobs.list()
    ]
    assert sorted(found) == sorted([*expected.items(), *expected.items()])
    assert sorted(heard.names(besides="job_started job_enqueued")) == sorted(
        2 * ["job_failed", "job_retried", "job_snoozed", "job_failed", "job_died"]
    )


class Hopeless(LookupError):
    """An error that no further attempt would mend."""

    retryable = False


@pytest.mark.parametrize(
    ("raised", "options", "state"),
    [
        (KeyError("a"), {}, "pending"),
        (KeyError("a"), {"retry_on": (LookupError,)}, "pending"),
        (KeyError("a"), {"retry_on": (OSError,)}, "failed"),
        (KeyError("a"), {"discard_on": (LookupError,)}, "failed"),
        (KeyError("a"), {"retry_on": (KeyError,), "discard_on": (LookupError,)}, "failed"),
        (Hopeless("a"), {"retry_on": (LookupError,)}, "failed"),
        (SystemExit(1), {"retry_on": (SystemExit,)}, "pending"),
        (SystemExit(1), {"discard_on": (SystemExit,)}, "failed"),
    ],
)
def test_which_errors_are_retried(
    app: Flask,
    jobs: HenriJobs,
    ends: Callable[[str], str],
    raised: BaseException,
    options: dict[str, t.Any],
    state: str,
) -> None:
    """Q5: ``discard_on`` wins over ``retry_on``, and ``retryable = False`` over both."""

    @jobs.task(name="fail", **options)
    def fail() -> None:
        raise raised

    fail.delay()

    assert ends("fail") == state


def test_an_expired_job(app: Flask, jobs: HenriJobs, heard: Heard) -> None:
    """Q5: A job that expired while it waited is dead as expired, and never begun."""

    @jobs.task(name="late", expires="1ms")
    def late() -> None: ...

    job = late.using(wait="2ms").delay()
    jobs.run_worker(once=True)
    while not job.refresh().finished_at:
        jobs.run_worker(once=True)

    assert (job.state, job.dead_reason) == ("dead", "expired")
    assert heard.names(besides="job_enqueued") == ["job_died"]
    assert heard.of("job_died")[0]["error"] is None


class Broken(logging.Handler):
    """A log handler that raises at each record."""

    def __init__(self, raised: type[BaseException]) -> None:
        super().__init__()
        self.raised = raised
        self.met: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.met.append(record.getMessage())
        raise self.raised


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_whatever_observes_changes_nothing(
    app: Flask, jobs: HenriJobs, stored: t.Any, raised: type[BaseException]
) -> None:
    """W12: Receivers, log handlers and app contexts that raise change no outcome and no signal."""
    heard: list[str] = []
    names = ["job_started", "job_succeeded", "job_failed", "job_retried", "job_died"]
    names += ["job_snoozed", "job_lost", "worker_started", "worker_stopping", "worker_stopped"]

    @jobs.task(name="end", max_attempts=2)
    def end(how: str) -> None:
        if how == "succeed":
            return
        if how == "lose":
            stored.update_one({"_id": current_job.id}, {"$set": {"claim_token": "another"}})
            return
        raise {"die": Discard(), "retry": Retry(wait="1h"), "snooze": Snooze("1h")}[how]

    def bad(_app: Flask, **_facts: t.Any) -> None:
        raise raised("from a receiver")

    receivers = [bad]
    for name in names:

        def good(_app: Flask, name: str = name, **_facts: t.Any) -> None:
            heard.append(name)

        signal = getattr(signals, name)
        signal.connect(bad, app)
        signal.connect(good, app)
        receivers.append(good)

    for how in ("succeed", "lose", "die", "retry", "snooze"):
        end.delay(how)
    handler = Broken(ValueError)
    logging.getLogger("flask_henri_jobs").addHandler(handler)
    try:
        jobs.run_worker(once=True, threads=2)
    finally:
        logging.getLogger("flask_henri_jobs").removeHandler(handler)

    assert {job.args["how"]: job.state for job in jobs.list()} == {
        "succeed": "done",
        "lose": "running",
        "die": "dead",
        "retry": "pending",
        "snooze": "pending",
    }
    expected = [*names, *["job_started"] * 4, "job_failed"]
    assert sorted(heard) == sorted(expected)
    assert len([met for met in handler.met if "A receiver of" in met]) == len(expected)


@pytest.mark.parametrize("raised", [ValueError, SystemExit])
def test_a_teardown_that_raises_around_signals(
    app: Flask, jobs: HenriJobs, heard: Heard, raised: type[BaseException]
) -> None:
    """W12: A teardown of the application that raises keeps no later signal from being sent."""

    @jobs.task(name="work", max_attempts=1)
    def work() -> None: ...

    @app.teardown_appcontext
    def tear_down(_error: BaseException | None) -> None:
        raise raised("from the teardown")

    for _ in range(3):
        work.delay()
    jobs.run_worker(once=True, threads=1)
    app.teardown_appcontext_funcs.clear()

    assert jobs.count(state="dead") == 3
    assert len(heard.of("job_died")) == 3


def test_no_thread_is_left(app: Flask, jobs: HenriJobs) -> None:
    """W5: Whoever runs a worker in his own process has no thread of it afterwards."""

    @jobs.task(name="work")
    def work() -> None: ...

    work.delay()
    jobs.run_worker(once=True, threads=3)

    # An app of another test may just be closed; that is no worker's.
    left = {one.name for one in threading.enumerate() if "henri" in one.name}
    assert left <= {"henri-jobs-closing"}


def test_a_backoff_that_does_not_fit_the_settings(app: Flask, jobs: HenriJobs) -> None:
    """Q5: A worker does not start with a task whose backoff contradicts the settings'."""

    @jobs.task(name="work", backoff={"base": "2m"})
    def work() -> None: ...

    with pytest.raises(ConfigError, match=r"backoff= of work has a base of 2m and a max of 1m\."):
        jobs.run_worker(once=True)


@pytest.mark.parametrize("threads", [0, -1, 257, "4"])
def test_bad_threads(app: Flask, jobs: HenriJobs, threads: t.Any) -> None:
    """A worker is refused that would have no thread, or more than one process can have."""
    with pytest.raises(ConfigError, match=r"^threads is "):
        jobs.run_worker(once=True, threads=threads)


def test_a_task_that_was_declared_late(
    app: Flask, jobs: HenriJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """W10: A task that another declares with a bad backoff ends no thread; its job is left to be
    recovered."""

    @jobs.task(name="declare")
    def declare() -> None:
        @jobs.task(name="late", backoff={"base": "2m"})
        def late() -> None: ...

        late.delay()

    declare.delay()
    jobs.run_worker(once=True, threads=1)

    assert {job.name: job.state for job in jobs.list()} == {"declare": "done", "late": "running"}
    assert "backoff= of late has a base of 2m" in caplog.text
