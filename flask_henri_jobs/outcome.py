"""How an attempt ends, and the pure function that decides it."""

from __future__ import annotations

import traceback
import typing as t
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .backoff import Backoff
from .clock import Moment, to_moment
from .durations import millis, to_duration
from .errors import (
    ConfigError,
    Discard,
    Interruption,
    JobCancelled,
    JobTimeout,
    Retry,
    Snooze,
    TransactionAborted,
    Verdict,
)
from .result import NO_RESULT, Result

if t.TYPE_CHECKING:
    from .job import Document, Job

MOST_MESSAGE_BYTES = 4 * 1024
MOST_STACK_BYTES = 32 * 1024
MOST_FRAMES = 100

MOST_ABORTED = 10
"""So often a job goes back because its transaction was aborted, and its attempt does not count."""

AFTER_ABORT = Backoff(
    base=timedelta(milliseconds=100), factor=2.5, max=timedelta(seconds=30), jitter=0.2
)
"""How long it waits then.

Nearly two minutes in all: by then a server has ended what a killed process left open, too, which
lives for 90 s.
"""

CANCELLED = "The job was cancelled."

Errors: t.TypeAlias = tuple[type[BaseException], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """What becomes of a task's failures (Q5).

    :param backoff: How long a failed job waits.
    :param retry_on: Where given, only these are retried.
    :param discard_on: These are dead at once; it wins over ``retry_on``.
    """

    backoff: Backoff = field(default_factory=Backoff)
    retry_on: Errors | None = None
    discard_on: Errors = ()

    def retries(self, raised: BaseException) -> bool:
        """Whether the job is performed again after this, attempts permitting."""
        if isinstance(raised, self.discard_on) or getattr(raised, "retryable", True) is False:
            return False
        return self.retry_on is None or isinstance(raised, (*self.retry_on, Retry, JobTimeout))


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """What is kept of an exception: text, since an exception holds on to its frames."""

    message: str
    stack: str | None = None

    @classmethod
    def of(cls, raised: BaseException) -> Failure:
        """Describe an exception, cut to what a row may hold."""
        message = cut(_message_of(raised), MOST_MESSAGE_BYTES)
        if isinstance(raised, Verdict):
            return cls(message=message)
        return cls(message=message, stack=cut(_stack_of(raised), MOST_STACK_BYTES))


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A finished attempt, before it is decided what follows from it.

    :param at: When it ended.
    :param duration: How long it took, in milliseconds.
    :param raised: What the task raised.
    :param result: What is stored of what it returned.
    :param is_heeded: Whether the task saw that it is cancelled: one that returns then has stopped.
    """

    at: Moment
    duration: int
    raised: BaseException | None = None
    result: Result = NO_RESULT
    is_heeded: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """What every outcome has.

    :param left: Fields that the attempt leaves with its job, however it ended.
    """

    at: Moment
    left: Document = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done(_Ending):
    """The task returned."""

    duration: int
    result: Result = NO_RESULT


@dataclass(frozen=True, kw_only=True, slots=True)
class Again(_Ending):
    """The job goes back and waits until ``run_at``; the attempt counts.

    :param aborted: Where its transaction was aborted, for which time (X2); then it does not count.
    """

    duration: int
    run_at: Moment
    failure: Failure
    aborted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snoozed(_Ending):
    """The job goes back and waits until ``run_at``, as if it had not been begun."""

    run_at: Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedBack(_Ending):
    """The job was not begun, and goes back to its place as if it had not been claimed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dead(_Ending):
    """The job is kept, with a reason, until somebody retries or deletes it."""

    duration: int
    reason: str
    failure: Failure


Outcome: t.TypeAlias = Done | Again | Snoozed | HandedBack | Dead


def decide(job: Job, attempt: Attempt, policy: RetryPolicy) -> Outcome:
    """Say how an attempt at a job ends (Q5)."""
    raised = unwrapped(attempt.raised)
    match raised:
        case None if attempt.is_heeded:
            failure = Failure(message=CANCELLED)
            return Dead(
                at=attempt.at, duration=attempt.duration, reason="cancelled", failure=failure
            )
        case None:
            return Done(at=attempt.at, duration=attempt.duration, result=attempt.result)
        case Snooze(wait=wait):
            return _waiting(job, attempt, wait, lambda at: Snoozed(at=attempt.at, run_at=at))
        case Discard():
            return _dead(attempt, "discarded", raised)
        case JobCancelled():
            return _dead(attempt, "cancelled", raised)
        case TransactionAborted():
            return _aborted(job, attempt, raised, policy)
        case Retry() if job.attempts < job.max_attempts and raised.wait is not None:
            return _waiting(job, attempt, raised.wait, lambda at: _again(attempt, at, raised))
        case _ if job.attempts < job.max_attempts and policy.retries(raised):
            wait = policy.backoff.wait_after(job.attempts)
            return _again(attempt, attempt.at + millis(wait), raised)
        case _:
            return _dead(attempt, "timeout" if isinstance(raised, JobTimeout) else "failed", raised)


def decide_unseen(job: Job, attempt: Attempt, policy: RetryPolicy, error: BaseException) -> Outcome:
    """Say how an attempt ends whose exception cannot be looked at: it has failed (W10).

    :param error: What the exception raised when it was asked what it is.
    """
    name, why = type(attempt.raised).__name__, type(error).__name__
    failure = Failure(message=f"{name}, which raised {why} when it was asked what it is.")
    if job.attempts >= job.max_attempts:
        return Dead(at=attempt.at, duration=attempt.duration, reason="failed", failure=failure)
    run_at = attempt.at + millis(policy.backoff.wait_after(job.attempts))
    return Again(at=attempt.at, duration=attempt.duration, run_at=run_at, failure=failure)


def cancelled(job: Job, outcome: Again | Snoozed | HandedBack) -> Dead:
    """Say how an attempt at a cancelled job ends that would have gone back to wait (W8)."""
    match outcome:
        case Again(duration=duration, failure=failure):
            pass
        case Snoozed():
            duration = max(0, outcome.at - (job.row.get("started_at") or outcome.at))
            failure = Failure(message=CANCELLED)
        case HandedBack(at=at):
            return cancelled_before(at)
    return Dead(
        at=outcome.at, left=outcome.left, duration=duration, reason="cancelled", failure=failure
    )


def cancelled_before(at: Moment) -> Dead:
    """Say how a job ends that was cancelled when it was claimed, and before it was begun."""
    failure = Failure(message="The job was cancelled before it was begun.")
    return Dead(at=at, duration=0, reason="cancelled", failure=failure)


def expired(at: Moment) -> Dead:
    """Say how a job ends whose ``expires_at`` has passed before it was begun."""
    failure = Failure(message="The job expired before it was begun.")
    return Dead(at=at, duration=0, reason="expired", failure=failure)


def unwrapped(raised: BaseException | None) -> BaseException | None:
    """Return the verdict in a group that holds exactly that, as ``asyncio.TaskGroup`` raises it.

    So it is with what the runner threw into a task of the group.
    """
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        only = raised.exceptions[0]
        if not isinstance(only, BaseExceptionGroup | Verdict | Interruption):
            break
        raised = only
    return raised


def _waiting(
    job: Job, attempt: Attempt, wait: t.Any, outcome: t.Callable[[Moment], Outcome]
) -> Outcome:
    """Return an outcome at the end of a wait that the task chose, which may be nonsense."""
    try:
        return outcome(_moment_after(attempt.at, wait))
    except ConfigError as error:
        return decide(job, _replaced(attempt, error), RetryPolicy())


def _aborted(
    job: Job, attempt: Attempt, raised: TransactionAborted, policy: RetryPolicy
) -> Outcome:
    """Return the outcome of an attempt whose transaction was aborted by no fault of its task."""
    times = int(job.row.get("aborted_transactions", 0)) + 1
    if times > MOST_ABORTED:
        return decide(job, _replaced(attempt, raised.error), policy)
    return Again(
        at=attempt.at,
        duration=attempt.duration,
        run_at=attempt.at + millis(AFTER_ABORT.wait_after(times)),
        failure=Failure.of(raised),
        aborted=times,
    )


def _moment_after(at: Moment, wait: t.Any) -> Moment:
    if isinstance(wait, datetime):
        if wait.tzinfo is None:
            raise ConfigError("The moment to wait for has no time zone.", hint="Use an aware one.")
        return to_moment(wait)
    return at + millis(to_duration(wait, "wait"))


def _replaced(attempt: Attempt, raised: BaseException) -> Attempt:
    return Attempt(at=attempt.at, duration=attempt.duration, raised=raised)


def _again(attempt: Attempt, run_at: Moment, raised: BaseException) -> Again:
    return Again(
        at=attempt.at, duration=attempt.duration, run_at=run_at, failure=Failure.of(raised)
    )


def _dead(attempt: Attempt, reason: str, raised: BaseException) -> Dead:
    return Dead(at=attempt.at, duration=attempt.duration, reason=reason, failure=Failure.of(raised))


def _message_of(raised: BaseException) -> str:
    if isinstance(raised, Retry | Discard):
        return raised.reason or type(raised).__name__
    # The exception is the user's, and so is its __str__, which may raise; this does not.
    text = str(traceback.TracebackException(type(raised), raised, None))
    name = type(raised).__name__
    return f"{name}: {text}" if text else name


def _stack_of(raised: BaseException) -> str:
    return "".join(traceback.format_exception(raised, limit=-MOST_FRAMES))


def cut(text: str, most_bytes: int) -> str:
    """Return a text of at most so many bytes of UTF-8, with a mark where the middle was cut."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= most_bytes:
        return encoded.decode()
    mark = f"\n… {len(encoded) - most_bytes} bytes cut …\n"
    # The end of a stack says what was raised, and the start of a message what it is about.
    half = (most_bytes - len(mark.encode())) // 2
    return (
        f"{encoded[:half].decode(errors='ignore')}{mark}{encoded[-half:].decode(errors='ignore')}"
    )
