"""The order in which threads begin the jobs that they were given (Q2)."""

from __future__ import annotations

import threading
import typing as t
from collections import OrderedDict

if t.TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE = 0.05
"""Seconds for which a job waits for those before it."""


class Turnstile:
    """Lets jobs begin in the order in which they were expected.

    Between a thread's taking of a job and its call of the task the other threads may perform many,
    and the shares of weighted queues would be those of some other order. A job that is held up for
    long before it begins is passed by, and holds nobody up again.

    :param is_open: Whether everybody passes at any time.
    """

    def __init__(self, *, is_open: bool = False, patience: float = PATIENCE) -> None:
        self._is_open = is_open
        self._patience = patience
        self._line: OrderedDict[str, None] = OrderedDict()
        self._moved = threading.Condition()

    def expect(self, job_id: str) -> None:
        """Put a job at the end of the line."""
        if not self._is_open:
            with self._moved:
                self._line[job_id] = None

    def begin(self, job_id: str) -> None:
        """Return when it is a job's turn, and let the next begin."""
        if self._is_open:
            return
        with self._moved:
            if not self._moved.wait_for(lambda: self._is_next(job_id), self._patience):
                while not self._is_next(job_id):
                    self._line.popitem(last=False)
            self._drop(job_id)

    def leave(self, job_ids: Iterable[str]) -> None:
        """Expect some jobs no longer: they ended, or were handed back."""
        if not self._is_open:
            with self._moved:
                for job_id in job_ids:
                    self._drop(job_id)

    def _is_next(self, job_id: str) -> bool:
        return job_id not in self._line or next(iter(self._line)) == job_id

    def _drop(self, job_id: str) -> None:
        if job_id in self._line:
            del self._line[job_id]
            self._moved.notify_all()
