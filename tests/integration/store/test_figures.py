"""The queue in numbers."""

from __future__ import annotations

import typing as t
from datetime import timedelta

import pymongo
import pytest

from flask_henri_jobs.errors import StoreUnavailable
from flask_henri_jobs.job import Job
from flask_henri_jobs.store import figures as figures_module
from flask_henri_jobs.store.figures import Figures, Timing

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from rows import Now, Stored


class Seconds:
    """Steady seconds that a test moves."""

    def __init__(self) -> None:
        self.passed = 100.0

    def __call__(self) -> float:
        return self.passed


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def figures(jobs: Collection[Document], now: Now, seconds: Seconds) -> Figures:
    return Figures(jobs, now, seconds)


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


def test_counts(figures: Figures, stored: Stored) -> None:
    """Every queue that has a job is counted, by state, with nothing left out."""
    for number, state in enumerate(["pending", "pending", "running", "dead", "done"]):
        stored(f"{number}", state, queue="low")
    stored("limited", queue="high", concurrency_key="imports")

    assert figures.counts() == {
        "low": {"pending": 2, "running": 1, "done": 1, "dead": 1},
        "high": {"pending": 1, "running": 0, "done": 0, "dead": 0},
    }


def test_done_is_counted_now_and_then(figures: Figures, stored: Stored, seconds: Seconds) -> None:
    """B5: what is done is counted every 10 s at most, and everything else each time."""
    stored("a", "done")
    figures.counts()
    stored("b", "done")
    stored("c", "dead")

    seconds.passed += 9
    assert figures.counts()["default"] == {"pending": 0, "running": 0, "done": 1, "dead": 1}
    seconds.passed += 1
    assert figures.counts()["default"]["done"] == 2


def test_timings(figures: Figures, stored: Stored) -> None:
    """How long jobs took is told by queue; what is not done, or not timed, does not count."""
    stored("a", "done", duration_ms=10)
    stored("b", "done", duration_ms=35.0)
    stored("c", "done", duration_ms=None)
    stored("d", "dead", duration_ms=1000)
    stored("e", "done", duration_ms=7, queue="low")

    assert figures.timings() == {
        "default": Timing(2, average=ms(22.5), shortest=ms(10), longest=ms(35)),
        "low": Timing(1, average=ms(7), shortest=ms(7), longest=ms(7)),
    }


def test_timings_of_late(
    figures: Figures, stored: Stored, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timings are those of the jobs that were done last."""
    monkeypatch.setattr(figures_module, "MOST_TIMED", 2)
    for duration in (900, 20, 30):
        stored(str(duration), "done", duration_ms=duration)
        now.advance(ms=1)

    assert figures.timings()["default"].longest == ms(30)


def test_in_front(figures: Figures, stored: Stored, now: Now) -> None:
    """Q2: What comes before a job in its queue is counted, limited work too, up to a bound."""
    here = int(now())
    job = Job(stored("m", priority=5, run_at=here - 10))
    stored("urgent", priority=1, run_at=here - 1, concurrency_key="imports")
    stored("earlier", priority=5, run_at=here - 11)
    stored("a", priority=5, run_at=here - 10)
    others: list[Document] = [
        {"priority": 1, "run_at": here + 1},
        {"priority": 5, "run_at": here - 9},
        {"priority": 6, "run_at": here - 99},
        {"priority": 1, "run_at": here - 99, "queue": "low"},
        {"priority": 1, "run_at": here - 99, "state": "running"},
    ]
    for number, other in enumerate(others):
        stored(f"z{number}", **other)

    assert [figures.in_front(job, now(), most) for most in (1, 2, 3, 9)] == [1, 2, 3, 3]


def test_oldest(figures: Figures, stored: Stored, now: Now) -> None:
    """The oldest due job counts, whatever its priority and key; what is not due does not."""
    stored("urgent", priority=-5, run_at=now() - 10)
    stored("keyed", priority=-1, run_at=now() - 20, concurrency_key="k")
    stored("starved", priority=50, run_at=now() - 5000.0, concurrency_key="k")
    stored("later", priority=-9, run_at=now() + 1)
    stored("low", queue="low", run_at=now())
    stored("future", queue="future", run_at=now() + 1)
    stored("ended", "dead", queue="ended", run_at=now() - 9999)

    assert figures.oldest(now()) == {"default": ms(5000), "low": ms(0)}


def test_waiting_tasks(figures: Figures, stored: Stored) -> None:
    """The names of waiting jobs are counted, most first."""
    for number in range(3):
        stored(f"mail-{number}")
    stored("resize", name="resize")
    stored("done", "done", name="report")

    assert list(figures.waiting_tasks().items()) == [("mail", 3), ("resize", 1)]


def test_waiting_tasks_are_bounded(figures: Figures, stored: Stored, now: Now) -> None:
    """Of more waiting jobs than are looked at those count that changed longest ago."""
    for name in ("unknown", "mail", "mail"):
        stored(f"{name}-{now.advance(ms=1)}", name=name)

    assert figures.waiting_tasks(most_examined=2) == {"unknown": 1, "mail": 1}


def test_status(figures: Figures, stored: Stored, now: Now) -> None:
    """The status has a line a queue, in the order of their names."""
    stored("a", run_at=now() - 1500)
    stored("b", "done", queue="bulk")

    assert figures.status() == {
        "queues": [
            {"queue": "bulk", "pending": 0, "running": 0, "done": 1, "dead": 0, "oldest_ms": None},
            {"queue": "default", "pending": 1, "running": 0, "done": 0, "dead": 0}
            | {"oldest_ms": 1500},
        ],
        "waiting_tasks": {"mail": 1},
    }


@pytest.mark.parametrize(
    "ask",
    [Figures.counts, Figures.timings, Figures.waiting_tasks, lambda figures: figures.oldest(1)],
    ids=["counts", "timings", "waiting_tasks", "oldest"],
)
def test_outage(
    unreachable: MongoClient[Document], now: Now, ask: Callable[[Figures], object]
) -> None:
    """A database that is away is StoreUnavailable."""
    with pytest.raises(StoreUnavailable, match="did not answer"), pymongo.timeout(0.1):
        ask(Figures(unreachable["any"]["jobs"], now))
