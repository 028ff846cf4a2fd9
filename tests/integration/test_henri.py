"""One queue with a henri application, on documents exactly as its store writes them."""

from __future__ import annotations

import typing as t

import pytest

from henri import ORDER, Henri, indexes_of

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask
    from pymongo.database import Database

    from flask_henri_jobs import HenriJobs

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def database(jobs: HenriJobs) -> Database[Document]:
    """The database of both; our side is installed."""
    return jobs.database


@pytest.fixture
def henri(jobs: HenriJobs, database: Database[Document]) -> Henri:
    henri = Henri(database, jobs.state.store.clock.now)
    henri.install()
    return henri


@pytest.fixture
def seen(jobs: HenriJobs) -> list[t.Any]:
    """What the task ``look`` was called with."""
    seen: list[t.Any] = []

    @jobs.task(name="look", backoff={"base": "1ms"})
    def look(*, user_id: int | None = None, fail: bool = False) -> None:
        seen.append(user_id)
        if fail:
            raise ValueError("no")

    @jobs.task(name="first")
    def first(value: t.Any) -> None:
        seen.append(value)

    return seen


def test_its_rows_are_performed(jobs: HenriJobs, henri: Henri, seen: list[t.Any]) -> None:
    """Section 3: a row as henri writes it, with doubles and a UUIDv4, is performed by us."""
    ids = [
        henri.insert("look", {"user_id": 7}),
        henri.insert("look"),
        henri.insert("first", [1, "two"]),
    ]

    jobs.run_worker(once=True)

    assert sorted(map(repr, seen)) == sorted(["7", "None", "[1, 'two']"])
    for one in ids:
        job = jobs.get(one)
        assert job is not None
        assert (job.state, job.attempts, job.history) == ("done", 1, [])
        assert job.created_at.tzinfo is not None


def test_its_failing_rows_are_retried_and_buried(
    jobs: HenriJobs, henri: Henri, seen: list[t.Any]
) -> None:
    """Q5: a henri job that fails here gains attempts and history, and dies with its last."""
    one = henri.insert("look", {"fail": True}, max_attempts=2)

    while (job := jobs.get(one)) and job.state != "dead":
        jobs.run_worker(once=True)

    assert job is not None
    assert [entry["attempt"] for entry in job.history] == [1, 2]
    assert job.dead_reason == "failed"


def test_our_rows_are_claimed_in_its_order(jobs: HenriJobs, henri: Henri) -> None:
    """Q2: a henri runner takes our jobs by its own filter, in the order that we would."""
    enqueued = [
        jobs.enqueue("theirs", {"n": n}, priority=n % 3, wait=0 if n % 2 else "1ms")
        for n in range(12)
    ]
    jobs.enqueue("theirs", wait="1h")
    expected = sorted(enqueued, key=lambda job: (job.priority, job.run_at, job.id))
    while jobs.state.store.clock.now() <= max(job.row["run_at"] for job in enqueued):
        pass

    claimed = henri.claim(20, name={"$in": ["theirs"]})

    assert [row["_id"] for row in claimed] == [job.id for job in expected]
    assert {row["attempts"] for row in claimed} == {1}
    assert all(henri.done(row) for row in claimed)
    assert {job.refresh().state for job in enqueued} == {"done"}


def test_both_sides_never_take_one_job(jobs: HenriJobs, henri: Henri, seen: list[t.Any]) -> None:
    """Q1: what a henri runner has claimed is not performed here."""
    one = henri.insert("look", {"user_id": 7})
    (claimed,) = henri.claim()

    jobs.run_worker(once=True)

    assert seen == []
    assert henri.done(claimed)
    assert claimed["_id"] == one


def test_permits_exclude_each_other(jobs: HenriJobs, henri: Henri) -> None:
    """L3: a slot that henri holds is not taken by us, and one of ours not by henri."""
    taken: list[int | None] = []

    @jobs.task(name="limited", concurrency={"limit": 1, "group": "imports", "key": "account"})
    def limited(account: str) -> None:
        taken.append(henri.take_slot("imports:a", 1))

    slot = henri.take_slot("imports:a", 1)
    job = limited.delay("a")
    jobs.run_worker(once=True)
    assert (slot, job.refresh().state) == (0, "pending")

    assert henri.release_slot("imports:a", 0)
    jobs.run_worker(once=True)

    assert job.refresh().state == "done"
    assert taken == [None]
    assert henri.take_slot("imports:a", 1) == 0


