"""Deleting and retrying jobs."""

from __future__ import annotations

import typing as t

import pymongo
import pytest

from flask_henri_jobs.errors import InvalidFilter, JobBusy, StoreUnavailable, UnknownJob
from flask_henri_jobs.store.admin import Admin
from flask_henri_jobs.store.filters import JobFilter
from flask_henri_jobs.store.walks import STEP
from rows import row_of_state

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from rows import Now, Stored


@pytest.fixture
def admin(jobs: Collection[Document], batches: Collection[Document], now: Now) -> Admin:
    return Admin(jobs, batches, now)


def ids(admin: Admin, **query: t.Any) -> list[str]:
    return sorted(row["_id"] for row in admin.jobs.find(query))


@pytest.mark.parametrize("state", ["pending", "done", "dead"])
def test_delete(admin: Admin, stored: Stored, state: str) -> None:
    """A job that does not run is deleted, and returned as it was; then there is none."""
    row = stored("a", state)

    job = admin.delete("a")

    assert job is not None
    assert job.row == row
    assert admin.delete("a") is None


def test_delete_running(admin: Admin, stored: Stored) -> None:
    """A running job is not deleted; how to end it is said."""
    stored("a", "running")

    with pytest.raises(JobBusy, match=r"Job a is running, .* Cancel it with jobs.cancel\('a'\)"):
        admin.delete("a")
    assert ids(admin) == ["a"]


def test_delete_many(admin: Admin, stored: Stored) -> None:
    """What fits is deleted and yielded, of every state but running."""
    for state in ("pending", "running", "done", "dead"):
        stored(f"{state}-low", state, queue="low")
        stored(f"{state}-high", state, queue="high")

    deleted = sorted(job.id for job in admin.delete_many(JobFilter.read(queue="low")))

    assert deleted == ["dead-low", "done-low", "pending-low"]
    assert ids(admin, queue="low") == ["running-low"]
    assert len(ids(admin, queue="high")) == 4


