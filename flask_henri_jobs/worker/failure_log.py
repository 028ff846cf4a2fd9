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
    from ..outcome import Outcome

_LEVELS = {"failed": logging.ERROR, "timeout": logging.ERROR, "cancelled": logging.INFO}
"""Of dead jobs, by their reason. What was discarded or has expired was meant to end."""


def log_failure(job: Job, attempt: int, outcome: Outcome, raised: BaseException | None) -> None:
    """Write a line about an attempt that failed; with its stack, where the job is dead for it.

    :param job: The job as it is stored now.
    """
    match outcome:
        case Again(at=at, run_at=run_at, failure=failure):
            logger.warning(
                "Attempt %d of %d at %s failed, and the next is due in %s: %s (job %s)",
                *(attempt, job.max_attempts, job.name),
                *(_about(run_at - at), failure.message, job.id),
            )
        case Dead(reason=reason, failure=failure):
            level = _LEVELS.get(reason, logging.WARNING)
            logger.log(
                level,
                "%s is dead (%s) after attempt %d of %d: %s (job %s)",
                *(job.name, reason, attempt, job.max_attempts, failure.message, job.id),
                exc_info=raised if level == logging.ERROR else None,
            )
        case _:
            pass


def _about(wait: int) -> str:
    """Return milliseconds as people say them: in whole seconds, where it is some."""
    if wait < 1000:
        return to_text(timedelta(milliseconds=wait))
    return to_text(timedelta(seconds=round(wait / 1000)))
