"""Jobs that end in a transaction with the writes of their tasks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import typing as t
from datetime import timedelta

import pytest
from flask import Flask
from pymongo import MongoClient

from flask_henri_jobs import HenriJobs, Retry, Snooze, current_job
from flask_henri_jobs.cli.findings import configuration_findings
from flask_henri_jobs.cli.queue_findings import queue_findings
from flask_henri_jobs.errors import OutsideJob, TransactionAborted, TransactionRefused
from flask_henri_jobs.store.transactions import TransactionRaced

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.store.job_transactions import JobSession
    from hearing import Heard

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def effects(app: object, jobs: HenriJobs) -> Collection[Document]:
    """What the tasks write."""
    effects: Collection[Document] = jobs.database["effects"]
    effects.insert_one({"_id": "count", "n": 0})
    return effects


def test_effects_and_outcome(jobs: HenriJobs, effects: Collection[Document], heard: Heard) -> None:
    """X2: the task's writes and the outcome are there once its block has ended."""
    seen: list[t.Any] = []

    def look() -> tuple[Document | None, str]:
        return effects.find_one(), current_job.refresh().state

    @jobs.task(name="pay", store_result=True)
    def pay() -> str:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            tx.result = 7
            seen.append(look())
        seen.append(look())
        return "too late"

    job = pay.delay()
    jobs.run_worker(once=True, threads=1)

    job.refresh()
    assert seen == [({"_id": "count", "n": 0}, "running"), ({"_id": "count", "n": 1}, "done")]
    assert (job.state, job.result, job.attempts) == ("done", 7, 1)


def test_effects_of_a_failure(jobs: HenriJobs, effects: Collection[Document], heard: Heard) -> None:
    """X2: an exception that leaves the block aborts the writes, and decides about the attempt."""

    @jobs.task(name="pay", max_attempts=1)
    def pay(how: str) -> None:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            if how == "fails":
                raise ValueError("no money")
            raise Snooze("1h")

    failing, snoozing = pay.delay("fails"), pay.delay("snoozes")
    jobs.run_worker(once=True, threads=1)

    failing.refresh()
    assert (failing.state, failing.error, failing.attempts) == ("dead", "ValueError: no money", 1)
    assert (snoozing.refresh().state, snoozing.attempts) == ("pending", 0)
    assert effects.find_one() == {"_id": "count", "n": 0}
    assert heard.names(besides="job_enqueued job_started") == [
        *["job_failed", "job_died", "job_snoozed"],
    ]


def test_what_follows_an_outcome(
    jobs: HenriJobs, effects: Collection[Document], heard: Heard
) -> None:
    """X2: permits, batch counts, keys, jobs that were enqueued and signals follow the commit."""
    gone_on = threading.Event()
    permits = jobs.database["henri_jobs_limits"]

    @jobs.task(name="next")
    def follow() -> None: ...

    @jobs.task(name="over")
    def over(batch: Document) -> None:
        gone_on.set()

    @jobs.task(name="pay", concurrency=1, unique=True)
    def pay(n: int) -> None:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": n}}, session=tx)
            follow.using(session=tx).delay()
            assert permits.count_documents({}) == 1
            tx.result = n
        # All of it is there although the task goes on: the callback runs beside it.
        assert gone_on.wait(20)
        assert permits.count_documents({}) == 0

    with jobs.batch(callback=over) as batch:
        job = batch.add(pay, n=3)
    jobs.run_worker(once=True, threads=2)

    assert (job.refresh().state, job.unique_key) == ("done", None)
    assert (batch.refresh().done, batch.failed, batch.state) == (1, 0, "finished")
    assert effects.find_one() == {"_id": "count", "n": 3}
    assert [one.state for one in jobs.list(name="next")] == ["done"]
    (succeeded,) = [facts for facts in heard.of("job_succeeded") if facts["job"].id == job.id]
    assert (succeeded["result"], succeeded["job"].state) == (3, "done")
    assert heard.of("job_failed") == []


