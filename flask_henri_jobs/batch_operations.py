"""The operator's questions about batches: ``jobs.batches``."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from flask import current_app

from . import signals
from .batch import FINISHED
from .building import OpenBatch, finish_and_tell
from .errors import JobBusy, UnknownBatch
from .job import RUNNING
from .signals import emit, emit_cancelled
from .store.connection import answering
from .store.filters import JobFilter
from .tenant import is_visible, visible_tenant

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from .app_state import AppState
    from .batch import Batch
    from .job import Job

Jobs: t.TypeAlias = "list[Job]"


@dataclass(frozen=True, slots=True)
class BatchOperations:
    """Looking at batches, and putting them right.

    Where a tenant is in scope, the batches of others are as if they were not there (T2).

    :param announced: Tells of a job that was stored.
    """

    state: AppState
    announced: Callable[[Job], Job]

    def get(self, batch_id: str) -> Batch | None:
        """Return a batch, or None where there is none with that id."""
        batch = self.state.store.batches.find(batch_id)
        return batch if batch is not None and is_visible(batch.tenant) else None

    def open(self, batch_id: str) -> OpenBatch:
        """Return a batch to add jobs to, or to seal, which another process has begun.

        :raises UnknownBatch: There is none with that id.
        :raises BatchSealed: It takes no more jobs (B4).
        """
        batch = self._found(batch_id)
        self.state.store.batches.refuse_sealed(batch_id)
        return OpenBatch(batch, self.state, self.announced)

    def list(
        self,
        *,
        state: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[Batch]:
        """Return batches, the newest first.

        :param state: ``open``, ``running`` or ``finished``. One that stays open was left by a
            process that died before it had sealed it.
        """
        return self.state.store.batches.page(state, visible_tenant(tenant), limit, offset)

    def jobs(
        self, batch_id: str, *, state: str | None = None, limit: int = 50, offset: int = 0
    ) -> Jobs:
        """Return jobs of a batch, those first that changed last.

        :raises UnknownBatch: There is none with that id.
        """
        return self._found(batch_id).jobs(state=state, limit=limit, offset=offset)

    def cancel(self, batch_id: str) -> Batch:
        """End a batch early, and return it as it is then. A finished one stays as it is.

        It takes no more jobs; those that wait are dead as cancelled, and those that run are asked
        to end. After the last of them the callbacks run as ever: a cancelled job counts as failed.

        :raises UnknownBatch: There is none with that id.
        """
        batch = self._found(batch_id)
        with answering(f"the cancelling of batch {batch_id}"):
            if not self.state.store.batches.mark_cancelled(batch_id):
                return batch.refresh()
            self.state.store.batches.seal(batch_id)
        for job in self.state.finisher.cancel_members(batch_id):
            emit_cancelled(_app(), job, emit)
        finish_and_tell(self.state, batch.refresh(), self.announced)
        return batch.refresh()

    def delete(self, batch_id: str) -> Batch:
        """Delete a batch with its jobs, and return it as it was. No callback follows.

        :raises UnknownBatch: There is none with that id.
        :raises JobBusy: A job of it is running.
        """
        batch = self._found(batch_id)
        if batch.state != FINISHED and batch.jobs(state=RUNNING, limit=1):
            raise JobBusy(
                f"Jobs of the batch {batch_id} are running.",
                hint=f"Cancel it with jobs.batches.cancel({batch_id!r}) and wait for its end.",
            )
        # The batch first: without it nothing can call back over members that are half deleted.
        self.state.store.batches.remove(batch_id)
        for job in self.state.store.admin.delete_many(JobFilter(batch=batch_id)):
            emit(signals.job_deleted, _app(), job=job)
        return batch

    def _found(self, batch_id: str) -> Batch:
        batch = self.get(batch_id)
        if batch is None:
            raise UnknownBatch(
                f"There is no batch {batch_id}.",
                hint="It was deleted, or pruned some time after its end.",
            )
        return batch


def _app() -> Flask:
    return current_app._get_current_object()  # type: ignore[attr-defined,no-any-return]
