"""What a runner logs of the outcomes of its attempts."""

from __future__ import annotations

import typing as t

from ..log import logger
from ..logs import about
from ..outcome import Done, Snoozed
from .failure_log import log_failure

if t.TYPE_CHECKING:
    from ..job import Job
    from .committer import Settled


class OutcomeLog:
    """Logs a line for each outcome that is stored: at INFO, where nothing failed."""

    def __init__(self) -> None:
        self._without_result: set[str] = set()

    def tell(self, settled: Settled) -> None:
        """Log how an attempt ended, as a line about its job."""
        job = settled.ending.job
        if settled.job is None:
            with about(job):
                logger.warning("%r was taken over: what came of the attempt is dropped.", job)
            return
        with about(job):
            _log_outcome(settled, settled.job)
        if settled.job.result_error and job.name not in self._without_result:
            # Once a task: each of its jobs says so of itself.
            self._without_result.add(job.name)
            with about(job):
                logger.warning("%r keeps no result: %s", job, settled.job.result_error)


def _log_outcome(settled: Settled, job: Job) -> None:
    ending = settled.ending
    match ending.outcome:
        case Done(duration=duration):
            attempt = (ending.attempt, job.max_attempts, duration)
            logger.info("Job %s (%s) is done: attempt %d of %d, %d ms", job.id, job.name, *attempt)
        case Snoozed():
            due = job.run_at.isoformat(timespec="milliseconds")
            logger.info("Job %s (%s) snoozes until %s", job.id, job.name, due)
        case failed:
            log_failure(job, ending.attempt, failed)
