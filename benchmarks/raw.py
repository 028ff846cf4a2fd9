"""The bound: claim batches of 50 and write their outcomes, and nothing else.

``python -m benchmarks.raw URI DATABASE`` ends when nothing is pending. It has the writes of a safe
queue (a claim by token, an outcome guarded by it, both acknowledged by a majority) and none of its
duties: no threads, no application context, no heartbeat, no decoding, no retry.
"""

from __future__ import annotations

import sys
import time
import typing as t
import uuid

from pymongo import MongoClient, UpdateOne, WriteConcern

BATCH = 50
IN_ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]


def main(uri: str, database: str) -> None:
    """Take jobs until there are none."""
    with MongoClient[dict[str, t.Any]](uri) as client:
        durable = WriteConcern("majority", j=True)
        jobs = client[database].get_collection("henri_jobs", write_concern=durable)
        while rows := claimed(jobs):
            jobs.bulk_write([outcome(row) for row in rows], ordered=False)


def claimed(jobs: t.Any) -> list[dict[str, t.Any]]:
    """Claim the next jobs. Return them; none when nothing is pending."""
    token = uuid.uuid4().hex
    while True:
        which = {"state": "pending", "queue": "default", "concurrency_key": None}
        rows = list(jobs.find({**which, "run_at": {"$lte": now()}}, sort=IN_ORDER, limit=BATCH))
        if not rows:
            return []
        ids = {"_id": {"$in": [row["_id"] for row in rows]}}
        stamp = {"state": "running", "claim_token": token, "claimed_at": now()}
        pending = {**ids, "state": "pending"}
        won = jobs.update_many(pending, {"$set": stamp, "$inc": {"attempts": 1}}).modified_count
        if won == len(rows):
            return [{**row, **stamp} for row in rows]
        if won:
            # By their ids: no index has the token, and without them this reads every job.
            return list(jobs.find({**ids, "claim_token": token}))


def outcome(row: dict[str, t.Any]) -> UpdateOne:
    """Return the write that ends a job, while its claim stands."""
    held = {"_id": row["_id"], "claim_token": row["claim_token"], "state": "running"}
    return UpdateOne(held, {"$set": {"state": "done", "finished_at": now()}})


def now() -> int:
    """Return this machine's time in milliseconds."""
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main(*sys.argv[1:])
