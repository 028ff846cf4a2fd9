"""Jobs that end in a transaction, against the same transactions without a queue.

``python -m benchmarks.transactions URI DATABASE`` writes what the jobs' tasks and their outcomes
write, in as many threads, and nothing else: no claim, no heartbeat, no decoding, no signals.
"""

from __future__ import annotations

import sys
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

from pymongo import MongoClient, WriteConcern

from .app import EFFECTS, fresh, jobs, transacting
from .drain import await_done, seconds_of
from .processes import running, worker

COUNT = 2_000
THREADS = 4
DURABLE = WriteConcern("majority", j=True)


def share_of_raw_transactions(uri: str) -> float:
    """Return the rate of such jobs as a share of that of their transactions alone."""
    return drained(uri) / raw(uri)


def drained(uri: str) -> float:
    """Return how many such jobs a second one process performs."""
    with fresh(uri) as database:
        store()
        with worker(uri, database, "--threads", str(THREADS)):
            await_done(COUNT)
            assert jobs.database[EFFECTS].count_documents({}) == COUNT
            return COUNT / seconds_of({"state": "done"}, COUNT)


def raw(uri: str) -> float:
    """Return how many of the transactions a second one process commits."""
    with fresh(uri) as database:
        store()
        command = [sys.executable, "-m", "benchmarks.transactions", uri, database]
        with running(command) as process:
            process.finish()
        assert jobs.database[EFFECTS].count_documents({}) == COUNT
        return COUNT / seconds_of({"state": "done"}, COUNT)


def store() -> None:
    """Store the jobs, and make what they write to: transactions that make it conflict."""
    jobs.database.create_collection(EFFECTS)
    transacting.delay_many({"number": number} for number in range(COUNT))


def main(uri: str, database: str) -> None:
    """Have each document end in a transaction, with an effect beside it."""
    with MongoClient[dict[str, t.Any]](uri) as client, ThreadPoolExecutor(THREADS) as threads:
        rows = [row["_id"] for row in client[database]["henri_jobs"].find({}, ["_id"])]
        for _ in threads.map(lambda one: end(client, database, one), rows):
            pass


def end(client: MongoClient[dict[str, t.Any]], database: str, job_id: str) -> None:
    """Write an effect and the end of a document together."""
    began = now()
    with client.start_session() as session, session.start_transaction(write_concern=DURABLE):
        client[database][EFFECTS].insert_one({"number": job_id}, session=session)
        client[database]["henri_jobs"].update_one(
            {"_id": job_id},
            {"$set": {"state": "done", "claimed_at": began, "finished_at": now()}},
            session=session,
        )


def now() -> int:
    """Return this machine's time in milliseconds."""
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main(*sys.argv[1:])
