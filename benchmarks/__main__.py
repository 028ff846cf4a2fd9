"""``python -m benchmarks``: print each speed, that of what it is measured by, and their ratio.

Figures differ between machines and hours; ratios of one run hardly do. Each is the median of
three, and the two sides take turns, so that a busy minute meets both.
"""

from __future__ import annotations

import statistics
import sys
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mongod import replica_set

from . import drain, enqueue, limits

ROUNDS = 3

Speed: t.TypeAlias = t.Callable[[str], float]
"""Runs one side on a server, by its URI, in a database of its own. Returns jobs a second."""

MEASURED: list[tuple[str, Speed, Speed]] = [
    ("delay() / insert_one", enqueue.delay, enqueue.insert_one),
    ("delay_many / insert_many", enqueue.delay_many, enqueue.insert_many),
    ("worker, 4 threads / raw loop, 2 processes", drain.worker, drain.raw),
    ("100,000 jobs of 1,000 keys / unlimited", limits.by_keys, limits.unlimited),
    ("behind 50,000 jobs of a full key / none", limits.beside_a_full_key, limits.beside_nothing),
]


def main() -> None:
    """Measure everything on a private replica set of one."""
    print(f"{'jobs a second, median of 3':42} {'first':>8} {'second':>8} {'ratio':>6}")
    with replica_set() as deployment:
        for name, measured, by in MEASURED:
            rounds = [(measured(deployment.uri), by(deployment.uri)) for _ in range(ROUNDS)]
            speed, bound = (statistics.median(side) for side in zip(*rounds, strict=True))
            print(f"{name:42} {speed:8,.0f} {bound:8,.0f} {speed / bound:6.2f}", flush=True)


if __name__ == "__main__":
    main()
