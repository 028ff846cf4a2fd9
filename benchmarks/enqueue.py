"""Storing jobs, against inserting the same documents with the same write concern."""

from __future__ import annotations

import time
import typing as t

from pymongo import WriteConcern

from .app import fresh, jobs, nothing

SINGLE, SINGLE_TURNS = 150, 8
MANY, MANY_TURNS = 20_000, 1
JOURNALED_MAJORITY = WriteConcern("majority", j=True)


def share_of_insert_one(uri: str) -> float:
    """Return the rate of ``delay`` as a share of that of ``insert_one``; both by turns."""
    with fresh(uri):
        rows, collection = sample(SINGLE * SINGLE_TURNS), target()

        def raw(turn: int) -> None:
            for row in rows[turn * SINGLE : (turn + 1) * SINGLE]:
                collection.insert_one(row)

        def ours(_turn: int) -> None:
            for number in range(SINGLE):
                nothing.delay(number)

        return share(ours, raw, SINGLE_TURNS)


def share_of_insert_many(uri: str) -> float:
    """Return the rate of ``delay_many`` as a share of that of ``insert_many``."""
    with fresh(uri):
        rows, collection = sample(MANY * MANY_TURNS), target()

        def raw(turn: int) -> None:
            collection.insert_many(rows[turn * MANY : (turn + 1) * MANY], ordered=False)

        def ours(_turn: int) -> None:
            nothing.delay_many({"number": number} for number in range(MANY))

        return share(ours, raw, MANY_TURNS)


def share(ours: t.Callable[[int], None], raw: t.Callable[[int], None], turns: int) -> float:
    """Return the time of the raw side over ours."""
    nothing.delay(0)
    spent = {ours: 0.0, raw: 0.0}
    for turn in range(turns):
        for side in (ours, raw):
            began = time.perf_counter()
            side(turn)
            spent[side] += time.perf_counter() - began
    return spent[raw] / spent[ours]


def sample(number: int) -> list[dict[str, t.Any]]:
    """Return documents as the queue stores them."""
    row = nothing.delay(0).row
    return [{**row, "_id": f"{row['_id']}-{at:06}"} for at in range(number)]


def target() -> t.Any:
    """Return the queue's collection, written as the queue writes it."""
    return jobs.database.get_collection("henri_jobs", write_concern=JOURNALED_MAJORITY)