def test_what_a_task_raises_after_its_block(
    jobs: HenriJobs,
    effects: Collection[Document],
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """X2: it is logged and signalled, and changes nothing."""

    @jobs.task(name="pay")
    def pay(raised: str) -> None:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
        if raised == "again":
            with current_job.transaction():
                raise AssertionError
        raise {"Retry": Retry, "ValueError": ValueError, "SystemExit": SystemExit}[raised](raised)

    for raised in ("Retry", "ValueError", "SystemExit", "again"):
        pay.delay(raised)
    jobs.run_worker(once=True, threads=1)

    assert [(job.state, job.attempts, job.error) for job in jobs.list()] == [("done", 1, None)] * 4
    assert effects.find_one() == {"_id": "count", "n": 4}
    assert sorted(type(facts["error"]).__name__ for facts in heard.of("job_failed")) == [
        *["Retry", "SystemExit", "TransactionRefused", "ValueError"],
    ]
    assert {facts["job"].state for facts in heard.of("job_failed")} == {"done"}
    assert len(heard.of("job_succeeded")) == 4
    assert caplog.text.count("has ended, and raised after that.") == 4


def test_two_blocks(jobs: HenriJobs, effects: Collection[Document]) -> None:
    """X2: a second transaction in one attempt is refused, within the first as after its abort."""
    refused: list[str] = []

    @jobs.task(name="pay")
    def pay(how: str) -> None:
        with contextlib.suppress(ValueError), current_job.transaction():
            if how == "after":
                raise ValueError
            with pytest.raises(TransactionRefused) as error, current_job.transaction():
                raise AssertionError
            refused.append(error.value.code)
        if how == "after":
            with pytest.raises(TransactionRefused):
                current_job.run_in_transaction(lambda _tx: refused.append("run"))
            refused.append("after")

    pay.delay_many([{"how": "within"}, {"how": "after"}])
    jobs.run_worker(once=True, threads=1)

    assert refused == ["TRANSACTION_REFUSED", "after"]
    assert [job.state for job in jobs.list()] == ["done", "done"]


@pytest.mark.parametrize("how", ["commit_transaction", "abort_transaction"])
def test_the_block_ends_it(jobs: HenriJobs, effects: Collection[Document], how: str) -> None:
    """X2: the task cannot end the transaction in the middle of its block."""

    @jobs.task(name="pay", max_attempts=1)
    def pay() -> None:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            getattr(tx, how)()

    job = pay.delay()
    jobs.run_worker(once=True, threads=1)

    assert "ended by the end of its block" in str(job.refresh().error)
    assert effects.find_one() == {"_id": "count", "n": 0}


def test_a_function(jobs: HenriJobs, effects: Collection[Document]) -> None:
    """X2: a function's writes are committed with the outcome, and what it returns is the result."""
    returned: list[int] = []

    @jobs.task(name="pay", store_result=True)
    def pay(own: bool) -> None:
        def work(tx: JobSession) -> int:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            if own:
                tx.result = "its own"
            return 5

        returned.append(current_job.run_in_transaction(work))

    plain, own = pay.delay(False), pay.delay(True)
    jobs.run_worker(once=True, threads=1)

    assert (plain.refresh().result, own.refresh().result, returned) == (5, "its own", [5, 5])
    assert effects.find_one() == {"_id": "count", "n": 2}


def test_a_coroutine(jobs: HenriJobs, effects: Collection[Document]) -> None:
    """X2: an ``async def`` task has its transaction, too."""

    @jobs.task(name="pay")
    async def pay() -> None:
        await asyncio.sleep(0)
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    job = pay.delay()
    jobs.run_worker(once=True, threads=1)

    assert (job.refresh().state, effects.find_one()) == ("done", {"_id": "count", "n": 1})


def test_a_client_of_the_tasks(
    jobs: HenriJobs, effects: Collection[Document], mongo_uri: str, standalone_uri: str
) -> None:
    """X2: a task may write with a client of its own, of the same replica set and no other."""

    @jobs.task(name="pay", max_attempts=1)
    def pay(uri: str) -> None:
        with MongoClient[Document](uri) as client, current_job.transaction(client=client) as tx:
            own = client[effects.database.name]["effects"]
            own.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)

    @jobs.task(name="odd", max_attempts=1)
    def odd() -> None:
        with current_job.transaction(client=t.cast("t.Any", effects)):
            raise AssertionError

    same, other, wrong = pay.delay(mongo_uri), pay.delay(standalone_uri), odd.delay()
    jobs.run_worker(once=True, threads=1)

    assert (same.refresh().state, effects.find_one()) == ("done", {"_id": "count", "n": 1})
    assert str(other.refresh().error).startswith(
        "TransactionRefused: The MongoDB server is in no replica set, and has no transactions."
    )
    assert "client= is an instance of Collection" in str(wrong.refresh().error)


