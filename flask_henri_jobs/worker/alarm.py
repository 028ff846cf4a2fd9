"""When a runner looks for jobs again: at a ring, at the next known moment, or after a poll (W3)."""

from __future__ import annotations

import heapq
import random
import threading
import time
import typing as t

from ..clock import steady_seconds

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..clock import Moment
    from ..job import Document
    from ..queues import QueueSelection

LISTENS_SECONDS = 0.05
"""How long a runner that was woken goes on looking: longer than a burst, which rings once."""

LOOK_SECONDS = 0.01
LONGEST_WAIT_IN_VAIN = 0.05
YIELD_SECONDS = 0.002
MOST_MOMENTS = 10_000
"""Moments that are remembered, the nearest; jobs of later ones are found by polling."""

LATE_MS = 1
"""A moment is slept for so much longer: a look that is early by a fraction finds nothing."""


class Alarm:
    """Wakes a runner for what it may take, and tells it how long it may sleep.

    :param wake: Ends the runner's sleep.
    :param is_free: Whether it has a thread for a job.
    :param poll: Seconds that it sleeps at most: rings may be lost, and henri's jobs have none.
    """

    def __init__(
        self,
        queues: QueueSelection,
        wake: Callable[[], None],
        is_free: Callable[[], bool],
        now: Callable[[], Moment],
        poll: float,
        *,
        steady: Callable[[], float] = steady_seconds,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._queues = queues
        self._wake = wake
        self._is_free = is_free
        self._now = now
        self._poll = poll
        self._steady = steady
        self._sleep = sleep
        self._chance = chance
        self._rung: set[str] = set()
        self._moments: list[tuple[Moment, str]] = []
        self._lock = threading.Lock()
        # Rings may have been left out for a burst that began before this runner.
        self._listens_until = steady() + LISTENS_SECONDS
        self._looked_at = 0.0
        self.is_last = False
        """Whether the look that was answered for is the last of those that follow a ring."""
        self._in_vain = 0

    def heard(self, ring: Document) -> None:
        """Wake the runner for a ring that concerns it; remember a moment that is yet to come."""
        queue, run_at = ring.get("queue"), ring.get("run_at")
        if queue is None or run_at is None or not self._queues.covers(queue):
            return
        if run_at > self._now():
            self.expect(int(run_at), queue)
            return
        # Also where no thread is free: what the same burst rang for may come when one is.
        now = self._steady()
        was_asleep = now >= self._listens_until
        self._listens_until = now + LISTENS_SECONDS
        with self._lock:
            self._rung.add(queue)
        if self._is_free():
            self._wake()
            if was_asleep:
                # The runner's thread gets the interpreter at once, and need not wait for this one.
                time.sleep(YIELD_SECONDS)

    def may_have_missed(self) -> None:
        """Have the runner look once, whatever the reason."""
        self._listens_until = self._steady() + LISTENS_SECONDS
        self._wake()

    def expect(self, moment: Moment, queue: str) -> None:
        """Have the runner look at a moment at which a job of a queue falls due."""
        one = (moment, queue)
        with self._lock:
            if one in self._moments[:1]:
                return
            heapq.heappush(self._moments, one)
            if len(self._moments) > MOST_MOMENTS:
                self._moments = heapq.nsmallest(MOST_MOMENTS // 2, self._moments)
            is_next = self._moments[0] == one
        if is_next:
            # It may sleep for longer than that.
            self._wake()

    def expect_all(self, rows: Iterable[Mapping[str, t.Any]]) -> None:
        """Have the runner look when each of these jobs falls due, by their rows."""
        for row in rows:
            self.expect(row["run_at"], row["queue"])

    def answer(self) -> frozenset[str]:
        """Return the queues that were rung for, or have a job due, since the last look.

        Where several runners are woken for one job, one of them has it. Those that were woken in
        vain wait for a while next time, at random, so that not all of them ask at once.
        """
        looked_before, self._looked_at = self._looked_at, self._steady()
        self.is_last = looked_before < self._listens_until <= self._looked_at
        now = self._now()
        with self._lock:
            rung, self._rung = self._rung, set()
            is_due = False
            while self._moments and self._moments[0][0] <= now:
                is_due = True
                rung.add(heapq.heappop(self._moments)[1])
        if is_due:
            # What falls due a little later was not rung for on its own.
            self._listens_until = max(self._listens_until, self._steady() + LISTENS_SECONDS)
        if rung and self._in_vain:
            longest = min(2**self._in_vain / 1000, LONGEST_WAIT_IN_VAIN)
            self._sleep(self._chance() * longest)
        return frozenset(rung)

    def looked(self, rung: frozenset[str], *, found: bool) -> None:
        """Note what came of a look."""
        if found:
            self._in_vain = 0
        elif rung:
            self._in_vain = min(self._in_vain + 1, 6)

    def seconds(self) -> float:
        """Return how long the runner may sleep."""
        if self._is_listening:
            return min(LOOK_SECONDS, self._poll)
        with self._lock:
            nearest = self._moments[0][0] if self._moments else None
        if nearest is None:
            return self._poll
        return min(self._poll, max(0.0, (nearest + LATE_MS - self._now()) / 1000))

    @property
    def _is_listening(self) -> bool:
        """Whether it looks again soon. The last of the looks begins when the time is over: one that
        began before may not have seen what is stored by now, however late its answer came."""
        began_in_time = self._looked_at < self._listens_until and self._is_free()
        return began_in_time or self._steady() < self._listens_until
