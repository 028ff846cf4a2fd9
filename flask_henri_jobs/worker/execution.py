"""One attempt at one job, from claimed to decided."""

from __future__ import annotations

import contextvars
import inspect
import typing as t
from dataclasses import dataclass, field, replace
from time import perf_counter

from .. import signals
from ..codec import decode, encode
from ..context import RunningJob, entered, has_heeded, left_by
from ..kept_lines import KeptLines
from ..log import logger
from ..logs import about, keep_lines
from ..outcome import (
    Attempt,
    Outcome,
    cancelled_before,
    decide,
    decide_unseen,
    expired,
    unwrapped,
)
from ..progress import Track
from ..redaction import marked
from ..result import NO_RESULT, result_of
from ..signals import emit_safely
from ..tenant import tenant_scope
from .coroutines import below, run_coroutine
from .frame import Frame

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
    :param mark: By which the supervisor knows of the job; None where the job was not begun.
    :param is_counted: Whether its batch was told; that is tried once only (B1).
    :param stands: The job as it is stored, where its outcome was written in its transaction (X2).
    """

    job: Job
    outcome: Outcome
    raised: BaseException | None = None
    returned: t.Any = None
    attempt: int = field(init=False)
    mark: int | None = field(default=None, kw_only=True)
    is_counted: bool = field(default=False, init=False)
    stands: Job | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.attempt = self.job.attempts


@dataclass(slots=True)
class Execution:
    """Performs a claimed job and decides its outcome.

    :param now: The server's time.
    :param frame: Through which others end the attempt.
    :param await_turn: Returns when the task may be called.
    :param on_progress: Called when the task has said how far it is.
    :param mark: By which the supervisor knows of the job.
    :ivar running: What the task and others have of the attempt meanwhile.
    :ivar settled: How the attempt has ended, once that is committed in its transaction (X2).
        Nothing changes it then.
    """

    app: Flask
    job: Job
    task: Task[..., t.Any]
    policy: RetryPolicy
    now: Callable[[], Moment]
    frame: Frame = field(default_factory=Frame)
    await_turn: Callable[[], None] = lambda: None
    on_progress: Callable[[Track], None] | None = None
    running: RunningJob = field(init=False)
    mark: int | None = None
    settled: Ending | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        lines = None
        if most := self.task.defaults.keep_logs:
            keep_lines()
            lines = KeptLines(self.job, most, self.now)
        track = Track(self.job, self.on_progress)
        self.running = RunningJob(self.job, track, lines, lambda: self.frame.is_cancelled)

    def run(self) -> Ending:
        """Perform the job and return how it ended. Whatever the task does, this returns (W10)."""
        if self.frame.is_cancelled:
            return Ending(self.job, cancelled_before(self.now()), mark=self.mark)
        expires = self.job.row.get("expires_at")
        if expires is not None and expires <= self.now():
            return Ending(self.job, expired(self.now()), mark=self.mark)
        # A henri application that enqueued it does not know what the task redacts.
        self.job.row = marked(self.job.row, self.task.defaults.redact)
        # Whatever context variables the task sets are gone with this copy (W9). What was raised is
        # kept in no variable of this frame, which the frames of the task lead back to: all of
        # them would stay, with what the task worked on, until a collection finds the circle.
        return self.ended(*contextvars.copy_context().run(self._perform))

    def ended(self, raised: BaseException | None, returned: t.Any, seconds: float) -> Ending:
        """Return how the attempt ends that took so long, and raised or returned this."""
        keeps = self.task.defaults.store_result and raised is None
        result = result_of(returned) if keeps else NO_RESULT
        duration = round(seconds * 1000)
        attempt = Attempt(
            at=self.now(),
            duration=duration,
            raised=raised,
            result=result,
            is_heeded=has_heeded(self.running),
        )
        try:
            outcome = decide(self.job, attempt, self.policy)
        except BaseException as error:  # noqa: BLE001 - it is recorded
            # What was raised is the task's as well, and raises when it is asked what it is.
            outcome = decide_unseen(self.job, attempt, self.policy, error)
        if left := left_by(self.running, attempt.at):
            outcome = replace(outcome, left=left)
        return Ending(self.job, outcome, raised, returned, mark=self.mark)

    def _perform(self) -> tuple[BaseException | None, t.Any, float]:
        job, returned = self.job, None
        began = perf_counter()
        own = _Raised()
        try:
            with self.app.app_context(), tenant_scope(job.tenant), entered(self.running):
                emit_safely(signals.job_started, self.app, job=job)
                with own:
                    args = job.args
                    self.await_turn()
                    began = perf_counter()
                    with self.frame:
                        returned = call(self.task, args, self.frame)
        except BaseException as raised:  # noqa: BLE001 - it is kept, and decides
            # Once more: it may be what came too late for the task, at the first step out of it.
            self.frame.leave()
            # A task may raise anything, SystemExit too, and it is the attempt that fails (W10).
            return self._decisive(own.raised, raised), None, perf_counter() - began
        finally:
            del own
        return None, returned, perf_counter() - began

    def _decisive(self, own: BaseException | None, raised: BaseException) -> BaseException:
        """Return what the task raised, where the end of its context raised as well."""
        if own is not None and own is not raised:
            with about(self.job):
                logger.error("The teardown after %r failed.", self.job, exc_info=raised)
        self.frame.name(unwrapped(own or raised))
        return below(own or raised)


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
    return call(task, decode(encode(args, "args", most_bytes)), Frame())


def call(task: Task[..., t.Any], stored: object, frame: Frame) -> t.Any:
    """Call a task with stored arguments, and return what it returns."""
    args, kwargs = task.signature.call(stored)
    returned = task.function(*args, **kwargs)
    # Not by what the function is: a wrapper around an ``async def`` returns its coroutine as well.
    return run_coroutine(returned, frame) if inspect.iscoroutine(returned) else returned
