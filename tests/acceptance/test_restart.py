"""A worker that is killed with all its processes, and the one that is started in its place."""

from __future__ import annotations

import time
import typing as t

import pytest
from pymongo import MongoClient

import fleet_app
from mongod import wait_until
from working import fleet, kill, worker_of

if t.TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.undisturbed]

JOBS, THREADS = 500, 5
MOST_SECONDS = 15.0
"""Many times what it takes, as a busy machine has it, and little beside HENRI_JOBS_STUCK_AFTER."""


def test_killed_in_mid_drain(mongo_uri: str, database_name: str, tmp_path: Path) -> None:
    """W6: A worker is killed whole in the middle of 500 jobs of 20 ms, and started again at once:
    all are done long before anybody is given up on, and none ran again but what was in hand."""
    output = tmp_path / "output"
    with (
        fleet(mongo_uri, database_name),
        MongoClient[dict[str, t.Any]](mongo_uri) as client,
    ):
        stored = client[database_name]["henri_jobs"]
        fleet_app.brief.delay_many([{}] * JOBS)
        with worker_of(mongo_uri, database_name, output, "-t", str(THREADS)) as worker:
            wait_until(lambda: stored.count_documents({"state": "done"}) > JOBS / 3, "a third")
            kill(worker)
        in_hand = stored.distinct("_id", {"state": "running"})
        assert in_hand
        killed_at = time.monotonic()
        with worker_of(mongo_uri, database_name, output, "-t", str(THREADS)):
            wait_until(lambda: stored.count_documents({"state": "done"}) == JOBS, "all to be done")
            seconds = time.monotonic() - killed_at

        again = stored.distinct("_id", {"attempts": {"$gt": 1}})
    print(f"{len(in_hand)} in hand, {len(again)} again, all done after {seconds:.1f} s")
    assert set(again) <= set(in_hand)
    assert seconds < MOST_SECONDS
