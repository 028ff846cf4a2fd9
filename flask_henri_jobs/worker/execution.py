"""One attempt at one job, from claimed to decided."""

from __future__ import annotations

import contextvars
import inspect
import typing as t
from dataclasses import dataclass, field
from time import perf_counter

from .. import signals
from ..codec import decode, encode
from ..context import RunningJob, entered
from ..log import logger
from ..outcome import Attempt, Outcome, decide, decide_unseen, expired
from ..signals import emit_safely
from ..tenant import tenant_scope
from .coroutines import below, run_coroutine

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from ..clock import Moment
    from ..job import Job
    from ..outcome import RetryPolicy
    from ..task import Task


@dataclass(slots=True)
class Ending:
    """How an attempt ended, and what is told about it once that is stored.

    :param raised: What the task raised. It holds on to its frames until it was announced.
    :param returned: What the task returned.
    :param is_counted: Whether its batch was told; that is tried once only (B1).
    """

    job: Job
    outcome: Outcome
    raised: BaseException | None = None
    returned: t.Any = None
    attempt: int = field(init=False)
    is_counted: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.attempt = self.job.attempts


@dataclass(frozen=True, slots=True)
class Execution:
    """Performs a claimed job and decides its outcome.

    :param now: The server's time.
    """

    app: Flask
    job: Job
    task: Task[..., t.Any]
    policy: RetryPolicy
    now: Callable[[], Moment]

    def run(self) -> Ending:
        """Perform the job and return how it ended. Whatever the task does, this returns (W10)."""
        expires = self.job.row.get("expires_at")
        if expires is not None and expires <= self.now():
            return Ending(self.job, expired(self.now()))
        # Whatever context variables the task sets are gone with this copy (W9). What was raised is
        # kept in no variable of this frame, which the frames of the task lead back to: all of
        # them would stay, with what the task worked on, until a collection finds the circle.
        return self._ended(*contextvars.copy_context().run(self._perform))

    def _perform(self) -> tuple[BaseException | None, t.Any, float]:
        job, returned = self.job, None
        began = perf_counter()
        own = _Raised()
        try:
            with self.app.app_context(), tenant_scope(job.tenant), entered(RunningJob(job)):
                emit_safely(signals.job_started, self.app, job=job)
                began = perf_counter()
                with own:
                    returned = self._call()
        except BaseException as raised:  # noqa: BLE001 - it is kept, and decides
            # A task may raise anything, SystemExit too, and it is the attempt that fails (W10).
            return self._decisive(own.raised, raised), None, perf_counter() - began
        finally:
            del own
        return None, returned, perf_counter() - began

    def _decisive(self, own: BaseException | None, raised: BaseException) -> BaseException:
        """Return what the task raised, where the end of its context raised as well."""
        if own is not None and own is not raised:
            logger.error("The teardown after %r failed.", self.job, exc_info=raised)
        return below(own or raised)

    def _ended(self, raised: BaseException | None, returned: t.Any, seconds: float) -> Ending:
        attempt = Attempt(at=self.now(), duration=round(seconds * 1000), raised=raised)
        try:
            outcome = decide(self.job, attempt, self.policy)
        except BaseException as error:  # noqa: BLE001 - it is recorded
            # What was raised is the task's as well, and raises when it is asked what it is.
            outcome = decide_unseen(self.job, attempt, self.policy, error)
        return Ending(self.job, outcome, raised, returned)

    def _call(self) -> t.Any:
        return call(self.task, self.job.args)


class _Raised:
    """A ``with`` statement that notes what is raised within it."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, raised: BaseException | None, traceback: object) -> None:
        self.raised = raised


def call_now(task: Task[..., t.Any], args: object, most_bytes: int) -> t.Any:
    """Call a task with arguments that went through the codec, as a stored job's do."""
    return call(task, decode(encode(args, "args", most_bytes)))


def call(task: Task[..., t.Any], stored: object) -> t.Any:
    """Call a task with stored arguments, and return what it returns."""
    args, kwargs = task.signature.call(stored)
    returned = task.function(*args, **kwargs)
    # Not by what the function is: a wrapper around an ``async def`` returns its coroutine as well.
    return run_coroutine(returned) if inspect.iscoroutine(returned) else returned
