"""What a worker's log says of attempts that did not succeed."""

from __future__ import annotations

import logging
import typing as t
from datetime import timedelta

from ..durations import to_text
from ..log import logger
from ..outcome import Again, Dead

if t.TYPE_CHECKING:
    from ..job import Job

LONGEST_ERROR = 200

_LEVELS = {"failed": logging.ERROR, "timeout": logging.ERROR, "cancelled": logging.INFO}
"""Of dead jobs, by their reason. What was discarded or has expired was meant to end."""


def log_failure(job: Job, attempt: int, outcome: Again | Dead) -> None:
    """Write a line about an attempt that failed; with its stack, where the job is dead for it.

    :param job: The job as it is stored now.
    """
    match outcome:
        case Again(at=at, run_at=run_at, failure=failure):
            logger.warning(
                "Attempt %d of %d at %s failed, and the next is due in %s: %s (job %s)",
                *(attempt, job.max_attempts, job.name),
                *(_about(run_at - at), _first_line(failure.message), job.id),
            )
        case Dead(reason=reason, failure=failure):
            level = _LEVELS.get(reason, logging.WARNING)
            # As text: a record that a handler keeps would keep the task's frames with it.
            stack = f"\n{failure.stack}" if failure.stack and level == logging.ERROR else ""
            logger.log(
                level,
                "%s is dead (%s) after attempt %d of %d: %s (job %s)%s",
                *(job.name, reason, attempt, job.max_attempts),
                *(_first_line(failure.message), job.id, stack),
            )


def _about(wait: int) -> str:
    """Return milliseconds as people say them: in whole seconds, where it is some."""
    if wait < 1000:
        return to_text(timedelta(milliseconds=wait))
    return to_text(timedelta(seconds=round(wait / 1000)))


def _first_line(message: str) -> str:
    # A line a failure; the rest is with the job.
    return next(iter(message.splitlines()), "")[:LONGEST_ERROR]
