"""What a runner logs of the outcomes of its attempts: a line each, about the job."""

from __future__ import annotations

import logging
import typing as t
from datetime import timedelta

from ..durations import to_text
from ..log import logger
from ..logs import about
from ..outcome import Again, Dead, Done, HandedBack, Snoozed

if t.TYPE_CHECKING:
    from ..job import Job
    from .committer import Settled

_LEVELS = {"failed": logging.ERROR, "timeout": logging.ERROR, "cancelled": logging.INFO}
"""Of dead jobs, by their reason. What was discarded or has expired was meant to end."""


class OutcomeLog:
    """Logs a line for each outcome that is stored: at INFO, or higher where an attempt failed."""

    def __init__(self) -> None:
        self._without_result: set[str] = set()

    def tell(self, settled: Settled) -> None:
        """Log how an attempt ended. What its task redacts is not told."""
        job, now = settled.ending.job, settled.job
        # The row as it was claimed: one that went back has no runner.
        with about(job):
            if now is None:
                logger.warning("%r was taken over: what came of the attempt is dropped.", job)
                return
            _tell(settled, now.concealed())
            if now.result_error and job.name not in self._without_result:
                # Once a task: each of its jobs says so of itself.
                self._without_result.add(job.name)
                logger.warning("%r keeps no result: %s", job, now.concealed().result_error)


def _tell(settled: Settled, job: Job) -> None:
    """Log an outcome; with the stack, where the job is dead for it.

    :param job: The job as it is stored now, and may be shown.
    """
    attempt, outcome = settled.ending.attempt, settled.ending.outcome
    match outcome:
        case Done(duration=duration):
            logger.info(
                "%s is done after attempt %d of %d, in %d ms (job %s)",
                *(job.name, attempt, job.max_attempts, duration, job.id),
            )
        case Snoozed(at=at, run_at=run_at):
            logger.info("%s snoozes for %s (job %s)", job.name, _about(run_at - at), job.id)
        case HandedBack():
            logger.debug("%s is put back to its place, not begun (job %s)", job.name, job.id)
        case Again(at=at, run_at=run_at, aborted=aborted) if aborted:
            logger.info(
                "%s goes back for %s, and its attempt does not count: %s (job %s)",
                *(job.name, _about(run_at - at), job.error, job.id),
            )
        case Again(at=at, run_at=run_at):
            logger.warning(
                "Attempt %d of %d at %s failed, and the next is due in %s: %s (job %s)",
                *(attempt, job.max_attempts, job.name, _about(run_at - at), job.error, job.id),
            )
        case Dead(reason=reason):
            level = _LEVELS.get(reason, logging.WARNING)
            # As text: a record that a handler keeps would keep the task's frames with it.
            stack = f"\n{job.error_stack}" if job.error_stack and level == logging.ERROR else ""
            logger.log(
                level,
                "%s is dead (%s) after attempt %d of %d: %s (job %s)%s",
                *(job.name, reason, attempt, job.max_attempts, job.error, job.id, stack),
            )
        case _:
            t.assert_never(outcome)


def _about(wait: int) -> str:
    """Return milliseconds as people say them: in whole seconds, where it is some."""
    if wait < 1000:
        return to_text(timedelta(milliseconds=max(wait, 0)))
    return to_text(timedelta(seconds=round(wait / 1000)))
