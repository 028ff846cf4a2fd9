"""How far ahead a runner claims: short jobs by some milliseconds of work, long ones never (W4)."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ..job import Document

AHEAD_SECONDS = 0.05
"""Expected work that waits before each thread; claiming it takes a few milliseconds."""

LONGEST_AHEAD = AHEAD_SECONDS
"""Seconds that a job may be expected to take which is claimed ahead: one before each thread.

With half of that, a few slow ones among jobs of 20 ms, as a busy machine has, let all threads wait
for each claim: a sixth of the work was not done (measured).
"""

LIMITED_AHEAD_SECONDS = 0.01
"""The same of limited jobs: their permits keep others out meanwhile, as long as a claim does."""

LONGEST_LIMITED_AHEAD = LIMITED_AHEAD_SECONDS / 2

MOST_AHEAD = 200
LONGEST_WAIT = 0.1
"""Seconds after which a job that was claimed ahead, and that no thread has begun, goes back."""

CLAIM_COST = 0.005
_WEIGHT = 0.2
_LEAST_SECONDS = 20e-6


class Pace:
    """Knows how long jobs take here, by the recent ones of each task."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._mean = 2 * LONGEST_AHEAD

    def note(self, name: str, seconds: float) -> None:
        """Note how long a job of a task took."""
        before = self._seconds.get(name, seconds)
        self._seconds[name] = before + _WEIGHT * (seconds - before)
        self._mean += _WEIGHT * (seconds - self._mean)

    def of(self, name: str) -> float | None:
        """Return how long a job of a task is expected to take; None where none was seen."""
        return self._seconds.get(name)

    def work_in(self, jobs: int) -> float:
        """Return the seconds of work that so many jobs are expected to be."""
        return jobs * max(self._mean, _LEAST_SECONDS)

    @property
    def is_fast(self) -> bool:
        """Whether jobs take no longer than a claim does."""
        return self._mean < CLAIM_COST

    def jobs_in(self, seconds: float) -> int:
        """Return how many jobs so many seconds of work are expected to be; none of long ones."""
        if self._mean > LONGEST_AHEAD:
            return 0
        return min(MOST_AHEAD, int(max(seconds, 0.0) / max(self._mean, _LEAST_SECONDS)))


class Ahead:
    """Decides in their order which jobs of one claim are taken.

    :param free: How many threads are free; so many jobs are taken whatever they are.
    :param seconds: How much work is taken on top of those.
    """

    def __init__(self, pace: Pace, free: int, seconds: float) -> None:
        self._pace = pace
        self._free = free
        self._seconds = seconds

    def takes(self, row: Document) -> bool:
        """Whether a job is taken. Once one is not, none after it is: it would overtake."""
        if self._free:
            self._free -= 1
            return True
        expected = self._pace.of(row["name"])
        if expected is None or expected > LONGEST_AHEAD:
            return False
        self._seconds -= max(expected, _LEAST_SECONDS)
        return self._seconds >= 0
