"""Waiting jobs that some other program spoilt: they stop no other."""

from __future__ import annotations

import math
import typing as t

import pytest

from claiming import claims_on
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
    "queue of a document": {"queue": {"a": 1}},
}


@pytest.mark.parametrize("odd", ODD_WAITING.values(), ids=list(ODD_WAITING))
@pytest.mark.parametrize("rung", [frozenset(), frozenset({"default"})], ids=["look", "ring"])
def test_spoilt_waiting_job(
    jobs: Collection[Document],
    now: t.Callable[[], int],
    stored: t.Callable[..., Document],
    caplog: pytest.LogCaptureFixture,
    odd: Document,
    rung: frozenset[str],
) -> None:
    """W1: A job that cannot be claimed is passed by, and said so once; the next one is taken."""
    stored("a", **odd)
    stored("b")
    claims = claims_on(jobs, now)
    wish = Wish(runner="host:1:us", at_most=5, rung=rung, simple=["mail", "job"])

    found = [job.id for _ in range(3) for job in claims.take(wish)]

    assert found == ["b"]
    assert caplog.text.count("is passed by") <= 1
