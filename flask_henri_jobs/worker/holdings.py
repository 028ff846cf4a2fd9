"""The jobs that this process has claimed and whose outcome is not written yet."""

from __future__ import annotations

import math
import threading
import typing as t

from ..clock import steady_seconds

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..job import Job


class Holdings:
    """What a runner holds, and how long ago each was last known to be its own.

    :param steady: Seconds that go on while the machine is suspended (W4).
    """

    def __init__(self, steady: Callable[[], float] = steady_seconds) -> None:
        self._steady = steady
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Job, float]] = {}
        self._cancelled: set[str] = set()
        self._apart: set[str] = set()

    def now(self) -> float:
        """Return the steady seconds. Before a question, they say how old its answer is."""
        return self._steady()

    def add(self, jobs: Sequence[Job], known_at: float) -> None:
        """Note jobs that were claimed.

        :param known_at: The steady seconds just before the claim.
        """
        with self._lock:
            self._cancelled.difference_update(job.row["_id"] for job in jobs)
            self._apart.difference_update(job.row["_id"] for job in jobs)
            self._held.update((job.row["_id"], (job, known_at)) for job in jobs)

    def drop(self, jobs: Iterable[Job]) -> None:
        """Note jobs that are no longer this process's."""
        with self._lock:
            for job in jobs:
                if self._known_at(job) is not None:
                    del self._held[job.row["_id"]]
                    self._cancelled.discard(job.row["_id"])
                    self._apart.discard(job.row["_id"])

    def renew(self, jobs: Iterable[Job], known_at: float) -> None:
        """Note that the heartbeats of jobs were written; those that were dropped stay so.

        :param known_at: The steady seconds just before the write.
        """
        with self._lock:
            for job in jobs:
                if self._known_at(job) is not None:
                    self._held[job.row["_id"]] = (job, known_at)

    def doubt(self, jobs: Iterable[Job]) -> None:
        """Note that jobs may have been handed back: none is fresh until its next heartbeat."""
        self.renew(jobs, -math.inf)

    def older_than(self, seconds: float) -> list[Job]:
        """Return the jobs that were last known to be held so long ago, or longer."""
        before = self._steady() - seconds
        with self._lock:
            return [job for job, known in self._held.values() if known <= before]

    def is_fresh(self, job: Job, seconds: float) -> bool:
        """Whether a job was known to be held less than so long ago."""
        with self._lock:
            known_at = self._known_at(job)
        return known_at is not None and self._steady() - known_at < seconds

    def not_cancelled(self) -> list[Job]:
        """Return the jobs that are held, and are not known to be cancelled."""
        with self._lock:
            return [job for job, _ in self._held.values() if job.row["_id"] not in self._cancelled]

    def note_cancelled(self, jobs: Iterable[Job]) -> None:
        """Note that jobs are cancelled (W8)."""
        with self._lock:
            for job in jobs:
                if self._known_at(job) is not None:
                    self._cancelled.add(job.row["_id"])

    def is_cancelled(self, job: Job) -> bool:
        """Whether a job that is held is known to be cancelled."""
        return job.row["_id"] in self._cancelled

    def set_apart(self, job: Job, *, apart: bool = True) -> None:
        """Note whether a job is in a transaction: nothing else may write its document then (X2)."""
        change = self._apart.add if apart else self._apart.discard
        with self._lock:
            if self._known_at(job) is not None:
                change(job.row["_id"])

    def is_apart(self, job: Job) -> bool:
        """Whether a job that is held is in a transaction."""
        return job.row["_id"] in self._apart

    def _known_at(self, job: Job) -> float | None:
        """Return when this very claim was last known to stand; None where it is not held.

        The same job may have been claimed again since, by this process too, under another token.
        """
        held = self._held.get(job.row["_id"])
        is_same = held is not None and held[0].row["claim_token"] == job.row["claim_token"]
        return held[1] if held is not None and is_same else None

    def __len__(self) -> int:
        return len(self._held)
