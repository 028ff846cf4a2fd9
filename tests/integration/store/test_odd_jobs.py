"""Waiting jobs that some other program spoilt: they stop no other."""

from __future__ import annotations

import math
import typing as t

import pytest

from claiming import claims_on
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

Document: t.TypeAlias = dict[str, t.Any]

ODD_WAITING: dict[str, Document] = {
    "no name": {"name": None},
    "name of a list": {"name": ["mail"]},
    "name of a document": {"name": {"$gt": ""}},
    "attempts of text": {"attempts": "1"},
    "no attempts": {"attempts": None},
    "too many attempts": {"attempts": 2**63 - 1},
    "attempts of true": {"attempts": True},
    "attempts of no number": {"attempts": math.nan},
    "arguments of a number": {"args": 7},
    "arguments of true": {"args": True},
    "no priority": {"priority": None},
    "priority of no number": {"priority": math.nan},
    "priority of text": {"priority": "high"},
    "tenant of a list": {"tenant": ["acme"]},
    "queue of a document": {"queue": {"a": 1}},
}


@pytest.mark.parametrize("odd", ODD_WAITING.values(), ids=list(ODD_WAITING))
@pytest.mark.parametrize("rung", [frozenset(), frozenset({"default"})], ids=["look", "ring"])
@pytest.mark.parametrize("at_most", [1, 5])
def test_spoilt_waiting_job(
    jobs: Collection[Document],
    now: t.Callable[[], int],
    stored: t.Callable[..., Document],
    caplog: pytest.LogCaptureFixture,
    odd: Document,
    rung: frozenset[str],
    at_most: int,
) -> None:
    """W1: A job that cannot be claimed is passed by, and said so once; the next one is taken."""
    stored("a", **odd)
    stored("b")
    claims = claims_on(jobs, now)
    wish = Wish(runner="host:1:us", at_most=at_most, rung=rung, simple=["mail", "job"])

    found = [job.id for _ in range(3) for job in claims.take(wish)]

    assert found == ["b"]
    assert caplog.text.count("is passed by") <= 1


@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("priority", [math.nan, "high", None], ids=["NaN", "text", "missing"])
def test_job_without_a_place(
    jobs: Collection[Document],
    now: t.Callable[[], int],
    stored: t.Callable[..., Document],
    key: str | None,
    priority: object,
) -> None:
    """Q2: A job whose priority is none stands in the way of none, of its key and queue either."""
    for queue in ("default", "other"):
        stored(f"odd {queue}", concurrency_key=key, queue=queue)
        stored(f"job {queue}", concurrency_key=key, queue=queue)
    change = {"$set": {"priority": priority}} if priority else {"$unset": {"priority": 1}}
    jobs.update_many({"_id": {"$regex": "^odd"}}, change)
    lanes = {"job": Lane("key", 2, None)} if key else {}
    claims = claims_on(jobs, now)

    found = [
        job.id
        for _ in range(3)
        for job in claims.take(Wish(runner="host:1:us", at_most=1, lanes=lanes))
    ]

    assert sorted(found) == ["job default", "job other"]
