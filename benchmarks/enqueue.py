"""Storing jobs, against inserting the same documents with the same write concern."""

from __future__ import annotations

import typing as t

from pymongo import WriteConcern

from .app import fresh, jobs, nothing, rate

SINGLE = 1_000
MANY = 20_000
JOURNALED_MAJORITY = WriteConcern("majority", j=True)


def delay(uri: str) -> float:
    """Store jobs one by one."""
    with fresh(uri):
        nothing.delay(0)
        return rate(SINGLE, lambda: [nothing.delay(number) for number in range(SINGLE)])


def insert_one(uri: str) -> float:
    """Insert documents of the same shape, under the same indexes, one by one."""
    with fresh(uri):
        rows = sample(SINGLE)
        collection = target()
        return rate(SINGLE, lambda: [collection.insert_one(row) for row in rows])


def delay_many(uri: str) -> float:
    """Store many jobs in one call."""
    with fresh(uri):
        nothing.delay(0)
        return rate(MANY, lambda: nothing.delay_many({"number": n} for n in range(MANY)))


def insert_many(uri: str) -> float:
    """Insert as many documents in one call."""
    with fresh(uri):
        rows = sample(MANY)
        collection = target()
        return rate(MANY, lambda: collection.insert_many(rows, ordered=False))


def sample(number: int) -> list[dict[str, t.Any]]:
    """Return documents as the queue stores them."""
    row = nothing.delay(0).row
    return [{**row, "_id": f"{row['_id']}-{at:06}"} for at in range(number)]


def target() -> t.Any:
    """Return the queue's collection, written as the queue writes it."""
    return jobs.database.get_collection("henri_jobs", write_concern=JOURNALED_MAJORITY)
