"""How many jobs a runner takes at once, and which (W1, W4)."""

from __future__ import annotations

import time
import typing as t

from ..clock import steady_seconds
from ..store.wish import Wish
from .pace import (
    AHEAD_SECONDS,
    LIMITED_AHEAD_SECONDS,
    LONGEST_LIMITED_AHEAD,
    LONGEST_WAIT,
    Ahead,
    Pace,
)

if t.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..job import Document, Job
    from ..queues import QueueTurns
    from ..rate import Lane
    from .strangers import Strangers
    from .threads import Threads

GATHERING_SECONDS = 0.001
"""How long a claim of limited jobs waits for the other threads, where jobs are that short."""


class Appetite:
    """Says what the next claim asks for, by what the threads have to do and how long jobs take.

    :param runner: The runner's id.
    """

    def __init__(
        self,
        runner: str,
        queues: QueueTurns,
        lanes: Mapping[str, Lane],
        threads: Threads,
        strangers: Strangers,
    ) -> None:
        self._runner = runner
        self._queues = queues
        self._lanes = lanes
        self._threads = threads
        self._strangers = strangers
        self._pace = Pace()
        self._fed_at = 0.0
        self._took_limited = False
        self._took_ahead = False

    def note(self, name: str, seconds: float) -> None:
        """Note how long a job of a task took."""
        self._pace.note(name, seconds)

    def took(self, jobs: Sequence[Job], free: int) -> None:
        """Note what a claim brought.

        :param free: How many threads were free.
        """
        self._fed_at = steady_seconds()
        self._took_ahead = len(jobs) > free
        self._took_limited = any(job.permit for job in jobs)
        self._threads.low_water = self._threads.waiting // 2

    def free_threads(self) -> int:
        """Return how many threads are free, those included that are about to be."""
        free = self._threads.idle
        if self._took_limited and 0 < free < self._threads.count and self._pace.is_fast:
            # Where few keys are free none is claimed ahead, and a claim of one costs as of many.
            time.sleep(GATHERING_SECONDS)
            free = self._threads.idle
        return free

    @property
    def runs_dry(self) -> bool:
        """Whether jobs wait that will soon have been begun, so that more are claimed meanwhile."""
        waiting = self._threads.waiting
        return (
            self._took_ahead
            and waiting > 0
            and 2 * self._pace.work_in(waiting) < self._ahead_seconds
        )

    @property
    def has_too_many(self) -> bool:
        """Whether jobs wait that were claimed ahead and cannot begin soon."""
        return self._threads.waiting > 0 and steady_seconds() - self._fed_at > LONGEST_WAIT

    def wish(self, free: int, rung: frozenset[str] = frozenset()) -> Wish:
        """Return what a claim asks for: a job for each free thread, and short ones ahead.

        :param rung: The queues that the runner was woken for.
        """
        waits = self._pace.work_in(self._threads.waiting)
        seconds = self._ahead_seconds - waits
        limited_seconds = LIMITED_AHEAD_SECONDS * self._threads.count - waits
        ahead, short_groups = Ahead(self._pace, free, seconds), self._short_groups()
        return Wish(
            runner=self._runner,
            queues=self._queues,
            at_most=free,
            ahead=self._pace.jobs_in(seconds),
            limited_ahead=self._pace.jobs_in(limited_seconds) if short_groups else 0,
            short_groups=short_groups,
            takes=ahead.takes,
            wanted=self._is_wanted,
            lanes=self._lanes,
            rung=rung,
            simple=self._simple_tasks() if rung and free == self._threads.count else (),
        )

    def _simple_tasks(self) -> list[str]:
        return [name for name in self._strangers.known if name not in self._lanes]

    @property
    def _ahead_seconds(self) -> float:
        return AHEAD_SECONDS * self._threads.count

    def _short_groups(self) -> set[str]:
        """The groups of which jobs were seen, and short ones only.

        Those of rates are not among them: of a start that is free, others would wait for a thread.
        """
        longest: dict[str, float] = {}
        for name, lane in self._lanes.items():
            seconds = None if lane.rate else self._pace.of(name)
            if seconds is not None:
                longest[lane.group] = max(seconds, longest.get(lane.group, 0.0))
        return {group for group, seconds in longest.items() if seconds <= LONGEST_LIMITED_AHEAD}

    def _is_wanted(self, row: Document) -> bool:
        # A suspect is performed alone, and never beside what this claim brings (W6).
        return not row.get("suspect") and self._strangers.are_wanted(row)
