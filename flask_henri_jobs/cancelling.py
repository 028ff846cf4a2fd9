"""Cancelling a job, and what follows where that has ended it (W8)."""

from __future__ import annotations

import typing as t

from flask import current_app

from .building import finish_and_tell
from .job import PENDING, RUNNING
from .log import logger
from .logs import about
from .signals import emit, emit_cancelled
from .store.connection import answering
from .store.tallies import Ended

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from .app_state import AppState
    from .job import Job


def cancel(state: AppState, job_id: str, announced: Callable[[Job], Job]) -> Job:
    """Have a job end, and return it as it is now.

    :param announced: Tells of a callback that was stored, where the job was the last of its batch.
    :raises UnknownJob: There is none with that id.
    """
    was, job = state.store.admin.cancel(job_id)
    if was == PENDING:
        _follow(state, job, announced)
    elif was == RUNNING:
        state.store.wakeups.cancelled()
    return job


def _follow(state: AppState, job: Job, announced: Callable[[Job], Job]) -> None:
    """Do for a job that this process has ended what its runner would have done."""
    state.store.wakeups.ended([job.id])
    with about(job):
        logger.info("%s is dead (cancelled) before it was begun (job %s)", job.name, job.id)
    emit_cancelled(current_app._get_current_object(), job, emit)  # type: ignore[attr-defined]
    if job.batch_id is None:
        return
    with answering(f"the count of batch {job.batch_id}"):
        full = state.store.tallies.add({job.batch_id: Ended(done=1, failed=1)})
    for batch in full:
        finish_and_tell(state, batch, announced)
