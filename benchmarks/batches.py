"""``python -m benchmarks.batches``: build a large batch, and count in a small and a large one."""

from __future__ import annotations

import sys
import time
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from flask_henri_jobs.outcome import Done
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.store.tallies import Ended
from flask_henri_jobs.store.wish import Wish
from mongod import replica_set

from .app import fresh, jobs, nothing

if t.TYPE_CHECKING:
    from flask_henri_jobs.building import OpenBatch

LARGE, SMALL = 100_000, 1_000
GROUP, GROUPS = 50, 10


def main() -> None:
    """Measure both on a private replica set of one."""
    with replica_set() as deployment:
        for size in (SMALL, LARGE):
            with fresh(deployment.uri):
                batch, seconds = built(size)
                print(f"{size:7,} members are built in {seconds:6.2f} s", flush=True)
                outcomes, counts = counted(batch)
                print(
                    f"        a group of {GROUP} outcomes takes {outcomes:5.1f} ms,"
                    f" and its count {counts:5.1f} ms",
                    flush=True,
                )


def built(size: int) -> tuple[OpenBatch, float]:
    """Return a batch of so many members, and the seconds that it took."""
    began = time.perf_counter()
    with jobs.batch() as batch:
        batch.add_many(nothing, ({"number": number} for number in range(size)))
    return batch, time.perf_counter() - began


def counted(batch: OpenBatch) -> tuple[float, float]:
    """Return the milliseconds that writing a group of outcomes takes, and counting it."""
    store = jobs.state.store
    wish = Wish(runner="host:1:bench", queues=QueueTurns(), at_most=GROUP)
    writing = counting = 0.0
    for _ in range(GROUPS):
        members = store.claims.take(wish)
        began = time.perf_counter()
        done = Done(at=store.clock.now(), duration=1)
        store.outcomes.write_many([(member, done) for member in members])
        written = time.perf_counter()
        store.tallies.add({batch.id: Ended(done=len(members), failed=0)})
        counting += time.perf_counter() - written
        writing += written - began
    return writing / GROUPS * 1000, counting / GROUPS * 1000


if __name__ == "__main__":
    main()
