"""Every exception of the package.

:class:`HenriJobsError` is what goes wrong. A :class:`Verdict` is raised by a task to choose its
own ending, and an :class:`Interruption` is thrown into a task by its runner. Neither is an error,
so both derive from :class:`BaseException`: a task's own ``except Exception`` lets them through.
"""

from __future__ import annotations

import typing as t

import click

if t.TYPE_CHECKING:
    from datetime import datetime, timedelta


class HenriJobsError(Exception):
    """The base of every error that this package raises.

    :param message: What happened, and where.
    :param hint: What to do about it; empty where there is nothing to do.
    """

    code: t.ClassVar[str] = "HENRI_JOBS_ERROR"
    """A stable name for programs; the message is for people."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class ConfigError(HenriJobsError, click.ClickException):  # type: ignore[misc]
    """A setting, an option or a declaration is wrong; raised before anything starts.

    It is also a :class:`click.ClickException`, since Flask prints a traceback for any other error
    that an application factory raises under ``flask``.
    """

    code = "CONFIG_ERROR"

    def format_message(self) -> str:
        """Return the text that click prints after ``Error:``."""
        return str(self)


class InvalidArguments(HenriJobsError):
    """A job's arguments do not fit its task, or would not come back as they went in (Q8)."""

    code = "INVALID_ARGUMENTS"


class InvalidFilter(HenriJobsError):
    """A value that selects jobs is not of the kind that is asked for (Q9)."""

    code = "INVALID_FILTER"


class UnknownTask(HenriJobsError):
    """No task of that name is registered."""

    code = "UNKNOWN_TASK"


class UnknownJob(HenriJobsError):
    """No job with that id is stored."""

    code = "UNKNOWN_JOB"


class UnknownSchedule(HenriJobsError):
    """No schedule of that name is stored or declared."""

    code = "UNKNOWN_SCHEDULE"


class ScheduleTaken(HenriJobsError):
    """An application declares the schedule, so it is not for operators to define or remove."""

    code = "SCHEDULE_TAKEN"


class UnknownBatch(HenriJobsError):
    """No batch with that id is stored."""

    code = "UNKNOWN_BATCH"


class BatchSealed(HenriJobsError):
    """The batch takes no more jobs: its callback may have run (B4)."""

    code = "BATCH_SEALED"


class UniqueKeyTaken(HenriJobsError):
    """Another waiting or running job holds the unique key (Q7)."""

    code = "UNIQUE_KEY_TAKEN"


class JobBusy(HenriJobsError):
    """The job is in a state that does not allow what was asked, such as a retry while it runs."""

    code = "JOB_BUSY"


class JobFailed(HenriJobsError):
    """The job that was waited for is dead."""

    code = "JOB_FAILED"


class WaitTimeout(HenriJobsError):
    """The job that was waited for had not ended in time. It is not changed by that."""

    code = "WAIT_TIMEOUT"


class OutsideJob(HenriJobsError):
    """``current_job`` was asked for something outside a job."""

    code = "OUTSIDE_JOB"


class NotInstalled(HenriJobsError):
    """A collection lacks an index, or has it in another shape (Q13)."""

    code = "NOT_INSTALLED"


class StoreUnavailable(HenriJobsError):
    """The database did not answer in time (Q11).

    :param maybe_stored: The id of a job whose insert was sent and not answered: it may be stored.
        ``using(id=...)`` with that id repeats the enqueue without a second job.
    """

    code = "STORE_UNAVAILABLE"

    def __init__(self, message: str, *, hint: str = "", maybe_stored: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.maybe_stored = maybe_stored


class ThreadsStuck(HenriJobsError):
    """So many jobs did not end when they were told to that the worker has stopped (W7)."""

    code = "THREADS_STUCK"


class TransactionRefused(HenriJobsError):
    """A session cannot carry jobs: no transaction, no replica set, or another deployment (X1)."""

    code = "TRANSACTION_REFUSED"


class Interruption(BaseException):
    """Thrown into a running task by its runner."""

    code: t.ClassVar[str] = "INTERRUPTED"

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class JobTimeout(Interruption):
    """The attempt took longer than the task's ``timeout`` (W7)."""

    code = "JOB_TIMEOUT"


class JobCancelled(Interruption):
    """Somebody asked for the job to end (W8)."""

    code = "JOB_CANCELLED"


class JobLost(Interruption):
    """The claim is gone: another runner has the job, and this attempt's outcome will not count."""

    code = "JOB_LOST"


class Verdict(BaseException):
    """Raised by a task to choose its own outcome. Not an error."""


class Retry(Verdict):
    """The attempt did not succeed; perform the job again. It costs an attempt (Q5).

    :param wait: How long to wait: a ``timedelta``, seconds, or text such as ``"5m"``. Without it
        the task's backoff decides.
    :param reason: Kept in the job's history.
    """

    def __init__(self, reason: object = "", *, wait: str | float | timedelta | None = None) -> None:
        # Whatever a task gives, often another exception: a history holds text.
        self.reason = str(reason)
        super().__init__(self.reason)
        self.wait = wait


class Snooze(Verdict):
    """Perform the job later. It costs no attempt (Q5).

    :param wait: How long to wait: a ``timedelta``, seconds, or text such as ``"5m"``; or the
        aware moment itself.
    """

    def __init__(self, wait: str | float | timedelta | datetime) -> None:
        super().__init__(wait)
        self.wait = wait


class Discard(Verdict):
    """The job is dead at once, with the reason ``discarded`` (Q5).

    :param reason: Kept as the job's error message.
    """

    def __init__(self, reason: object = "") -> None:
        self.reason = str(reason)
        super().__init__(self.reason)


class TransactionAborted(Verdict):
    """The transaction of a job was aborted, and not by its task (X2).

    It is raised out of the block of ``current_job.transaction()``, and by
    ``current_job.run_in_transaction()`` once that has tried often enough. None of the writes is
    there. The job goes back with its attempt restored; the eleventh time it has failed.

    :param error: What the driver, or the queue, raised.
    :param said: What that says, in short.
    """

    def __init__(self, error: Exception, said: str) -> None:
        super().__init__(f"The transaction was aborted: {said}")
        self.error = error
