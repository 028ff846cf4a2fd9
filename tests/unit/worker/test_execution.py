"""One attempt at one job, whatever its task does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import typing as t
import weakref

import pytest
from flask import Flask, current_app, g, has_app_context

from flask_henri_jobs import (
    Discard,
    HenriJobs,
    Job,
    Retry,
    Snooze,
    current_job,
    current_tenant,
    signals,
)
from flask_henri_jobs.outcome import (
    MOST_MESSAGE_BYTES,
    MOST_STACK_BYTES,
    Again,
    Dead,
    Done,
    RetryPolicy,
    Snoozed,
)
from flask_henri_jobs.worker.execution import Ending, Execution
from rows import START, Now, row_of_state

if t.TYPE_CHECKING:
    from collections.abc import Callable

LEFT_BEHIND: contextvars.ContextVar[str] = contextvars.ContextVar("left behind", default="nothing")

POLICY = RetryPolicy()


class Perform(t.Protocol):
    def __call__(
        self, function: Callable[[], t.Any], policy: RetryPolicy = ..., **fields: t.Any
    ) -> Ending:
        """Perform a job whose task is this function, and return how it ended."""


@pytest.fixture
def app() -> Flask:
    return Flask("shop")


@pytest.fixture
def perform(app: Flask) -> Perform:
    jobs = HenriJobs()

    def perform(
        function: Callable[[], t.Any], policy: RetryPolicy = POLICY, **fields: t.Any
    ) -> Ending:
        task = jobs.task(name=f"task {len(jobs.tasks)}")(function)
        row = row_of_state("job", "running", START, name=task.name, **fields)
        return Execution(app, Job(row), task, policy, Now()).run()

    return perform


def in_either_way(raised: type[BaseException]) -> list[Callable[[], t.Any]]:
    """Return a task that raises something, and a coroutine that does."""

    def plain() -> None:
        raise raised("from the task")

    async def coroutine() -> None:
        await asyncio.sleep(0)
        raise raised("from the task")

    return [plain, coroutine]


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_a_task_raises_fails_the_attempt(
    perform: Perform, raised: type[BaseException]
) -> None:
    """W10: An exit, an interrupt or an error is the end of the attempt, and of nothing else."""
    for function in in_either_way(raised):
        ending = perform(function)

        assert isinstance(ending.outcome, Again)
        assert ending.outcome.failure.message == f"{raised.__name__}: from the task"
        assert "from the task" in (ending.outcome.failure.stack or "")
        assert isinstance(ending.raised, raised)


def test_a_cancelled_coroutine_fails(perform: Perform) -> None:
    """W9: A coroutine that cancels itself has failed, and is not taken for a success."""

    async def function() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(3600)

    ending = perform(function)

    assert isinstance(ending.outcome, Again)
    assert ending.outcome.failure.message == "CancelledError"


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
def test_an_exit_beside_a_coroutine(
    perform: Perform, raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """W9: An exit in an asyncio task of the job's ends its loop and its attempt, no other. It is
    told once, by the attempt, and not again when the garbage is collected."""

    async def exits() -> None:
        raise raised(3)

    async def function() -> None:
        started = asyncio.create_task(exits())
        await asyncio.sleep(3600)
        await started

    ending = perform(function)
    after = perform(in_either_way(ValueError)[1])

    assert isinstance(ending.outcome, Again)
    assert isinstance(ending.raised, raised)
    assert isinstance(after.raised, ValueError)
    del ending, after
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_an_error_beside_a_coroutine(perform: Perform, caplog: pytest.LogCaptureFixture) -> None:
    """W9: Another error in such a task, which nobody awaits, is told by asyncio as ever."""

    async def fails() -> None:
        raise ValueError("aside")

    async def function() -> None:
        asyncio.create_task(fails())  # noqa: RUF006 - nobody awaits it
        await asyncio.sleep(0)

    assert isinstance(perform(function).outcome, Done)
    gc.collect()
    assert "aside" in caplog.text


def test_what_a_coroutine_leaves_behind_is_cancelled(perform: Perform) -> None:
    """W9: What an ``async def`` task started and did not await is cancelled, its cleanup done."""
    events: list[str] = []

    async def left() -> None:
        try:
            events.append("began")
            await asyncio.sleep(3600)
        finally:
            events.append("cleaned up")

    async def function() -> str:
        function.kept = asyncio.create_task(left())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return "returned"

    ending = perform(function)

    assert isinstance(ending.outcome, Done)
    assert ending.returned == "returned"
    assert events == ["began", "cleaned up"]
    assert function.kept.cancelled()  # type: ignore[attr-defined]


def test_each_coroutine_has_a_loop_of_its_own(perform: Perform) -> None:
    """W9: No loop is shared between jobs, and each is closed after its job."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def function() -> None:
        loops.append(asyncio.get_running_loop())

    for _ in range(2):
        assert isinstance(perform(function).outcome, Done)

    assert loops[0] is not loops[1]
    assert all(loop.is_closed() for loop in loops)


