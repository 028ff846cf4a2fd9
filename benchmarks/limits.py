"""Performing limited jobs that do nothing, against unlimited ones by the same worker."""

from __future__ import annotations

import typing as t

from . import drain
from .app import fresh, jobs, limited, nothing
from .processes import worker

if t.TYPE_CHECKING:
    from collections.abc import Callable

JOBS = 100_000
FEW = 10_000
KEYS = 1_000
BACKLOG = 50_000
FULL_KEY = "full"


def share_of_unlimited(uri: str) -> float:
    """Return the rate of jobs of many keys, one of each at a time, as a share of unlimited."""
    return drained(uri, store_limited, JOBS) / drained(uri, store_unlimited, JOBS)


def share_beside_a_full_key(uri: str) -> float:
    """Return the rate behind a deep backlog of a key that is held elsewhere, as a share."""
    return drained(uri, store_behind_a_full_key, FEW) / drained(uri, store_mixed, FEW)


def drained(uri: str, store: Callable[[], object], count: int) -> float:
    """Have so many jobs stored that can run, and return how many a second a worker performs."""
    with fresh(uri) as database:
        store()
        with worker(uri, database, "--threads", "4"):
            drain.await_done(count)
        return count / drain.seconds_of({"state": "done"}, count)


def store_limited() -> None:
    """Store jobs of many keys, of each of which one runs at a time."""
    limited.delay_many({"number": number, "key": str(number % KEYS)} for number in range(JOBS))


def store_unlimited() -> None:
    """Store as many jobs without a limit."""
    nothing.delay_many({"number": number} for number in range(JOBS))


def store_mixed() -> None:
    """Store as many limited jobs as unlimited ones."""
    half = FEW // 2
    limited.delay_many({"number": number, "key": str(number % KEYS)} for number in range(half))
    nothing.delay_many({"number": number} for number in range(half))


def store_behind_a_full_key() -> None:
    """Store the same behind many jobs of a key whose one permit a runner elsewhere has."""
    limited.delay_many({"number": number, "key": FULL_KEY} for number in range(BACKLOG))
    key = limited.delay(0, FULL_KEY).concurrency_key
    assert key is not None
    permits = jobs.state.store.permits
    permits.take([(key, 0, "elsewhere")], runner="elsewhere:1:bench", token="elsewhere")
    store_mixed()
