"""Performing a job where it is enqueued, with nothing stored: ``HENRI_JOBS_INLINE``."""

from __future__ import annotations

import contextlib
import time
import typing as t
from contextvars import Context

from . import signals
from .context import be_transactional
from .enqueueing import row_of
from .errors import JobFailed
from .job import DONE, RUNNING, Document, Job
from .logs import tell_of_jobs
from .outcome import Done, Snoozed
from .result import NO_RESULT, result_of
from .signals import emit
from .store.job_transactions import naming_aborts, once

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

    from .app_state import AppState
    from .clock import Moment
    from .options import Overrides
    from .progress import Track
    from .store.connection import Client
    from .store.job_transactions import JobSession, JobTransactions
    from .task import Task

R = t.TypeVar("R")


def perform_inline(
    app: Flask, state: AppState, task: Task[..., t.Any], args: object, overrides: Overrides
) -> Job:
    """Perform a job at once, as a runner would, and return it, done.

    Its arguments go through the codec, and it runs in an app context of its own, where there is
    no request. What the task raises is raised, and nothing is retried. No database is asked, but
    for what the task writes itself.

    :raises JobFailed: The job expired before it was begun.
    """
    # A web process loads the worker for this only.
    from .worker.execution import Execution

    settings = state.settings
    row = row_of(task, args, overrides, settings, _local_now())
    row |= {"state": RUNNING, "attempts": 1, "started_at": _local_now()}
    job = Job(row, Kept(row))

    def progressed(track: Track) -> None:
        row["progress"] = track.take().stored(_local_now())
        emit(signals.job_progressed, app, job=job)

    policy = task.policy(settings.backoff)
    execution = Execution(app, job, task, policy, _local_now, on_progress=progressed)
    own = InlineTransaction(lambda: state.store_as_it_is.job_transactions)
    be_transactional(execution.running, own)
    tell_of_jobs()
    # An empty context: a runner has no request either.
    ending = Context().run(execution.run)
    if ending.raised is not None:
        if not isinstance(ending.outcome, Snoozed):
            emit(signals.job_failed, app, job=job, error=ending.raised, attempt=1)
        raise ending.raised
    if not isinstance(ending.outcome, Done):
        raise JobFailed(f"Job {job.id} ({job.name}) expired before it was begun.")
    done, returned, result = ending.outcome, ending.returned, ending.outcome.result
    if own.committed is not None:
        # As with a runner, for which the job had ended before its task returned.
        returned = own.committed.result
        result = result_of(returned) if task.defaults.store_result else NO_RESULT
    row |= {"state": DONE, "finished_at": done.at, "duration_ms": done.duration}
    row |= done.left | result.fields()
    emit(signals.job_succeeded, app, job=job, result=returned, duration=job.duration)
    return job


class InlineTransaction:
    """The transaction of a job that is stored nowhere: of what its task writes, and no more (X2).

    :ivar committed: Its session, once it is committed.
    """

    def __init__(self, transactions: Callable[[], JobTransactions]) -> None:
        self.committed: JobSession | None = None
        self._transactions = transactions
        self._is_used = False

    @contextlib.contextmanager
    def block(self, client: Client | None) -> Iterator[JobSession]:
        """Commit what is written in the block, at its end."""
        self._is_used = once(self._is_used)
        with naming_aborts():
            with self._transactions().alone(client) as session:
                yield session
            self.committed = session

    def run(self, work: Callable[[JobSession], R], client: Client | None) -> R:
        """Call a function, once, and commit what it has written: a test has no rivals."""
        with self.block(client) as session:
            returned = work(session)
            session.take(returned)
        return returned


class Kept:
    """Where the row of a job is that was never stored."""

    def __init__(self, row: Document) -> None:
        self._row = row

    def row_of(self, job_id: str) -> Document:  # noqa: ARG002 - as the store's takes it
        """Return the row."""
        return self._row

    def wait_for_end(self, job_id: str, timeout: float | None) -> Document:  # noqa: ARG002
        """Return the row; the job has ended."""
        return self._row


def _local_now() -> Moment:
    # Nothing of it is stored, so the host's clock will do (C1).
    return time.time_ns() // 1_000_000
