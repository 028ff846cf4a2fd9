"""Deleting what has been kept long enough."""

from __future__ import annotations

import typing as t

import pymongo
import pytest

from flask_henri_jobs.errors import InvalidFilter, StoreUnavailable
from flask_henri_jobs.store import pruning as pruning_module
from flask_henri_jobs.store.pruning import OWN_KEPT, Pruning

if t.TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from rows import Now, Stored


@pytest.fixture
def pruning(jobs: Collection[Document], batches: Collection[Document], now: Now) -> Pruning:
    return Pruning(jobs, batches, jobs.database["henri_jobs_schedules"], now)


def ids(pruning: Pruning) -> list[str]:
    return sorted(row["_id"] for row in pruning.jobs.find())


@pytest.mark.parametrize("state", ["done", "dead"])
def test_only_what_is_old(pruning: Pruning, stored: Stored, now: Now, state: str) -> None:
    """Q12: what ended before the moment is deleted, in that state only."""
    old = {name: stored(f"old-{name}", name) for name in ("pending", "running", "done", "dead")}
    moment = now.advance(ms=10)
    stored("new", state)

    assert pruning.prune(state, moment) == 1
    assert ids(pruning) == sorted(["new", *(f"old-{name}" for name in old if name != state)])


def test_in_steps(pruning: Pruning, stored: Stored, now: Now) -> None:
    """A call deletes no more than its limit, the oldest first, and the last one says 0."""
    for number in range(5):
        stored(str(number), "done")
        now.advance(ms=1)

    assert pruning.prune("done", now(), limit=2) == 2
    assert ids(pruning) == ["2", "3", "4"]
    assert [pruning.prune("done", now(), limit=2) for _ in range(3)] == [2, 1, 0]


def test_unfinished_batches(pruning: Pruning, stored: Stored, now: Now) -> None:
    """Q12: a member of a batch that has not finished stays, and goes once it has."""
    pruning.batches.insert_one({"_id": "open", "finished_at": None})
    pruning.batches.insert_one({"_id": "over", "finished_at": 1})
    stored("open", "done", batch_id="open")
    stored("over", "done", batch_id="over")
    stored("gone", "done", batch_id="deleted")
    moment = now.advance(ms=1)

    assert pruning.prune("done", moment) == 2
    assert ids(pruning) == ["open"]
    pruning.batches.update_one({"_id": "open"}, {"$set": {"finished_at": 1}})
    assert sum(pruning.prune("done", moment) for _ in range(2)) == 1


@pytest.mark.parametrize("key", ["recurring:nightly:1800000000000", "batch:b", "batch:b:failure"])
def test_jobs_of_the_queue_itself(pruning: Pruning, stored: Stored, now: Now, key: str) -> None:
    """A10: the job of a schedule's slot, and a batch's callback, stay for an hour."""
    stored("own", "done", unique_key=key)
    stored("other", "done", unique_key="order:1")
    now.advance(ms=OWN_KEPT)

    assert pruning.prune("done", now()) == 1
    assert ids(pruning) == ["own"]
    now.advance(ms=1)
    assert sum(pruning.prune("done", now()) for _ in range(2)) == 1


def test_a_slot_that_its_schedule_has_not_passed(
    pruning: Pruning, stored: Stored, now: Now
) -> None:
    """S1: the job of a slot stays until its schedule has moved on, however long that takes."""
    due = now()
    for slot in (due, due - 1):
        stored(f"slot-{slot}", "done", unique_key=f"recurring:a:b:{slot}")
    pruning.schedules.insert_one({"_id": "a:b", "next_run_at": float(due)})
    now.advance(ms=10 * OWN_KEPT)

    assert pruning.prune("done", now()) == 1
    assert ids(pruning) == [f"slot-{due}"]
    pruning.schedules.update_one({}, {"$set": {"next_run_at": due + 60_000}})
    assert sum(pruning.prune("done", now()) for _ in range(2)) == 1


def test_callback_of_an_unfinished_batch(pruning: Pruning, stored: Stored, now: Now) -> None:
    """A batch's callback stays until its batch is finished, or it would be enqueued again."""
    pruning.batches.insert_one({"_id": "b", "finished_at": None})
    stored("callback", "done", unique_key="batch:b:success")
    now.advance(ms=OWN_KEPT + 1)

    assert pruning.prune("done", now()) == 0
    pruning.batches.update_one({"_id": "b"}, {"$set": {"finished_at": 1}})
    assert pruning.prune("done", now()) == 1


def test_what_stays_holds_up_nothing(
    pruning: Pruning, stored: Stored, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many jobs that must stay are passed, a bounded number a call, and then come up again."""
    monkeypatch.setattr(pruning_module, "MOST_EXAMINED", 4)
    pruning.batches.insert_one({"_id": "open", "finished_at": None})
    for number in range(9):
        stored(f"member-{number}", "done", batch_id="open")
        now.advance(ms=1)
    stored("old", "done")
    now.advance(ms=1)

    assert [pruning.prune("done", now(), limit=2) for _ in range(3)] == [0, 0, 1]
    assert pruning.prune("done", now(), limit=2) == 0
    pruning.batches.delete_one({"_id": "open"})
    assert [pruning.prune("done", now(), limit=2) for _ in range(5)] == [2, 2, 2, 2, 1]


@pytest.mark.parametrize(("state", "limit"), [("pending", 1), ("running", 1), ("done", 0)])
def test_refused(pruning: Pruning, stored: Stored, now: Now, state: str, limit: int) -> None:
    """Only jobs that ended are pruned, and at least one at a time."""
    with pytest.raises(InvalidFilter):
        pruning.prune(state, now(), limit)


def test_outage(unreachable: MongoClient[Document], now: Now) -> None:
    """A database that is away is StoreUnavailable."""
    database = unreachable["any"]
    pruning = Pruning(database["jobs"], database["batches"], database["schedules"], now)
    with pytest.raises(StoreUnavailable, match="did not answer"), pymongo.timeout(0.1):
        pruning.prune("done", now())
