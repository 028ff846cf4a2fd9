"""Performing limited jobs that do nothing, against unlimited ones by the same worker."""

from __future__ import annotations

from . import drain
from .app import limited, nothing

JOBS = 100_000
KEYS = 1_000


def limited_jobs(uri: str) -> float:
    """Perform jobs of many keys, of each of which one runs at a time."""
    rows = ({"number": number, "key": number % KEYS} for number in range(JOBS))
    return drain.by_worker(uri, JOBS, lambda: limited.delay_many(rows))


def unlimited_jobs(uri: str) -> float:
    """Perform as many jobs without a limit."""
    rows = ({"number": number} for number in range(JOBS))
    return drain.by_worker(uri, JOBS, lambda: nothing.delay_many(rows))
