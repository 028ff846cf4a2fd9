"""How far ahead a runner claims."""

from __future__ import annotations

import pytest

from flask_henri_jobs.worker.pace import (
    AHEAD_SECONDS,
    CLAIM_COST,
    LONGEST_AHEAD,
    MOST_AHEAD,
    Ahead,
    Pace,
)


@pytest.fixture
def pace() -> Pace:
    return Pace()


def note(pace: Pace, name: str, seconds: float, times: int = 50) -> None:
    for _ in range(times):
        pace.note(name, seconds)


def test_nothing_is_claimed_ahead_at_first(pace: Pace) -> None:
    """W4: As long as nothing is known of any job, each is taken for a long one."""
    assert pace.of("mail") is None
    assert pace.jobs_in(10) == 0
    assert not pace.is_fast


@pytest.mark.parametrize(
    ("seconds", "jobs"),
    [(0.001, 50), (0.005, 10), (0.02, 2), (0.03, 1), (0.06, 0), (1.0, 0), (0.0, 200)],
)
def test_short_jobs_are_claimed_ahead(pace: Pace, seconds: float, jobs: int) -> None:
    """W4: Short jobs are claimed ahead by 50 ms of work, up to a bound; long ones never."""
    note(pace, "mail", seconds)

    # The mean comes near to what is seen, and never quite there.
    assert pace.jobs_in(AHEAD_SECONDS) == pytest.approx(jobs, abs=1)
    assert pace.jobs_in(1000 * AHEAD_SECONDS) <= MOST_AHEAD
    assert pace.is_fast == (seconds < CLAIM_COST)


def test_a_task_that_becomes_slow(pace: Pace) -> None:
    """W4: Recent jobs count most: where they become long, none is claimed ahead after a few."""
    note(pace, "mail", 0.001)
    assert pace.jobs_in(AHEAD_SECONDS) > 40

    note(pace, "mail", 1.0, times=1)

    assert pace.jobs_in(AHEAD_SECONDS) == 0
    assert (pace.of("mail") or 0) > LONGEST_AHEAD


def test_a_slow_one_among_short_jobs(pace: Pace) -> None:
    """W4: Where one of many jobs of 20 ms takes twice as long, the next are claimed ahead still."""
    note(pace, "mail", 0.02)

    note(pace, "mail", 0.05, times=1)

    assert pace.jobs_in(8 * AHEAD_SECONDS) >= 8


def row(name: str) -> dict[str, str]:
    return {"name": name}


def test_free_threads_are_fed_whatever_comes(pace: Pace) -> None:
    """W4: For a thread that is free any job is taken, known or not, long or short."""
    note(pace, "long", 10.0)
    ahead = Ahead(pace, free=2, seconds=0.0)

    assert [ahead.takes(row(name)) for name in ("long", "unknown", "unknown")] == [
        True,
        True,
        False,
    ]


def test_only_known_and_short_jobs_go_ahead(pace: Pace) -> None:
    """W4: On top of those, jobs are taken whose task is known to be short, as long as it lasts."""
    note(pace, "short", 0.01)
    note(pace, "long", 0.1)

    assert Ahead(pace, 0, 0.05).takes(row("short"))
    assert not Ahead(pace, 0, 0.05).takes(row("long"))
    assert not Ahead(pace, 0, 0.05).takes(row("unknown"))
    ahead = Ahead(pace, free=0, seconds=0.035)
    assert [ahead.takes(row("short")) for _ in range(4)] == [True, True, True, False]
