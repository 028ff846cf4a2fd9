"""How many limited jobs the next claim asks for ahead."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.worker.appetite import Appetite
from flask_henri_jobs.worker.pace import LIMITED_AHEAD_SECONDS

LIMITS = {
    "resize": Lane("images", 2, None),
    "convert": Lane("images", 2, None),
    "report": Lane("reports", 1, None),
}
THREADS = 4


class Threads:
    """Threads that all work, with some jobs before them."""

    def __init__(self, waiting: int) -> None:
        self.count, self.waiting, self.idle = THREADS, waiting, 0
        self.low_water = 0


class Everybody:
    """Nobody is a stranger."""

    def are_wanted(self, _row: object) -> bool:
        return True


def appetite(waiting: int = 0) -> Appetite:
    threads, strangers = t.cast(t.Any, Threads(waiting)), t.cast(t.Any, Everybody())
    return Appetite("host:1:me", QueueTurns(), LIMITS, threads, strangers)


def seen(appetite: Appetite, **seconds: float) -> Appetite:
    """Let jobs of each task have taken so long."""
    for _ in range(50):
        for name, each in seconds.items():
            appetite.note(name, each)
    return appetite


def test_no_limited_job_is_asked_for_ahead_at_first() -> None:
    """W4: as long as no job of a limited task was seen, none is claimed ahead."""
    wish = seen(appetite(), free=0.0001).wish(0)

    assert wish.ahead > 0
    assert (wish.limited_ahead, set(wish.short_groups)) == (0, set())


@pytest.mark.parametrize(
    ("convert", "groups"), [(0.001, {"images", "reports"}), (0.02, {"reports"})]
)
def test_groups_of_short_jobs(convert: float, groups: set[str]) -> None:
    """W4: a group counts as short by the longest of its tasks."""
    noted = seen(appetite(), convert=convert, resize=0.001, report=0.001)

    assert set(noted.wish(0).short_groups) == groups


@pytest.mark.parametrize("waiting", [0, 10, 1000])
def test_as_many_as_begin_soon(waiting: int) -> None:
    """W4: with those that wait already, the limited jobs are so much work as a claim takes."""
    wish = seen(appetite(waiting), resize=0.001).wish(0)

    assert wish.limited_ahead <= wish.ahead
    expected = max(0, LIMITED_AHEAD_SECONDS * THREADS / 0.001 - waiting)
    assert wish.limited_ahead == pytest.approx(expected, abs=1)