def test_a_coroutine_where_a_loop_runs(perform: Perform) -> None:
    """W9: An ``async def`` task is performed inline where an event loop runs, as in a view."""

    async def function() -> str:
        await asyncio.sleep(0)
        return current_job.id

    async def view() -> Ending:
        return perform(function)

    ending = asyncio.run(view())

    assert ending.raised is None
    assert ending.returned == "job"


def seen() -> dict[str, t.Any]:
    """Return what a task sees around it."""
    return {
        "app": current_app.name,
        "job": current_job.id,
        "attempt": current_job.attempt,
        "tenant": current_tenant(),
        "g": dict(vars(g)),
        "variable": LEFT_BEHIND.get(),
        "thread": threading.current_thread().name,
    }


def left_behind() -> None:
    """Set all that may leak into the next job."""
    g.user = 7
    LEFT_BEHIND.set("something")


@pytest.mark.parametrize("ends", ["returns", "raises", "exits"])
def test_nothing_leaks(perform: Perform, ends: str) -> None:
    """W9: The next job sees nothing of what a job set, however that ended, in either way."""
    found: list[dict[str, t.Any]] = []

    def plain() -> None:
        found.append(seen())
        left_behind()
        if ends != "returns":
            raise ValueError("no") if ends == "raises" else SystemExit(1)

    async def coroutine() -> None:
        await asyncio.sleep(0)
        plain()

    for function in (plain, coroutine, plain):
        perform(function, tenant="acme", attempts=2)
    perform(plain)

    expected = {
        "app": "shop",
        "job": "job",
        "attempt": 2,
        "tenant": "acme",
        "g": {},
        "variable": "nothing",
        "thread": threading.current_thread().name,
    }
    assert found == [expected] * 3 + [expected | {"attempt": 1, "tenant": None}]


def test_the_context_of_the_caller_is_left_as_it_was(app: Flask, perform: Perform) -> None:
    """W9: What called the execution finds its own context afterwards, and its own variables."""
    LEFT_BEHIND.set("the caller's")

    for function in (left_behind, in_either_way(ValueError)[1]):
        perform(function)

        assert LEFT_BEHIND.get() == "the caller's"
        assert not has_app_context()
        assert not current_job


def test_a_context_that_was_pushed_and_left(app: Flask, perform: Perform) -> None:
    """W9: A task that pushes an app context and does not pop it fails, and leaves nothing."""
    ending = perform(lambda: app.app_context().push())
    after = perform(seen)

    assert isinstance(ending.outcome, Again)
    assert "wrong app context" in ending.outcome.failure.message
    assert isinstance(after.outcome, Done)
    assert not has_app_context()


class Local:
    """Something large that a task works on."""


Refs: t.TypeAlias = "list[weakref.ref[Local]]"