def test_inline(app: Flask, jobs: HenriJobs, effects: Collection[Document], heard: Heard) -> None:
    """X2: a job that is performed where it is enqueued commits what its task writes."""

    @jobs.task(name="pay", store_result=True)
    def pay(how: str) -> str:
        if how == "function":
            return current_job.run_in_transaction(add)
        with current_job.transaction() as tx:
            add(tx)
            tx.result = how
            if how == "fails":
                raise ValueError(how)
            if how == "raced":
                raise TransactionRaced(how)
        if how == "twice":
            with current_job.transaction():
                raise AssertionError
        return "too late"

    def add(tx: JobSession) -> str:
        effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
        return "added"

    with jobs.with_settings(app, inline=True):
        assert [pay.delay(how).result for how in ("block", "function")] == ["block", "added"]
        for how, raised in [("fails", ValueError), ("raced", TransactionAborted)]:
            with pytest.raises(raised):
                pay.delay(how)
        assert effects.find_one() == {"_id": "count", "n": 2}
        with pytest.raises(TransactionRefused):
            pay.delay("twice")
    assert [facts["result"] for facts in heard.of("job_succeeded")] == ["block", "added"]
    assert jobs.count() == 0


def test_outside_a_job(app: object) -> None:
    """X2: outside a job there is no such transaction, and the error says so."""
    with pytest.raises(OutsideJob, match="transaction was asked for outside a job"):
        current_job.transaction()


def test_standalone_at_start(standalone_uri: str, database_name: str) -> None:
    """X2: a worker whose task needs transactions does not start where there are none."""
    app = Flask("shop")
    app.config.update(HENRI_JOBS_URI=standalone_uri, HENRI_JOBS_DATABASE=database_name)
    jobs = HenriJobs(app)
    jobs.task(name="plain")(lambda: None)
    jobs.task(name="pay", transactional=True)(lambda: None)
    with app.app_context():
        with pytest.raises(TransactionRefused, match="says transactional=True") as refused:
            jobs.run_worker(once=True)
        found = [one.finding for one in queue_findings(jobs.state, jobs.tasks)]
        jobs.uninstall()
    jobs.state_of(app).close()

    assert str(refused.value) == (
        "The task pay says transactional=True. The MongoDB server is in no replica set, and has"
        " no transactions. Start it with --replSet and call rs.initiate() once: a set of one will"
        " do."
    )
    assert ("tasks", refused.value.message, refused.value.hint) in [
        (one["about"], one["message"], one["hint"]) for one in found
    ]


@pytest.mark.parametrize("declared", [True, False])
def test_stuck_after_is_too_short(
    app: Flask,
    jobs: HenriJobs,
    effects: Collection[Document],
    caplog: pytest.LogCaptureFixture,
    declared: bool,
) -> None:
    """X2: a worker says, once, that its jobs may be recovered in the middle of a transaction."""

    @jobs.task(name="pay", transactional=declared)
    def pay() -> None:
        with current_job.transaction():
            pass

    told = "HENRI_JOBS_STUCK_AFTER is 1m, and a transaction may last 90s"
    pay.delay_many([{}, {}])
    with jobs.with_settings(app, stuck_after=timedelta(minutes=1)) as state:
        jobs.run_worker(once=True, threads=1)
        found = configuration_findings(state, jobs.tasks)
    assert caplog.text.count(told) == 1
    assert [told in one["message"] for one in found if one["about"] == "settings"] == (
        [True] if declared else []
    )
    pay.delay()
    jobs.run_worker(once=True, threads=1)
    assert caplog.text.count(told) == 1
    assert configuration_findings(jobs.state, jobs.tasks) == []
