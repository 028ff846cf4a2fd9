"""``flask jobs check``: what crashes and deploys leave in the database, found and mended."""

from __future__ import annotations

import time
import typing as t

import pytest

import shop
from flask_henri_jobs.cli.queue_findings import MOST_APART_MS
from flask_henri_jobs.store.connection import Connection, client_of

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document, Job
    from flask_henri_jobs.store import Store

    from .conftest import Answer, Enqueue, Run

LONG_AGO_MS = 3_600_000
GONE = "host:7:0a1b2c3d"


@pytest.fixture
def store(app: Flask, run: Run) -> Iterator[Store]:
    run("install")
    with app.app_context():
        yield shop.jobs.state.store


@pytest.fixture
def database(rows: Collection[Document]) -> Database[Document]:
    return rows.database


@pytest.fixture
def long_ago(store: Store) -> int:
    return store.clock.now() - LONG_AGO_MS


@pytest.fixture
def check(database: Database[Document], answer: Answer) -> t.Callable[..., list[str]]:
    """Check, and return what was found about what: without ``--repair`` nothing changes."""

    def about(*options: str, code: int = 1) -> list[str]:
        before = everything(database)
        found = answer("check", *options, code=code)
        assert options or everything(database) == before
        return [one["about"] for one in found if not one["mended"]]

    return about


def everything(database: Database[Document]) -> dict[str, list[Document]]:
    return {name: list(database[name].find()) for name in database.list_collection_names()}


def old_permit(when: int, job_id: str, token: str, slot: int = 0) -> Document:
    permit = {"_id": f"shop#{slot}", "limit_key": "shop", "slot": slot, "runner": GONE}
    return permit | {"job_id": job_id, "taken_at": when, "heartbeat_at": when, "token": token}


def running(rows: Collection[Document], job: Job, beat: int, token: str = "token") -> None:
    claim = {"state": "running", "claimed_by": GONE, "claim_token": token, "attempts": 1}
    rows.update_one({"_id": job.id}, {"$set": claim | {"heartbeat_at": beat, "started_at": beat}})


def lives(store: Store, task: str) -> None:
    """Have a worker be alive that knows a task."""
    facts = {"app": "other", "host": "host", "pid": 7, "role": "jobs", "queues": "*", "threads": 1}
    store.runners.write("host:7:alive", **facts, tasks=[task])


def test_a_permit_without_a_job(
    store: Store, database: Database[Document], check: t.Callable[..., list[str]], long_ago: int
) -> None:
    """L3: A permit under which no job runs is found and freed; one that was just taken is not."""
    limits = database["henri_jobs_limits"]
    limits.insert_one(old_permit(long_ago, "gone", "token"))
    limits.insert_one(old_permit(store.clock.now(), "to be claimed", "other", slot=1))

    assert check() == ["limits"]
    assert check("--repair", code=0) == []
    assert limits.distinct("slot") == [1]
    assert check(code=0) == []


def test_a_permit_whose_job_runs(
    store: Store,
    rows: Collection[Document],
    enqueue: Enqueue,
    check: t.Callable[..., list[str]],
    long_ago: int,
) -> None:
    """A9: A permit whose own heartbeat fails stays while its job has one."""
    job = enqueue("shop.fail")
    running(rows, job, store.clock.now())
    rows.database["henri_jobs_limits"].insert_one(old_permit(long_ago, job.id, "token"))

    assert check(code=0) == []
    assert check("--repair", code=0) == []
    assert rows.database["henri_jobs_limits"].count_documents({}) == 1


def test_runners_that_are_gone(
    store: Store,
    rows: Collection[Document],
    enqueue: Enqueue,
    check: t.Callable[..., list[str]],
    long_ago: int,
) -> None:
    """Q4: A runner that is silent is found; its jobs wait again, and those of others go on."""
    stuck, beaten = enqueue("shop.flaky"), enqueue("shop.flaky")
    running(rows, stuck, long_ago, "stuck")
    running(rows, beaten, store.clock.now(), "beaten")
    rows.database["henri_jobs_runners"].insert_one({"_id": "silent", "heartbeat_at": long_ago})

    assert check() == ["runners", "runners"]
    assert check("--repair", code=0) == []
    assert (stuck.refresh().state, beaten.refresh().state) == ("pending", "running")
    assert [past["message"] for past in stuck.history] == [
        f"The runner {GONE} stopped answering while performing this job."
    ]
    assert rows.database["henri_jobs_runners"].count_documents({}) == 0


