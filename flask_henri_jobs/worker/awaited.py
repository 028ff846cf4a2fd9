"""The jobs that somebody waits for, and telling of their end (X3)."""

from __future__ import annotations

import typing as t

from ..clock import steady_seconds
from ..job import DEAD, DONE
from ..store.waits import REMEMBERED_SECONDS

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..job import Document, Job

MOST_REMEMBERED = 10_000


class Awaited:
    """Hears who is waited for, and rings when those have ended; it does nothing otherwise.

    :param ring_ended: Wakes those who wait for jobs, by their ids.
    """

    def __init__(
        self,
        ring_ended: Callable[[list[str]], None],
        *,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._ring_ended = ring_ended
        self._steady = steady
        self._until: dict[str, float] = {}

    def heard(self, ring: Document) -> None:
        """Remember for a while a job that somebody asked for."""
        job_id = ring.get("awaited")
        if job_id is not None:
            if len(self._until) >= MOST_REMEMBERED:
                self._forget()
            self._until[job_id] = self._steady() + REMEMBERED_SECONDS

    def may_have_missed(self) -> None:
        """Do nothing: whoever waits asks again."""

    def tell(self, jobs: Iterable[Job]) -> None:
        """Wake those who wait for any of these jobs which has ended."""
        if not self._until:
            return
        ended = (job.row["_id"] for job in jobs if job.row["state"] in {DONE, DEAD})
        awaited = [job_id for job_id in ended if self._until.pop(job_id, None) is not None]
        if awaited:
            self._ring_ended(awaited)
        self._forget()

    def _forget(self) -> None:
        now = self._steady()
        # A copy: the tail's thread adds to it meanwhile.
        for job_id, until in list(self._until.items()):
            if until <= now:
                self._until.pop(job_id, None)
        if len(self._until) >= MOST_REMEMBERED:
            self._until.clear()
