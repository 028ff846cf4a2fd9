"""Heartbeats for what this process holds."""

from __future__ import annotations

import threading
import typing as t

from ..errors import StoreUnavailable
from ..log import logger
from ..logs import about
from ..settings import LONGEST_TRANSACTION
from .loop import Loop, Wakeup

if t.TYPE_CHECKING:
    from datetime import timedelta

    from ..clock import Clock
    from ..job import Job
    from ..store.leases import Leases
    from ..store.permits import Permits
    from .attempts import Attempts
    from .holdings import Holdings
    from .loop import Outages

RETRY_SECONDS = 0.5


class Keeper:
    """Tells the database that this process is still on its jobs, and learns which it lost.

    :param heartbeat: How often. A job that ended before its first heartbeat is due has none.
    :param stuck_after: When others recover a job; nothing is begun on a claim that was last known
        to stand a third of that ago (W4).
    """

    def __init__(
        self,
        leases: Leases,
        permits: Permits,
        holdings: Holdings,
        attempts: Attempts,
        clock: Clock,
        *,
        heartbeat: timedelta,
        stuck_after: timedelta,
        outages: Outages,
    ) -> None:
        self._leases = leases
        self._permits = permits
        self._holdings = holdings
        self._attempts = attempts
        self._clock = clock
        self._heartbeat = heartbeat.total_seconds()
        self._outages = outages
        self._pause = Wakeup()
        self._writing = threading.Lock()
        self._fresh = stuck_after.total_seconds() / 3
        spare = (stuck_after - LONGEST_TRANSACTION).total_seconds()
        # It is below zero where a transaction may outlast its claim anyway.
        self._fresh_for_a_transaction = min(self._fresh, spare / 2)
        self._loop = Loop("henri-jobs-keeper", self.round)

    def start(self) -> None:
        """Start the heartbeats."""
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """End them."""
        return self._loop.stop(timeout)

    def may_begin(self, job: Job) -> bool:
        """Whether the claim of a job is known to stand, or is found to when it was long ago.

        A job whose permit is gone, and taken by another, does not begin either (L3).
        """
        while not self._holdings.is_fresh(job, self._fresh):
            try:
                return self._keep([job]) == []
            except StoreUnavailable:
                self._pause.sleep(RETRY_SECONDS)
        return True

    def round(self) -> float:
        """Write the heartbeats that are due. Return the seconds until others are."""
        if self._clock.is_due:
            with self._outages.asking():
                self._clock.renew()
        if jobs := self._holdings.older_than(self._heartbeat / 2):
            self._keep(jobs)
        return self._heartbeat / 2

    def set_apart(self, job: Job) -> bool:
        """Write no heartbeat of a job from here on: it is in a transaction (X2).

        One that is being written is done by then. One more is written where the claim was last
        known to stand so long ago that it could run out within the transaction. Return False where
        the claim is gone.

        :raises StoreUnavailable: The database is away.
        """
        with self._writing:
            self._holdings.set_apart(job)
            if self._holdings.is_fresh(job, self._fresh_for_a_transaction):
                return True
            known_at = self._holdings.now()
            with self._outages.asking():
                is_gone = bool(self._leases.keep([job]))
        if not is_gone:
            self._holdings.renew([job], known_at)
        return not is_gone

    def _keep(self, jobs: list[Job]) -> list[Job]:
        """Write the heartbeats of jobs. Return those whose claim or permit is gone."""
        known_at = self._holdings.now()
        with self._outages.asking():
            with self._writing:
                written = [job for job in jobs if not self._holdings.is_apart(job)]
                gone = self._leases.keep(written)
            ours = [job for job in jobs if job.row["_id"] not in gone]
            without = self._permits.keep(ours)
            lost = [job for job in jobs if job.row["_id"] in gone]
            # The outcome of one may have been stored since they were counted.
            taken_over = self._leases.taken_over(lost)
        for job in taken_over:
            with about(job):
                logger.warning("The claim of %r is gone: another runner has the job.", job)
        bare = [job for job in ours if job.row["_id"] in without]
        for job in bare:
            with about(job):
                logger.warning("The permit of %r is gone: its key may run once too often.", job)
        kept = [job for job in written if job.row["_id"] not in gone | without]
        self._holdings.renew(kept, known_at)
        self._holdings.drop(lost)
        self._attempts.lose(lost)
        return lost + bare