@pytest.mark.parametrize("given", [{"tenant": "acme"}, {"batch": "b1"}, {"state": "done"}])
def test_delete_many_takes_steps(admin: Admin, now: Now, given: dict[str, str]) -> None:
    """More than a thousand are deleted in steps, as far as they are asked for."""
    fits = {"tenant": "acme", "batch_id": "b1"}
    rows = [row_of_state(f"{n:05}", "done", now() + n // 7, **fits) for n in range(2 * STEP + 1)]
    admin.jobs.insert_many([*rows, row_of_state("other", "dead", now(), tenant="other")])
    deleted = admin.delete_many(JobFilter.read(**given))

    assert next(deleted).id.startswith("0000")
    assert len(ids(admin, state="done")) == STEP + 1
    assert len(list(deleted)) == 2 * STEP
    assert ids(admin) == ["other"]


@pytest.mark.parametrize("given", [{"name": "mail"}, {"batch": "b1"}])
def test_delete_at_most(admin: Admin, stored: Stored, given: dict[str, str]) -> None:
    """No more are deleted than is said."""
    for number in range(4):
        stored(str(number), "dead" if number % 2 else "done", batch_id="b1")

    assert len(list(admin.delete_many(JobFilter.read(**given), most=3))) == 3
    assert len(ids(admin)) == 1


def test_delete_everything(admin: Admin, stored: Stored) -> None:
    """Nothing given deletes nothing, and is refused before anything is asked."""
    stored("a")
    with pytest.raises(InvalidFilter, match="Nothing says which"):
        admin.delete_many(JobFilter.read(queue=None))
    with pytest.raises(JobBusy):
        admin.delete_many(JobFilter.read(state="running"))
    with pytest.raises(InvalidFilter, match="most is 0"):
        admin.delete_many(JobFilter.read(state="pending"), most=0)
    assert ids(admin) == ["a"]


def test_retry(admin: Admin, stored: Stored, now: Now) -> None:
    """Q10: a dead job is due again, with all attempts and its history, and nothing of its end."""
    history = '[{"at":1,"attempt":5,"duration":2,"message":"no","runner":"r"}]'
    ended = {"attempts": 5, "history": history, "result": "1", "expires_at": now()}
    stored("a", "dead", cancel_requested_at=now(), tags=["x"], **ended)
    later = now.advance(ms=500)

    job = admin.retry("a")

    new = row_of_state("a", "pending", later - 500, tags=["x"], history=history)
    del new["claim_token"]
    assert job.row == new | {"run_at": later, "updated_at": later, "revision": 1}
    assert admin.jobs.find_one({"_id": "a"}) == job.row


def test_retry_done(admin: Admin, stored: Stored) -> None:
    """A done job may be retried."""
    stored("a", "done")
    assert admin.retry("a").state == "pending"


def test_retry_waiting(admin: Admin, stored: Stored, now: Now) -> None:
    """A job that waits is due at once, with the attempts it has left."""
    stored("later", run_at=now() + 60_000, attempts=2, revision=3)
    stored("due", run_at=now() - 60_000)

    job = admin.retry("later")

    assert job.row["run_at"] == now()
    assert (job.attempts, job.row["revision"]) == (2, 4)
    assert admin.retry("due").row["run_at"] == now() - 60_000


def test_retry_refused(admin: Admin, stored: Stored) -> None:
    """Q10: a running job is not retried, and an unknown one neither."""
    row = stored("a", "running")

    with pytest.raises(JobBusy, match="cannot be retried"):
        admin.retry("a")
    with pytest.raises(UnknownJob):
        admin.retry("b")
    assert admin.jobs.find_one({"_id": "a"}) == row


def test_retry_of_a_job_that_changes(admin: Admin, stored: Stored, now: Now) -> None:
    """A job that is retried and claimed by others between our read and our write is refused."""
    stored("a", "dead")

    def overtaken() -> int:
        claimed = {"state": "running", "attempts": 1, "revision": 1}
        admin.jobs.update_one({"_id": "a", "state": "dead"}, {"$set": claimed})
        return now()

    with pytest.raises(JobBusy):
        Admin(admin.jobs, admin.batches, overtaken).retry("a")
    assert ids(admin, state="running") == ["a"]


def test_retry_gives_the_count_back(admin: Admin, stored: Stored) -> None:
    """Q10: a retried member of an unfinished batch is no longer in its counts."""
    counts = {"done": 3, "failed": 1, "total": 4}
    admin.batches.insert_many(
        [
            {"_id": "open", "finished_at": None, **counts},
            {"_id": "over", "finished_at": 1, **counts},
        ]
    )
    stored("dead", "dead", batch_id="open")
    stored("done", "done", batch_id="open")
    stored("waiting", batch_id="open")
    stored("over", "dead", batch_id="over")

    for job_id in ("dead", "done", "waiting", "over"):
        admin.retry(job_id)

    left = {batch["_id"]: (batch["done"], batch["failed"]) for batch in admin.batches.find()}
    assert left == {"open": (1, 0), "over": (3, 1)}


def test_counts_stay_above_nothing(admin: Admin, stored: Stored) -> None:
    """A2: a count that was short already does not fall below zero."""
    admin.batches.insert_one({"_id": "open", "finished_at": None, "done": 1, "failed": 0})
    stored("a", "dead", batch_id="open")
    stored("b", "dead", batch_id="open")

    assert admin.retry_many(JobFilter.read(batch="open")) == 2

    batch = admin.batches.find_one({"_id": "open"})
    assert batch is not None
    assert (batch["done"], batch["failed"]) == (0, 0)


def test_retry_many(admin: Admin, stored: Stored) -> None:
    """Q5: without a reason those that failed, were lost or timed out are retried; no others."""
    for reason in ("failed", "lost", "timeout", "discarded", "cancelled", "expired"):
        stored(reason, "dead", dead_reason=reason)
    stored("henri", "dead", dead_reason=None)
    stored("done", "done")

    assert admin.retry_many(JobFilter()) == 4
    assert ids(admin, state="pending") == ["failed", "henri", "lost", "timeout"]
    assert admin.retry_many(JobFilter.read(reason="expired")) == 1
    assert admin.retry_many(JobFilter.read(state="done")) == 1
    assert ids(admin, state="pending", attempts=0, revision=1) == [
        "done",
        "expired",
        "failed",
        "henri",
        "lost",
        "timeout",
    ]


def test_retry_many_takes_steps(admin: Admin, now: Now) -> None:
    """More than a thousand are retried, each once, though many changed at one moment."""
    count = 2 * STEP + 1
    admin.jobs.insert_many([row_of_state(f"{n:05}", "dead", now()) for n in range(count)])

    assert admin.retry_many(JobFilter.read(name="mail")) == count
    assert admin.jobs.count_documents({"state": "pending", "revision": 1}) == count


def test_retry_at_most(admin: Admin, stored: Stored, now: Now) -> None:
    """Those that ended first are retried first, and no more than is said."""
    for number in range(3):
        stored(str(number), "dead")
        now.advance(ms=1)

    assert admin.retry_many(JobFilter(), most=2) == 2
    assert ids(admin, state="dead") == ["2"]


@pytest.mark.parametrize("state", ["pending", "running"])
def test_retry_many_of_what_has_not_ended(admin: Admin, state: str) -> None:
    """Only jobs that have ended are retried together."""
    with pytest.raises(InvalidFilter, match="only jobs that have ended"):
        admin.retry_many(JobFilter.read(state=state))


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.delete("a"),
        lambda admin: list(admin.delete_many(JobFilter.read(name="a"))),
        lambda admin: list(admin.delete_many(JobFilter.read(batch="a"))),
        lambda admin: admin.retry("a"),
        lambda admin: admin.retry_many(JobFilter()),
    ],
    ids=["delete", "delete_many", "delete_batch", "retry", "retry_many"],
)
def test_outage(
    unreachable: MongoClient[Document], now: Now, ask: Callable[[Admin], object]
) -> None:
    """Every question is answered or fails as StoreUnavailable."""
    database = unreachable["any"]
    # The shorter of two limits holds: the test's own, so as not to wait for the store's.
    with pytest.raises(StoreUnavailable, match="did not answer"), pymongo.timeout(0.1):
        ask(Admin(database["jobs"], database["batches"], now))