def test_batch_counts_add_up(jobs: HenriJobs, henri: Henri, seen: list[t.Any]) -> None:
    """B1: a member that henri performed and one of ours are counted into one batch."""
    with jobs.batch(callback="look") as batch:
        batch.add(jobs.tasks["look"], user_id=1)
        batch.add(jobs.tasks["look"], user_id=2)
    (row,) = henri.claim(batch_id=batch.id)
    assert henri.done(row)
    counted = henri.advance_batch(row)
    assert counted is not None
    assert (counted["done"], counted["finished_at"]) == (1, None)

    jobs.run_worker(once=True)

    done = batch.refresh()
    assert (done.total, done.done, done.failed) == (2, 2, 0)
    assert done.finished_at is not None


def test_schedules_move_on_by_either_side(jobs: HenriJobs, henri: Henri) -> None:
    """S1: whichever side moves a schedule on, the other does not fire that slot again."""
    henri.schedules.insert_one(
        {
            "_id": "theirs",
            "job": "look",
            "spec": "every:60000",
            "next_run_at": 60_000.0,
            "last_run_at": None,
            "token": None,
            "created_at": 1.0,
            "updated_at": 1.0,
        }
    )
    schedules = jobs.state.store.schedules
    row = schedules.find("theirs")
    assert row is not None
    assert schedules.advance(row, next_run_at=120_000, token="ours", ran=True)
    assert not henri.advance_schedule(
        "theirs", due=60_000.0, following=120_000.0, spec="every:60000"
    )

    assert henri.advance_schedule("theirs", due=120_000, following=180_000.0, spec="every:60000")

    assert not schedules.advance(
        {**row, "next_run_at": 120_000}, next_run_at=180_000, token="ours", ran=True
    )


def test_a_recovery_of_henri_drops_our_outcome(jobs: HenriJobs, henri: Henri, app: Flask) -> None:
    """Q3: an attempt that a henri runner gave up on writes nothing."""

    @jobs.task(name="slow")
    def slow() -> None:
        # A henri runner whose clock is an hour ahead thinks that we have stopped answering.
        assert henri.recover(-3_600_000)
        henri.claim(name="slow")

    job = slow.delay()
    jobs.run_worker(once=True)

    job.refresh()
    assert (job.state, job.claimed_by, job.attempts) == ("running", henri.runner, 2)


def test_indexes_live_side_by_side(
    jobs: HenriJobs, henri: Henri, database: Database[Document]
) -> None:
    """Section 3, B4: after ten alternations of both installs every index is as it was."""
    jobs.install()
    collections = [henri.jobs, henri.limits, henri.batches]
    before = [indexes_of(collection) for collection in collections]

    for _ in range(10):
        henri.install()
        assert jobs.install() == []

    assert [indexes_of(collection) for collection in collections] == before
    names = set(before[0])
    assert {"henri_jobs_claim", "henri_jobs_unique", "fhj_claim", "fhj_recent"} <= names


def test_claims_beside_both_sets_of_indexes(
    jobs: HenriJobs, henri: Henri, explained: Callable[[Document], list[str]]
) -> None:
    """Section 3: our claim sorts nothing beside henri's indexes, and henri's what it did alone."""
    jobs.install()
    henri.jobs.insert_many([{**_waiting(n), "_id": f"{n:05}"} for n in range(2000)], ordered=False)
    due = {"state": "pending", "queue": "default", "run_at": {"$lte": henri.now + 10_000}}
    ours = {"find": henri.jobs.name, "filter": {**due, "concurrency_key": None}, "limit": 50}

    hinted = explained({**ours, "sort": dict(ORDER), "hint": "fhj_claim"})
    theirs = explained({"find": henri.jobs.name, "filter": due, "sort": dict(ORDER), "limit": 1})

    assert not {"SORT", "COLLSCAN"} & set(hinted)
    assert "COLLSCAN" not in theirs


@pytest.fixture
def explained(database: Database[Document]) -> Callable[[Document], list[str]]:
    def explained(command: Document) -> list[str]:
        plan = database.command("explain", command, verbosity="queryPlanner")
        return list(_stages(plan["queryPlanner"]["winningPlan"]))

    return explained


def _stages(plan: t.Any) -> t.Iterator[str]:
    if isinstance(plan, dict):
        if "stage" in plan:
            yield plan["stage"]
        for part in plan.values():
            yield from _stages(part)
    elif isinstance(plan, list):
        for part in plan:
            yield from _stages(part)


def _waiting(number: int) -> Document:
    return {
        "name": "look",
        "queue": "default",
        "state": "pending",
        "priority": 0,
        "run_at": 1_000.0 + number,
        "attempts": 0,
        "max_attempts": 3,
        "args": "null",
    }
