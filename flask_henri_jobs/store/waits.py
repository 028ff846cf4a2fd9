"""Waiting for the end of a job: told by a ring, and looked for in case none comes (X3)."""

from __future__ import annotations

import contextlib
import threading
import typing as t

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..job import Document
    from .tail import Tail
    from .wakeups import Wakeups

REMEMBERED_SECONDS = 15.0
"""For how long a runner that was asked to tell of a job's end goes on to know it."""

ASKED_AGAIN_SECONDS = 5.0
"""Runners that started since were not asked, and a ring may be lost."""


class Waits:
    """The threads of this process that wait for jobs.

    Each asks, by a ring, to be told of the end of its job; whoever ends that rings back. So it
    costs nothing where nobody waits. A ring that is lost either way is made up for by looking.
    """

    def __init__(self, wakeups: Wakeups, tail: Tail) -> None:
        self._wakeups = wakeups
        self._tail = tail
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}

    @contextlib.contextmanager
    def watched(self, job_id: str) -> Iterator[Callable[[float], None]]:
        """Yield a function that sleeps for some seconds, or until the job may have ended."""
        news = threading.Event()
        self._add(job_id, news)
        try:
            self._wakeups.await_end(job_id)
            yield lambda seconds: self._sleep(job_id, news, seconds)
        finally:
            self._remove(job_id, news)

    def heard(self, ring: Document) -> None:
        """Wake those who wait for the jobs that a ring tells the end of."""
        for job_id in ring.get("ended", ()):
            for news in self._waiting.get(job_id, ()):
                news.set()

    def may_have_missed(self) -> None:
        """Have each look once."""
        for waiting in list(self._waiting.values()):
            for news in waiting:
                news.set()

    def _sleep(self, job_id: str, news: threading.Event, seconds: float) -> None:
        left = seconds
        while not news.wait(min(left, ASKED_AGAIN_SECONDS)):
            left -= ASKED_AGAIN_SECONDS
            if left <= 0:
                break
            self._wakeups.await_end(job_id)
        news.clear()

    def _add(self, job_id: str, news: threading.Event) -> None:
        with self._lock:
            is_first = not self._waiting
            # Another list, and never a changed one: the tail's thread goes through them.
            self._waiting[job_id] = [*self._waiting.get(job_id, ()), news]
        if is_first:
            self._tail.add(self)

    def _remove(self, job_id: str, news: threading.Event) -> None:
        with self._lock:
            left = [one for one in self._waiting.pop(job_id, ()) if one is not news]
            if left:
                self._waiting[job_id] = left
            if not self._waiting:
                self._tail.remove(self)
