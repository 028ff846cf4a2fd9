"""Performing limited jobs that do nothing, against unlimited ones by the same worker."""

from __future__ import annotations

import functools

from . import drain
from .app import fresh, jobs, limited, nothing

JOBS = 100_000
KEYS = 1_000
BACKLOG = 50_000


def by_keys(uri: str) -> float:
    """Perform jobs of many keys, of each of which one runs at a time."""
    rows = ({"number": number, "key": number % KEYS} for number in range(JOBS))
    return drain.by_worker(uri, JOBS, functools.partial(limited.delay_many, rows))


def unlimited(uri: str) -> float:
    """Perform as many jobs without a limit."""
    rows = ({"number": number} for number in range(JOBS))
    return drain.by_worker(uri, JOBS, functools.partial(nothing.delay_many, rows))


def beside_a_full_key(uri: str) -> float:
    """Perform limited and unlimited jobs behind a deep backlog of a key that is held elsewhere."""
    with fresh(uri) as database:
        limited.delay_many({"number": number, "key": KEYS} for number in range(BACKLOG))
        hold(limited.delay(0, KEYS).concurrency_key)
        return mixed(uri, database)


def beside_nothing(uri: str) -> float:
    """Perform the same jobs with nothing in front of them."""
    with fresh(uri) as database:
        return mixed(uri, database)


def mixed(uri: str, database: str) -> float:
    """Store as many limited jobs as unlimited ones, and return how many are performed a second."""
    half = drain.JOBS // 2
    limited.delay_many({"number": number, "key": number % KEYS} for number in range(half))
    nothing.delay_many({"number": number} for number in range(half))
    return drain.drained([drain.worker_command(uri, database)], drain.JOBS)


def hold(key: str | None) -> None:
    """Take the one permit of a key, as a runner elsewhere does."""
    assert key is not None
    permits = jobs.state.store.permits
    permits.take([(key, 0, "elsewhere")], runner="elsewhere:1:bench", token="elsewhere")
