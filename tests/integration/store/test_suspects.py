"""Jobs that ran in a process that died, and how they are claimed."""

from __future__ import annotations

import typing as t

import pytest

from claiming import claims_on, permits_on
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store import indexes
from flask_henri_jobs.store.leases import Leases
from flask_henri_jobs.store.suspects import Suspects
from flask_henri_jobs.store.wish import Wish
from server_time import ServerTime

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from flask_henri_jobs.store.claims import Claims
    from rows import Stored

RUNNER = "host:1:runner"
WISH = Wish(runner="host:2:other", at_most=1)


@pytest.fixture
def time() -> ServerTime:
    return ServerTime()


@pytest.fixture
def leases(jobs: Collection[Document], time: ServerTime) -> Leases:
    indexes.create(jobs, Suspects.INDEXES)
    return Leases(jobs, time.clock, permits_on(jobs, time.clock))


@pytest.fixture
def claims(jobs: Collection[Document], leases: Leases, time: ServerTime) -> Claims:
    return claims_on(jobs, time.clock.now)


def test_hand_back_from(leases: Leases, stored: Stored, jobs: Collection[Document]) -> None:
    """A3: what a dead process had claimed and not begun goes back as if it had not been claimed."""
    before = stored("a", "running", attempts=2, run_at=5)
    stored("begun", "running")
    other = stored("other", "running", claimed_by="host:2:other")

    assert leases.hand_back_from(RUNNER, ["begun"]).returned == 1

    row = jobs.find_one({"_id": "a"})
    assert row is not None
    assert (row["state"], row["attempts"], row["run_at"]) == ("pending", 1, 5)
    assert row["history"] == before["history"]
    assert not row.keys() & {"claim_token", "suspect"}
    assert jobs.count_documents({"state": "running"}) == 2
    assert jobs.find_one({"_id": "other"}) == other


def test_recovered_jobs_are_suspects(leases: Leases, stored: Stored, claims: Claims) -> None:
    """W6: what a process that died had begun is claimed as a suspect, one at a time; what one that
    was stopped had begun is not."""
    for job_id in ("a", "b", "stopped"):
        stored(job_id, "running")
    leases.recover_from(RUNNER, "was killed by signal 9", ["a", "b"])
    leases.recover_from(RUNNER, "was stopped", ["stopped"], suspect=False)

    taken = [job.id for _ in range(3) for job in claims.take_suspect(WISH, ["mail"])]

    assert taken == ["a", "b"]


def test_suspects_of_unknown_tasks(leases: Leases, stored: Stored, claims: Claims) -> None:
    """Q6: a suspect whose task is not known here, or of another queue, is left to others."""
    stored("a", "running")
    leases.recover_from(RUNNER, "was killed")

    assert claims.due_suspects(QueueTurns(), ["another"]) == []
    assert [row["_id"] for row in claims.due_suspects(QueueTurns(), ["mail"])] == ["a"]


@pytest.mark.parametrize("key", ["mail", None])
def test_limited_suspect(
    leases: Leases, stored: Stored, claims: Claims, time: ServerTime, key: str | None
) -> None:
    """L2: a suspect of a limited task takes a permit first, and waits while all are held; one that
    has no key counts to the group's own bucket (L5)."""
    stored("a", "running", concurrency_key=key)
    leases.recover_from(RUNNER, "was killed")
    wish = Wish(runner="host:2:other", at_most=1, lanes={"mail": Lane("mail", 1, None)})
    leases.permits.take([("mail", 0, "b")], runner="host:3:x", token="theirs")
    assert claims.take_suspect(wish, ["mail"]) == []

    leases.permits.release_all_of("host:3:x")

    (job,) = claims.take_suspect(wish, ["mail"])
    assert job.permit == "mail#0"
    leases.permits.give_back([job])
    assert leases.permits.held() == []


def test_look_costs_nothing(
    leases: Leases, stored: Stored, claims: Claims, jobs: Collection[Document]
) -> None:
    """Section 9: a look for suspects reads none of the other jobs."""
    for number in range(100):
        stored(f"job{number}")
    stored("a", "running")
    leases.recover_from(RUNNER, "was killed")
    plan = jobs.find({"suspect": True, "state": "pending"}, hint="fhj_suspects").explain()

    assert [row["_id"] for row in claims.due_suspects(QueueTurns(), ["mail"])] == ["a"]
    stats = plan["executionStats"]
    assert stats["totalDocsExamined"] == 1
