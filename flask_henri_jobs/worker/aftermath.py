"""What follows for the batches of jobs that have ended."""

from __future__ import annotations

import typing as t
from collections import defaultdict

from .. import signals
from ..errors import HenriJobsError, StoreUnavailable
from ..finishing import Finisher
from ..job import DEAD, DONE, PENDING
from ..log import logger
from ..logs import about
from ..outcome import HandedBack
from ..registry import Registry
from ..store.tallies import Ended

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..batch import Batch
    from ..job import Job
    from ..settings import Settings
    from ..store import Store
    from .alarm import Alarm
    from .awaited import Awaited
    from .committer import Announcer, Settled
    from .loop import Outages


QUIET_MS = 5_000
"""A batch that somebody has counted in since is not swept: whoever did asks the question."""


class Aftermath:
    """Counts the members of batches as they end, and ends the batches.

    Nothing depends on it: where a runner dies before it counts, the sweep of another finds the
    batch over (B3).

    :param on_enqueued: Called when callbacks were enqueued.
    :param alarm: Told when jobs that went back are due.
    :param awaited: The jobs that somebody waits for.
    :param tasks: What is known here of the tasks of callbacks.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        announcer: Announcer,
        outages: Outages,
        on_enqueued: Callable[[], None],
        alarm: Alarm | None = None,
        awaited: Awaited | None = None,
        tasks: Registry | None = None,
    ) -> None:
        self._store = store
        self._finisher = Finisher(settings, store, tasks or Registry())
        self._announcer = announcer
        self._outages = outages
        self._on_enqueued = on_enqueued
        self._alarm = alarm
        self._awaited = awaited

    def follow(self, group: Sequence[Settled]) -> None:
        """Count what ended of a group of attempts, once however often it is called with it."""
        self._ring_for_put_back(group)
        fresh = [settled for settled in group if not settled.ending.is_counted]
        for settled in fresh:
            # Noted before it is sent: a count whose fate is unknown is not repeated (B1).
            settled.ending.is_counted = True
        self.count(settled.job for settled in fresh if settled.job is not None)

    def _ring_for_put_back(self, group: Sequence[Settled]) -> None:
        rows = [
            settled.job.row
            for settled in group
            # What was handed back waits for a pause to end, or a start: others could not begin it.
            if settled.job is not None and not isinstance(settled.ending.outcome, HandedBack)
        ]
        if back := [row for row in rows if row["state"] == PENDING]:
            self._store.wakeups.ring_for(back)
            if self._alarm is not None:
                # The others hear of the first of them only.
                self._alarm.expect_all(back)

    def count(self, jobs: Iterable[Job]) -> None:
        """Count jobs that have just ended, and end the batches that are over."""
        jobs = list(jobs)
        if self._awaited is not None:
            self._awaited.tell(jobs)
        ended = _by_batch(jobs)
        if ended:
            with self._outages.tolerated():
                self._finish(self._store.tallies.add(ended))

    def bury(self, jobs: Sequence[Job]) -> None:
        """See to jobs that are dead because they were cancelled before they were begun (W8)."""
        if jobs:
            self.count(jobs)
        for job in jobs:
            with about(job):
                logger.info("%s is dead (cancelled) before it was begun (job %s)", job.name, job.id)
            self._announcer.tell_cancelled(job)

    def sweep(self) -> None:
        """End the batches that are over although their counters do not say so (B3)."""
        quiet = self._store.clock.now() - QUIET_MS
        batches = self._store.tallies.unfinished(quiet)
        for batch in batches:
            if batch.cancelled_at is not None:
                self._cancel_again(batch)
        self._finish(batches)

    def _cancel_again(self, batch: Batch) -> None:
        """Bury the members of a cancelled batch that went back to wait since."""
        for job in self._finisher.cancel_members(batch.id):
            self._announcer.tell_cancelled(job)

    def _finish(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            try:
                ending = self._finisher.finish(batch)
            except StoreUnavailable:
                raise
            except HenriJobsError:
                # Its callback cannot be enqueued; the other batches can.
                logger.exception("%r cannot be ended.", batch)
                continue
            for job in ending.enqueued:
                self._announcer.tell(signals.job_enqueued, job=job)
                self._on_enqueued()
            if ending.batch is not None:
                self._announcer.tell(signals.batch_finished, batch=ending.batch)


def _by_batch(jobs: Iterable[Job]) -> dict[str, Ended]:
    done: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = defaultdict(int)
    for job in jobs:
        batch = job.row.get("batch_id")
        if batch is not None and job.row["state"] in {DONE, DEAD}:
            done[batch] += 1
            failed[batch] += job.row["state"] == DEAD
    return {batch: Ended(count, failed[batch]) for batch, count in done.items()}
