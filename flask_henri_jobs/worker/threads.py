"""The executing threads, and the jobs that wait before them."""

from __future__ import annotations

import math
import queue
import threading
import time
import typing as t

from .loop import Rounds

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from ..job import Job


class Threads:
    """Some threads that perform jobs, one each at a time.

    :param perform: Called with a job in one of the threads. What it raises is logged. With False it
        says that the thread was given up meanwhile, and ends it.
    :param on_idle: Called when few jobs wait, or a thread has nothing more to do.
    """

    def __init__(
        self, count: int, perform: Callable[[Job], bool | None], on_idle: Callable[[], None]
    ) -> None:
        self.count = count
        self._do = perform
        self._on_idle = on_idle
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._outstanding = 0
        self.low_water = 0
        """So few jobs wait when ``on_idle`` is called; 0 calls it when none does."""
        self.given_up = 0
        """How many threads were given up with their jobs."""
        self._threads = [self._new_thread(number) for number in range(1, count + 1)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def idle(self) -> int:
        """How many threads have nothing to do, and nothing waiting for them."""
        return max(0, self.count - self._outstanding)

    @property
    def waiting(self) -> int:
        """How many jobs no thread has begun."""
        return self._waiting.qsize()

    @property
    def is_empty(self) -> bool:
        """Whether no job runs or waits here."""
        return self._outstanding == 0

    def perform(self, job: Job) -> None:
        """Have a thread perform the job, the next that is free."""
        with self._lock:
            self._outstanding += 1
        self._waiting.put(job)

    def take_back(self) -> list[Job]:
        """Return the jobs that no thread has begun; none of them will be."""
        taken: list[Job] = []
        while True:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return taken
            if job is not None:
                taken.append(job)
                self._ended()

    def give_up(self, ident: int, *, replace: bool) -> None:
        """Count a thread out whose job does not end, and the job with it (W7).

        :param ident: Which thread.
        :param replace: Whether another one takes its place.
        """
        self.given_up += 1
        threads = [thread for thread in self._threads if thread.ident != ident]
        if replace:
            threads.append(self._new_thread(self.count + self.given_up))
            threads[-1].start()
        else:
            self.count -= 1
        # Nobody waits for it any more.
        self._threads = threads
        self._ended()

    def stop(self, timeout: float) -> bool:
        """Let the threads end after the jobs in hand. Return whether they did in time."""
        for _ in self._threads:
            self._waiting.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        # Whatever a job comes to, the thread that was to perform it performs the next.
        rounds = Rounds("an executing thread", self._perform_next, BaseException)
        while rounds.next() == 0.0 or rounds.are_failing:
            pass

    def _perform_next(self) -> float:
        job = self._waiting.get()
        if job is None:
            return math.inf
        goes_on: bool | None = True
        try:
            goes_on = self._do(job)
        finally:
            if goes_on is not False:
                self._ended()
        return math.inf if goes_on is False else 0.0

    def _new_thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"henri-jobs-{number}", daemon=True)

    def _ended(self) -> None:
        with self._lock:
            self._outstanding -= 1
        if self._waiting.qsize() <= self.low_water:
            self._on_idle()
