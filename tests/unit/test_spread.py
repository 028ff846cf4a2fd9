"""How runners that race for the same jobs get out of one another's way (B3)."""

from __future__ import annotations

from flask_henri_jobs.store.spread import WIDEST, Spread

ROWS = [{"_id": str(number)} for number in range(100)]


def lost(spread: Spread) -> None:
    spread.went(asked=4, won=1)


def test_who_wins_takes_the_first() -> None:
    """Q2: a runner alone takes the jobs in their order."""
    spread = Spread()
    spread.went(asked=4, won=4)
    spread.went(asked=4, won=3)

    assert spread.width == 1
    assert spread.part_of(ROWS[:4], 4) == ROWS[:4]


def test_who_loses_most_reads_more_and_takes_an_aligned_part() -> None:
    """B3: after each claim that won less than half, twice as many, up to eight times."""
    spread = Spread(chance=lambda parts: parts - 1)
    widths = []
    for _ in range(5):
        lost(spread)
        widths.append(spread.width)

    assert widths == [2, 4, 8, 8, 8]
    assert spread.part_of(ROWS[:32], 4) == ROWS[28:32]
    # What is left at the end of the backlog is a part as well.
    assert spread.part_of(ROWS[:30], 4) == ROWS[28:30]
    assert spread.part_of(ROWS[:3], 4) == ROWS[:3]


def test_comes_back_step_by_step() -> None:
    """B3: a runner that wins all of its candidates reads half as many the next time."""
    spread = Spread(width=WIDEST)
    widths = []
    for won in (4, 4, 3, 4, 4):
        spread.went(asked=4, won=won)
        widths.append(spread.width)

    assert widths == [4, 2, 2, 1, 1]


def test_a_look_that_found_nothing_changes_nothing() -> None:
    """B3: an empty queue is no race."""
    spread = Spread(width=4)
    spread.went(asked=0, won=0)

    assert spread.width == 4


def test_no_thread_is_free() -> None:
    """B3: a claim that asks for nothing takes what it is given: nothing, or what is known."""
    assert Spread(width=2).part_of(ROWS[:3], 0) == ROWS[:3]
