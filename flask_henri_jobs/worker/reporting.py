"""Storing the progress of running jobs, now and then and together (X3)."""

from __future__ import annotations

import queue
import threading
import typing as t

from .. import signals
from ..clock import steady_seconds
from .loop import Loop

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from ..clock import Moment
    from ..progress import Track
    from ..store.leases import Leases
    from .committer import Announcer
    from .loop import Outages

EVERY_SECONDS = 0.5
"""At most one write in so long, for all the jobs of this process."""

IDLE_SECONDS = 3600.0


class Reporter:
    """Writes what running jobs said last, in a thread of its own.

    A job that ends before it is its turn pays nothing: its outcome has its progress.

    :param now: The server's time.
    """

    def __init__(
        self,
        leases: Leases,
        announcer: Announcer,
        outages: Outages,
        now: Callable[[], Moment],
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._leases = leases
        self._announcer = announcer
        self._outages = outages
        self._now = now
        self._steady = steady
        self._news: queue.SimpleQueue[Track] = queue.SimpleQueue()
        self._due: dict[str, Track] = {}
        self._writing = threading.Lock()
        self._next_at = 0.0
        self._is_idle = False
        self._loop = Loop("henri-jobs-reporter", self.round)

    def start(self) -> None:
        """Start writing."""
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """End. Return whether that was done in time."""
        return self._loop.stop(timeout)

    def notice(self, track: Track) -> None:
        """Have a job's progress written; called in the task's thread."""
        self._news.put(track)
        if self._is_idle:
            self._is_idle = False
            self._loop.wake()

    def hold_back(self, track: Track) -> None:
        """Write no progress of a job from here on; one that is being written is, by then (X2)."""
        track.is_held = True
        with self._writing:
            pass

    def round(self) -> float:
        """Write what is new, if it is time. Return the seconds until there may be more to do."""
        # Before the look: what comes in after it finds the loop idle, and wakes it.
        self._is_idle = True
        if self._news.empty() and not self._due:
            return IDLE_SECONDS
        self._is_idle = False
        wait = self._next_at - self._steady()
        if wait > 0:
            return wait
        self._take_news()
        if self._due:
            with self._writing:
                self._write([track for track in self._due.values() if not track.is_held])
            self._next_at = self._steady() + EVERY_SECONDS
        return 0.0

    def _take_news(self) -> None:
        while not self._news.empty():
            track = self._news.get()
            # Where the last write met no database, the same job may be due already.
            self._due[track.job.row["_id"]] = track
        self._due = {job_id: track for job_id, track in self._due.items() if not track.has_ended}

    def _write(self, tracks: list[Track]) -> None:
        if not tracks:
            return
        now = self._now()
        taken = [(track, track.take()) for track in tracks]
        with self._outages.asking():
            stood = self._leases.report(
                [(track.job, progress.stored(now)) for track, progress in taken]
            )
        for track in tracks:
            del self._due[track.job.row["_id"]]
        for (track, progress), job in zip(taken, stood, strict=True):
            if job is not None:
                track.wrote(progress)
                self._announcer.tell(signals.job_progressed, job=job)
