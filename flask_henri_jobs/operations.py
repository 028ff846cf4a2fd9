"""The operator's half of the extension: what is asked of jobs that are there."""

from __future__ import annotations

import typing as t

from flask import current_app

from . import signals
from .batch_operations import BatchOperations
from .checks import checked_name
from .errors import InvalidFilter, UnknownJob
from .signals import emit
from .store.filters import JobFilter

if t.TYPE_CHECKING:
    from flask import Flask

    from .app_state import AppState
    from .job import Job

Names: t.TypeAlias = list[str]


class JobFilters(t.TypedDict, total=False):
    """What selects jobs: each is text, and all that are given must fit."""

    state: str | None
    queue: str | None
    name: str | None
    tenant: str | None
    batch: str | None
    tag: str | None
    reason: str | None


class Operations:
    """Looking at jobs, and putting them right. Each method needs an app context.

    Each raises :class:`~flask_henri_jobs.errors.StoreUnavailable` where the database does not
    answer in time.
    """

    @property
    def state(self) -> AppState:
        """The current app's share of this extension."""
        raise AssertionError

    def _announced(self, job: Job) -> Job:
        """Tell of a job that was stored, and return it."""
        if job.created and signals.job_enqueued.receivers:
            emit(signals.job_enqueued, _app(), job=job)
        return job

    def get(self, job_id: str) -> Job | None:
        """Return a job, or None where there is none with that id."""
        return self.state.store.admin.find(_checked_id(job_id))

    def list(
        self, *, limit: int = 50, offset: int = 0, **filters: t.Unpack[JobFilters]
    ) -> list[Job]:
        """Return jobs, those first that changed last.

        :param limit: At most so many, 1,000 or fewer.
        :raises InvalidFilter: A filter is not text, or names no such state (Q9).
        """
        return self.state.store.admin.page(JobFilter.read(**filters), limit, offset)

    def count(self, **filters: t.Unpack[JobFilters]) -> int:
        """Return how many jobs there are that fit."""
        return self.state.store.admin.count(JobFilter.read(**filters))

    def status(self) -> dict[str, t.Any]:
        """Return the state of every queue, and the waiting tasks.

        ``queues`` is a list of ``{queue, pending, running, done, dead, oldest_ms}``, where
        ``oldest_ms`` is how long the oldest due job has waited; ``waiting_tasks`` counts waiting
        jobs by the names of their tasks.
        """
        return self.state.store.figures.status()

    def retry(self, job_id: str) -> Job:
        """Have a job that ended performed again, with all its attempts; its history stays (Q10).

        :raises UnknownJob: There is none with that id.
        :raises JobBusy: It is running.
        """
        return self.state.store.admin.retry(_checked_id(job_id))

    def retry_all(self, **filters: t.Unpack[JobFilters]) -> int:
        """Retry the dead jobs that fit. Return how many.

        Without a ``reason`` they are those that failed, were lost, or ran out of time: what was
        discarded, cancelled or has expired was meant to end (Q5).
        """
        return self.state.store.admin.retry_many(JobFilter.read(**filters))

    def delete(self, job_id: str) -> Job:
        """Delete a job. Return it as it was.

        :raises UnknownJob: There is none with that id.
        :raises JobBusy: It is running.
        """
        job = self.state.store.admin.delete(_checked_id(job_id))
        if job is None:
            raise UnknownJob(f"There is no job {job_id}.")
        emit(signals.job_deleted, _app(), job=job)
        return job

    def delete_all(self, **filters: t.Unpack[JobFilters]) -> int:
        """Delete the jobs that fit and do not run. Return how many.

        :raises InvalidFilter: Nothing was given to select them by.
        """
        deleted = 0
        for job in self.state.store.admin.delete_many(JobFilter.read(**filters)):
            emit(signals.job_deleted, _app(), job=job)
            deleted += 1
        return deleted

    @property
    def batches(self) -> BatchOperations:
        """The batches: ``get``, ``list``, ``jobs``, ``cancel``, ``delete``, ``open``."""
        return BatchOperations(self.state, self._announced)

    def install(self) -> Names:
        """Make the indexes that are missing. Return their names; it may be repeated."""
        return self.state.store.install()

    def uninstall(self) -> Names:
        """Drop every collection of the queue, with all jobs. Return their names."""
        return self.state.store.uninstall()


def _checked_id(job_id: object) -> str:
    return checked_name(job_id, "id", error=InvalidFilter)


def _app() -> Flask:
    return current_app._get_current_object()  # type: ignore[attr-defined,no-any-return]
