"""What a runner logs of the outcomes of its attempts."""

from __future__ import annotations

import logging
import typing as t

from ..log import logger
from ..logs import about
from ..outcome import Again, Dead, Done, Snoozed

if t.TYPE_CHECKING:
    from ..job import Job
    from .committer import Settled

LONGEST_ERROR = 200


class OutcomeLog:
    """Logs a line for each outcome that is stored, at INFO."""

    def __init__(self) -> None:
        self._without_result: set[str] = set()

    def tell(self, settled: Settled) -> None:
        """Log how an attempt ended, as a line about its job."""
        job = settled.ending.job
        if settled.job is None:
            with about(job):
                logger.warning("%r was taken over: what came of the attempt is dropped.", job)
            return
        if logger.isEnabledFor(logging.INFO):
            with about(job):
                logger.info("Job %s (%s) %s", job.id, job.name, _told(settled, settled.job))
        if settled.job.result_error and job.name not in self._without_result:
            # Once a task: each of its jobs says so of itself.
            self._without_result.add(job.name)
            with about(job):
                logger.warning("%r keeps no result: %s", job, settled.job.result_error)


def _told(settled: Settled, job: Job) -> str:
    attempt = f"attempt {settled.ending.attempt} of {job.max_attempts}"
    match settled.ending.outcome:
        case Done(duration=duration):
            return f"is done: {attempt}, {duration} ms"
        case Again(duration=duration):
            return f"failed and waits until {_due(job)}: {attempt}, {duration} ms, {_error(job)}"
        case Snoozed():
            return f"snoozes until {_due(job)}"
        case Dead(duration=duration, reason=reason):
            return f"is dead as {reason}: {attempt}, {duration} ms, {_error(job)}"
        case _:
            t.assert_never(settled.ending.outcome)


def _due(job: Job) -> str:
    return job.run_at.isoformat(timespec="milliseconds")


def _error(job: Job) -> str:
    first_line = next(iter((job.error or "").splitlines()), "")
    return first_line[:LONGEST_ERROR]