def test_batches_whose_counts_disagree(
    app: Flask,
    store: Store,
    rows: Collection[Document],
    check: t.Callable[..., list[str]],
    long_ago: int,
) -> None:
    """B3: A batch that is over is ended, with its callback; one that is not is counted anew."""
    lives(store, "shop.told")
    with shop.jobs.batch(callback="shop.told") as over:
        over.add(shop.fail)
    with shop.jobs.batch(callback="shop.told") as short:
        short.add(shop.fail)
        short.add(shop.fail)
    ended = {"state": "dead", "finished_at": long_ago, "dead_reason": "failed"}
    rows.update_one({"batch_id": over.id}, {"$set": ended})
    rows.update_one({"batch_id": short.id}, {"$set": ended})
    batches = rows.database["henri_jobs_batches"]
    assert check(code=0) == [], "somebody may go on with what has just changed"
    batches.update_many({}, {"$set": {"updated_at": long_ago}})

    assert check() == ["batches", "batches"]
    assert check("--repair", code=0) == []

    assert (over.refresh().state, over.done, over.failed) == ("finished", 1, 1)
    assert rows.count_documents({"unique_key": f"batch:{over.id}"}) == 1
    assert (short.refresh().state, short.done, short.failed) == ("running", 1, 1)
    assert check(code=0) == []


def test_schedules_of_unknown_tasks(
    app: Flask, store: Store, database: Database[Document], check: t.Callable[..., list[str]]
) -> None:
    """A schedule whose task nobody knows is found and paused; another application's is its own."""
    shop.jobs.schedules.add("nightly", task="shop.flaky", every="1h")
    schedules = database["henri_jobs_schedules"]
    schedules.update_one({"_id": "nightly"}, {"$set": {"job": "shop.gone"}})
    schedules.insert_one({"_id": "henri's", "job": "of/henri", "spec": "every:1000"})

    assert check() == ["schedules"]
    assert check("--repair", code=0) == []
    assert schedules.distinct("_id", {"paused": True}) == ["nightly"]


def test_jobs_of_unknown_tasks(
    store: Store, enqueue: Enqueue, run: Run, check: t.Callable[..., list[str]]
) -> None:
    """Q6: Jobs that nobody here or elsewhere can perform are found; only people can mend that."""
    job = enqueue("of.another")

    assert check() == ["jobs"]
    assert "1 jobs wait for the task 'of.another'" in run("check", "--repair", code=1).stdout
    assert job.refresh().state == "pending"

    lives(store, "of.another")
    assert check(code=0) == []


def test_indexes(
    store: Store, rows: Collection[Document], check: t.Callable[..., list[str]]
) -> None:
    """Q13: Indexes that are missing or have another shape are found, and made."""
    rows.drop_index("fhj_claim")
    rows.drop_index("fhj_recent")
    rows.create_index("updated_at", name="fhj_recent")

    assert check() == ["indexes", "indexes"]
    assert check("--repair", code=0) == []
    assert check(code=0) == []


@pytest.mark.parametrize(("off", "said"), [(7.2, "7 s ahead of"), (-600.4, "600 s behind")])
def test_a_clock_that_differs(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, off: float, said: str
) -> None:
    """B8: A host whose clock differs from the database server's is told so."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + off)

    assert f"clocks: This host's clock is {said} the database" in run("check", code=1).stdout


def test_a_member_whose_clock_differs(
    store: Store,
    database: Database[Document],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    long_ago: int,
) -> None:
    """B8: So is whoever has a member that differs from the primary; no runner is judged then."""
    monkeypatch.setattr(Connection, "clocks", lambda _: {"db2:27017": 9_000, "db3:27017": 40})
    database["henri_jobs_runners"].insert_one({"_id": "silent", "heartbeat_at": long_ago})

    found = run("check", "--repair", code=1).stdout

    assert "clocks: The clock of db2:27017 is 9 s ahead of the primary's." in found
    assert "db3" not in found
    assert database["henri_jobs_runners"].count_documents({}) == 1


def test_every_member_is_asked(three_member_uri: str, mongo_uri: str, standalone_uri: str) -> None:
    """B8: The clock of each other member of a replica set is compared with the primary's."""
    for uri, others in ((three_member_uri, 2), (mongo_uri, 0), (standalone_uri, 0)):
        with client_of(uri) as client:
            ahead = Connection(client, "test", "henri_jobs", uri).clocks()
            assert len(ahead) == others
            assert all(abs(millis) < MOST_APART_MS for millis in ahead.values())