def fails(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    raise ValueError("no")


def chains(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    try:
        fails(refs)
    except ValueError as error:
        raise RuntimeError("neither") from error


async def fails_later(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    await asyncio.sleep(0)
    raise ValueError("no")


async def fails_in_a_group(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_later(refs))


async def fails_in_two_groups(refs: Refs) -> None:
    async with asyncio.TaskGroup(), asyncio.TaskGroup() as group:
        group.create_task(fails_later(refs))


async def fails_gathered(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    await asyncio.gather(fails_later(refs), asyncio.sleep(0))


async def is_too_slow(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    async with asyncio.timeout(0):
        await asyncio.sleep(3600)


def decides(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    raise Retry(wait=1)


def exits(refs: Refs) -> None:
    local = Local()
    refs.append(weakref.ref(local))
    raise SystemExit(1)


FAILING: list[Callable[[Refs], t.Any]] = [
    fails,
    chains,
    fails_later,
    fails_in_a_group,
    fails_in_two_groups,
    fails_gathered,
    is_too_slow,
    decides,
    exits,
]


@pytest.mark.parametrize("fails", FAILING)
def test_frames_of_a_failed_task_are_freed(
    perform: Perform, fails: Callable[[Refs], t.Any]
) -> None:
    """Q5: What a failed task worked on is freed as soon as its ending is, without a collection."""
    refs: Refs = []
    gc.collect()
    gc.disable()
    try:
        ending = perform(lambda: fails(refs))
        assert ending.raised is not None
        assert refs
        assert any(ref() is not None for ref in refs)

        del ending

        assert [ref() for ref in refs] == [None] * len(refs)
    finally:
        gc.enable()


class Unprintable(Exception):
    """An error that cannot say what it is, in any way."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Unanswering(Exception):
    """An error that raises at whatever it is asked for."""

    def __getattr__(self, name: str) -> t.Any:
        raise RuntimeError(f"do not ask for {name}")


class Elusive(Exception):
    """An error that cannot say whether it may be retried."""

    @property
    def retryable(self) -> bool:
        raise SystemExit(1)


class Judging(type):
    """A class of exceptions that cannot say which belong to it."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError("who knows")


class Undecided(Exception, metaclass=Judging):
    """An exception of such a class."""


def deep_group() -> BaseException:
    """Return a group in a group in a group, deeper than anybody can follow."""
    raised: Exception = ValueError("at the bottom")
    for _ in range(5000):
        raised = ExceptionGroup("deeper", [raised, KeyError("beside")])
    return raised


ODD: dict[str, tuple[Callable[[], BaseException], RetryPolicy]] = {
    "unprintable": (Unprintable, POLICY),
    "unanswering": (Unanswering, POLICY),
    "elusive": (Elusive, POLICY),
    "undecided": (ValueError, RetryPolicy(discard_on=(Undecided,))),
    "deep": (deep_group, POLICY),
    "noted": (lambda: noted(ValueError("no"), 7), POLICY),
}


def noted(raised: BaseException, notes: t.Any) -> BaseException:
    raised.__notes__ = notes
    return raised


@pytest.mark.parametrize("name", ODD)
def test_an_exception_that_cannot_be_looked_at(perform: Perform, name: str) -> None:
    """W10: An exception that raises when it is asked what it is fails the attempt all the same."""
    make, policy = ODD[name]

    def function() -> None:
        raise make()

    ending = perform(function, policy)

    assert isinstance(ending.outcome, Again)
    assert ending.outcome.failure.message.startswith(type(ending.raised).__name__)


def test_an_exception_of_five_megabytes(perform: Perform) -> None:
    """C: A message of 5 MB is cut to 4 KiB, and its stack to 32 KiB."""

    def function() -> None:
        raise ValueError("ü" * 2_500_000)

    ending = perform(function)

    assert isinstance(ending.outcome, Again)
    failure = ending.outcome.failure
    assert 4000 < len(failure.message.encode()) <= MOST_MESSAGE_BYTES
    assert 32_000 < len((failure.stack or "").encode()) <= MOST_STACK_BYTES


VERDICTS: list[tuple[BaseException, type[t.Any]]] = [
    (Retry(wait=5), Again),
    (Snooze("1m"), Snoozed),
    (Discard("gone"), Dead),
]


@pytest.mark.parametrize(("verdict", "outcome"), VERDICTS, ids=["retry", "snooze", "discard"])
def test_verdicts(perform: Perform, verdict: BaseException, outcome: type[t.Any]) -> None:
    """Q5, B11: A verdict arrives from a task, a coroutine and a ``TaskGroup`` alike."""

    def plain() -> None:
        raise verdict

    async def coroutine() -> None:
        plain()

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(coroutine())

    async def gathered() -> None:
        await asyncio.gather(coroutine(), asyncio.sleep(0))

    for function in (plain, coroutine, grouped, gathered):
        assert isinstance(perform(function).outcome, outcome)


def test_a_group_with_a_verdict_and_an_error(perform: Perform) -> None:
    """B11: Where something failed beside a verdict, the attempt has failed."""

    async def discards() -> None:
        raise Discard("gone")

    async def fails() -> None:
        raise ValueError("no")

    async def function() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(discards())
            group.create_task(fails())

    ending = perform(function)

    assert isinstance(ending.outcome, Again)
    assert "ValueError: no" in (ending.outcome.failure.stack or "")


def test_an_expired_job_is_not_begun(perform: Perform) -> None:
    """Q5: A job past its ``expires_at`` is dead as expired, and its task is not called."""
    called: list[bool] = []

    ending = perform(lambda: called.append(True), expires_at=START)

    assert isinstance(ending.outcome, Dead)
    assert ending.outcome.reason == "expired"
    assert ending.raised is None
    assert not called


def test_a_job_that_has_not_expired(perform: Perform) -> None:
    """Q5: A job is begun until the last moment."""
    assert isinstance(perform(lambda: None, expires_at=START + 1).outcome, Done)


def test_the_task_sees_the_error_of_its_teardown(app: Flask, perform: Perform) -> None:
    """W9: The app context is torn down after each job, and told what the task raised."""
    told: list[str] = []

    @app.teardown_appcontext
    def tear_down(error: BaseException | None) -> None:
        told.append(type(error).__name__)

    perform(lambda: None)
    for function in in_either_way(ValueError):
        perform(function)

    assert told == ["NoneType", "ValueError", "ValueError"]


def test_a_teardown_that_raises(
    app: Flask, perform: Perform, caplog: pytest.LogCaptureFixture
) -> None:
    """W9: What a task raised decides, where its teardown raises as well."""

    @app.teardown_appcontext
    def tear_down(_error: BaseException | None) -> None:
        raise OSError("the connection is gone")

    after_error, after_success = perform(in_either_way(ValueError)[0]), perform(lambda: None)

    assert isinstance(after_error.raised, ValueError)
    assert isinstance(after_success.raised, OSError)
    assert "The teardown after <Job job task 0 running> failed." in caplog.text


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_receiver_of_job_started_that_raises(
    app: Flask,
    perform: Perform,
    raised: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W12: A receiver that raises changes no outcome, and the next one hears the signal."""
    heard: list[Job] = []

    def bad(_app: Flask, **_facts: t.Any) -> None:
        raise raised("no")

    def good(_app: Flask, job: Job, **_facts: t.Any) -> None:
        heard.append(job)

    with (
        signals.job_started.connected_to(bad, app),
        signals.job_started.connected_to(good, app),
    ):
        ending = perform(lambda: "done")

    assert ending.returned == "done"
    assert len(heard) == 1
    assert "A receiver of 'job-started' failed." in caplog.text
