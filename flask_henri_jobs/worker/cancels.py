"""Hearing that jobs of this process were cancelled (W8)."""

from __future__ import annotations

import typing as t

from ..clock import steady_seconds
from .loop import Loop

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from ..clock import Moment
    from ..job import Document
    from ..store.leases import Leases
    from .attempts import Attempts
    from .holdings import Holdings
    from .loop import Outages

LOOK_SECONDS = 0.5
"""A ring tells at once; this makes up for one that is lost."""

SHORT_MS = 250
"""What was claimed less long ago is not looked for, so that short jobs cost nothing."""

BURST_SECONDS = 0.05
"""Where many jobs are cancelled one after the other, one look sees to so much of it."""


class Cancels:
    """Looks which of the jobs in hand are cancelled, and has them end.

    :param now: The server's time.
    """

    def __init__(
        self,
        leases: Leases,
        holdings: Holdings,
        attempts: Attempts,
        now: Callable[[], Moment],
        outages: Outages,
        *,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._leases = leases
        self._holdings = holdings
        self._attempts = attempts
        self._now = now
        self._outages = outages
        self._steady = steady
        self._is_rung = False
        self._rung_at = 0.0
        self._loop = Loop("henri-jobs-cancels", self.round)

    def start(self) -> None:
        """Start looking."""
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """End. Return whether that was done in time."""
        return self._loop.stop(timeout)

    def heard(self, ring: Document) -> None:
        """Look at once, where somebody cancelled a job."""
        if ring.get("cancelled"):
            self._is_rung = True
            self._loop.wake()

    def may_have_missed(self) -> None:
        """Do nothing: the next look is soon."""

    def round(self) -> float:
        """Have the jobs end that are cancelled. Return the seconds until the next look."""
        before = self._now() - SHORT_MS
        if self._is_rung:
            if (left := self._rung_at + BURST_SECONDS - self._steady()) > 0:
                return left
            # First: whoever rings from here on is heard by the next look.
            self._is_rung, self._rung_at = False, self._steady()
            before = self._now()
        held = [job for job in self._holdings.not_cancelled() if job.row["claimed_at"] <= before]
        with self._outages.asking():
            cancelled = self._leases.cancelled(held)
        # In this order: a thread that begins one meanwhile is told of it by the one or the other.
        self._holdings.note_cancelled(cancelled)
        self._attempts.cancel(cancelled)
        return LOOK_SECONDS
