"""Enqueueing in a transaction of the application's own."""

from __future__ import annotations

import contextlib
import threading
import typing as t
from dataclasses import dataclass

import pytest
from flask import Flask
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from flask_henri_jobs import HenriJobs, Task, signals
from flask_henri_jobs.errors import (
    BatchSealed,
    ConfigError,
    StoreUnavailable,
    TransactionRefused,
    UniqueKeyTaken,
)
from flask_henri_jobs.store.inbox_in_transaction import TransactionalInbox
from flask_henri_jobs.store.transactions import TransactionRaced

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

    from flask_henri_jobs import Batch, Job

Document: t.TypeAlias = dict[str, t.Any]
Work: t.TypeAlias = Task[[int], int]
PATIENCE = 20.0


@pytest.fixture
def work(jobs: HenriJobs) -> Work:
    @jobs.task(name="work")
    def work(n: int) -> int:
        return n

    return work


@pytest.fixture
def orders(jobs: HenriJobs) -> Collection[Document]:
    """The application's own data, beside the queue."""
    jobs.install()
    orders: Collection[Document] = jobs.database["orders"]
    orders.insert_one({"_id": "seed"})
    return orders


@pytest.fixture
def session(jobs: HenriJobs, orders: Collection[Document]) -> t.Iterator[ClientSession]:
    with jobs.client.start_session() as session:
        yield session


@pytest.fixture
def enqueued() -> t.Iterator[list[str]]:
    """The ids of the jobs that were told of, in order."""
    heard: list[str] = []

    def hear(app: Flask, job: Job) -> None:
        heard.append(job.id)

    with signals.job_enqueued.connected_to(hear):
        yield heard


class Aborted(Exception):
    """Raised to leave a transaction."""


def test_commit(
    jobs: HenriJobs,
    work: Work,
    orders: Collection[Document],
    session: ClientSession,
    enqueued: list[str],
) -> None:
    """X1: a job is there, and is told of, when the transaction has committed, and not before."""
    with session.start_transaction():
        orders.insert_one({"_id": 1}, session=session)
        job = work.using(session=session).delay(1)
        assert (job.created, jobs.get(job.id), enqueued) == (True, None, [])
    assert jobs.get(job.id) == job.refresh()
    assert enqueued == [job.id]


def test_abort(
    jobs: HenriJobs,
    work: Work,
    orders: Collection[Document],
    session: ClientSession,
    enqueued: list[str],
) -> None:
    """X1: of an aborted transaction no job is left, nor told of, with the next commit either."""
    with contextlib.suppress(Aborted), session.start_transaction():
        orders.insert_one({"_id": 1}, session=session)
        work.using(session=session).delay(1)
        raise Aborted
    with session.start_transaction():
        kept = work.using(session=session).delay(2)
    assert [job.id for job in jobs.list()] == [kept.id]
    assert enqueued == [kept.id]
    assert orders.count_documents({}) == 1


@pytest.mark.parametrize("by", ["apply_async", "enqueue", "delay_many"])
def test_every_way_to_enqueue(
    jobs: HenriJobs, work: Work, session: ClientSession, enqueued: list[str], by: str
) -> None:
    """X1: each way to enqueue takes the session."""
    with session.start_transaction():
        if by == "apply_async":
            stored = [work.apply_async((1,), session=session)]
        elif by == "enqueue":
            stored = [jobs.enqueue("of-another-app", {"n": 1}, session=session)]
        else:
            stored = work.using(session=session).delay_many({"n": n} for n in range(1200))
        assert jobs.count() == 0
    assert jobs.count() == len(stored)
    assert enqueued == [job.id for job in stored]


def test_started_over(
    jobs: HenriJobs,
    work: Work,
    orders: Collection[Document],
    session: ClientSession,
    enqueued: list[str],
) -> None:
    """X1: what ``with_transaction`` runs twice is stored and told of once."""
    runs: list[Job] = []

    def body(session: ClientSession) -> None:
        orders.update_one({"_id": "seed"}, {"$inc": {"n": 1}}, session=session)
        runs.append(work.using(session=session).delay(len(runs)))
        if len(runs) == 1:
            conflict = OperationFailure("WriteConflict", 112)
            conflict._add_error_label("TransientTransactionError")
            raise conflict

    session.with_transaction(body)
    assert len(runs) == 2
    assert [job.id for job in jobs.list()] == enqueued == [runs[1].id]
    assert orders.find_one({"_id": "seed"}) == {"_id": "seed", "n": 1}


def test_held_key(
    jobs: HenriJobs, work: Work, orders: Collection[Document], session: ClientSession
) -> None:
    """X1: a held unique key gives ``created`` false, and the transaction still commits."""
    held = work.using(unique="order:1").delay(1)
    with session.start_transaction():
        orders.insert_one({"_id": 1}, session=session)
        job = work.using(session=session, unique="order:1").delay(2)
        assert (job.id, job.created, job.args) == (held.id, False, {"n": 1})
        again = work.using(session=session, id=held.id).delay(3)
        assert (again.id, again.created) == (held.id, False)
    assert orders.count_documents({}) == 2
    assert jobs.count() == 1


def test_refused_key(work: Work, orders: Collection[Document], session: ClientSession) -> None:
    """X1: ``on_conflict="raise"`` raises, and whoever catches that can still commit."""
    work.using(unique="order:1").delay(1)
    with session.start_transaction():
        orders.insert_one({"_id": 1}, session=session)
        with pytest.raises(UniqueKeyTaken):
            work.using(session=session, unique="order:1", on_conflict="raise").delay(2)
    assert orders.count_documents({}) == 2


def test_replaced(jobs: HenriJobs, work: Work, session: ClientSession) -> None:
    """X1: ``on_conflict="replace"`` gives the holder the new arguments with the commit."""
    held = work.using(unique="order:1").delay(1)
    with session.start_transaction():
        job = work.using(session=session, unique="order:1", on_conflict="replace").delay(2)
        assert (job.id, job.args) == (held.id, {"n": 2})
        assert held.refresh().args == {"n": 1}
    assert held.refresh().args == {"n": 2}


def test_one_key_twice(jobs: HenriJobs, work: Work, session: ClientSession) -> None:
    """X1: two jobs under one key in one transaction are one."""
    with session.start_transaction():
        first = work.using(session=session, unique="order:1").delay(1)
        second = work.using(session=session, unique="order:1").delay(2)
        many = work.using(session=session, unique="order:2").delay_many([{"n": 3}, {"n": 4}])
        assert (first.created, second.created, second.id) == (True, False, first.id)
        assert [job.created for job in many] == [True, False]
        assert many[0].id == many[1].id
    assert jobs.count() == 2


def test_raced(
    jobs: HenriJobs, work: Work, orders: Collection[Document], session: ClientSession
) -> None:
    """X1: a holder from after the transaction's snapshot starts it over, and is found then."""
    runs: list[bool] = []

    def body(session: ClientSession) -> None:
        orders.find_one({}, session=session)
        if not runs:
            work.using(unique="order:1").delay(1)
        runs.append(False)
        runs[-1] = work.using(session=session, unique="order:1").delay(2).created

    session.with_transaction(body)
    assert runs == [False, False]
    assert [job.args for job in jobs.list()] == [{"n": 1}]


def test_raced_without_a_snapshot_of_the_key(
    jobs: HenriJobs, work: Work, session: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X1: a duplicate that the look-up has missed has the label that starts over."""
    work.using(unique="order:1").delay(1)
    monkeypatch.setattr(TransactionalInbox, "_holders_of", lambda *_: [])
    with (
        pytest.raises(TransactionRaced, match="with_transaction") as raised,
        session.start_transaction(),
    ):
        work.using(session=session, unique="order:1").delay(2)
    assert raised.value.has_error_label("TransientTransactionError")
    assert raised.value.code == "TRANSACTION_RACED"


def test_enqueue_that_meets_an_uncommitted_key(
    jobs: HenriJobs, work: Work, make_app: Callable[..., Flask], session: ClientSession
) -> None:
    """Q11: an enqueue behind somebody's open transaction ends within its timeout."""
    other = HenriJobs(app := make_app(HENRI_JOBS_ENQUEUE_TIMEOUT="300ms"))
    with session.start_transaction():
        work.using(session=session, unique="order:1").delay(1)
        with app.app_context(), pytest.raises(StoreUnavailable):
            other.enqueue("work", {"n": 2}, unique="order:1")
    other.state_of(app).close()
    assert [job.args for job in jobs.list()] == [{"n": 1}]


def test_session_of_another_client(
    jobs: HenriJobs, work: Work, orders: Collection[Document], mongo_uri: str, enqueued: list[str]
) -> None:
    """X1: a session of the application's own client is used through that client."""
    with MongoClient[Document](mongo_uri) as client, client.start_session() as session:
        own = client[orders.database.name]["orders"]
        with session.start_transaction():
            own.insert_one({"_id": 1}, session=session)
            job = work.using(session=session).delay(1)
        assert enqueued == [job.id]
        assert own.count_documents({}) == 2


def test_session_of_another_deployment(work: Work, three_member_uri: str) -> None:
    """X1: a session of another replica set is refused."""
    with (
        MongoClient[Document](three_member_uri) as client,
        client.start_session() as session,
        session.start_transaction(),
        pytest.raises(TransactionRefused, match="another deployment"),
    ):
        work.using(session=session).delay(1)


def test_session_without_a_transaction(work: Work, session: ClientSession) -> None:
    """X1: a session that has no transaction under way would store at once, and is refused."""
    with pytest.raises(TransactionRefused, match="no transaction under way"):
        work.using(session=session).delay(1)


def test_standalone(standalone_uri: str, database_name: str) -> None:
    """X1: a standalone server is refused, with advice, by each way to have a transaction."""
    app = Flask("alone")
    app.config.update(HENRI_JOBS_URI=standalone_uri, HENRI_JOBS_DATABASE=database_name)
    jobs = HenriJobs(app)
    with app.app_context(), jobs.client.start_session() as session:
        session.start_transaction()
        with pytest.raises(TransactionRefused, match=r"--replSet"):
            jobs.enqueue("work", session=session)
        with pytest.raises(TransactionRefused, match=r"--replSet"), jobs.transaction():
            pytest.fail("It has begun.")
        jobs.database.client.drop_database(database_name)
    jobs.state_of(app).close()


def test_own_transaction(
    jobs: HenriJobs, work: Work, orders: Collection[Document], enqueued: list[str]
) -> None:
    """X1: ``jobs.transaction()`` commits at the end of its block, or nothing is left of it."""
    with jobs.transaction() as session:
        orders.insert_one({"_id": 1}, session=session)
        job = work.using(session=session).delay(1)
        assert jobs.count() == 0
    assert [one.id for one in jobs.list()] == enqueued == [job.id]
    with contextlib.suppress(Aborted), jobs.transaction() as session:
        orders.insert_one({"_id": 2}, session=session)
        work.using(session=session).delay(2)
        raise Aborted
    assert (jobs.count(), orders.count_documents({})) == (1, 2)


def test_tenant(jobs: HenriJobs, work: Work, session: ClientSession) -> None:
    """T1: a job in a transaction is the tenant's in scope."""
    with jobs.tenant("acme"), session.start_transaction():
        work.using(session=session).delay(1)
    assert [job.tenant for job in jobs.list()] == ["acme"]


@dataclass
class Told:
    """The batches that have finished."""

    finished: list[str]


@pytest.fixture
def told() -> t.Iterator[Told]:
    told = Told([])

    def hear(app: Flask, batch: Batch) -> None:
        told.finished.append(batch.id)

    with signals.batch_finished.connected_to(hear):
        yield told


def test_batch(jobs: HenriJobs, work: Work, session: ClientSession, enqueued: list[str]) -> None:
    """X1: a batch, its members and its seal are there with the commit, and it runs as any."""
    finished: list[dict[str, t.Any]] = []

    @jobs.task(name="finished")
    def after(batch: dict[str, t.Any]) -> None:
        finished.append(batch)

    with session.start_transaction(), jobs.batch(callback=after, session=session) as batch:
        batch.add(work, 1)
        batch.add_many(work, [{"n": n} for n in range(20)])
        assert (jobs.batches.list(), jobs.count()) == ([], 0)
    assert (batch.total, batch.refresh().state, len(enqueued)) == (21, "running", 21)
    jobs.run_worker(once=True)
    assert batch.refresh().state == "finished"
    assert [(one["total"], one["failed"]) for one in finished] == [(21, 0)]


def test_batch_of_an_aborted_transaction(
    jobs: HenriJobs, work: Work, session: ClientSession, told: Told, enqueued: list[str]
) -> None:
    """X1: an aborted transaction leaves neither batch nor members."""
    with (
        contextlib.suppress(Aborted),
        session.start_transaction(),
        jobs.batch(session=session) as batch,
    ):
        batch.add(work, 1)
        raise Aborted
    assert (jobs.batches.list(), jobs.count(), told.finished, enqueued) == ([], 0, [], [])


def test_empty_batch(jobs: HenriJobs, session: ClientSession, told: Told) -> None:
    """B4: an empty batch is finished, and told of, once its transaction has committed."""
    with session.start_transaction():
        with jobs.batch(session=session) as batch:
            pass
        assert (batch.state, told.finished) == ("running", [])
    assert (batch.state, told.finished) == ("finished", [batch.id])


def test_batch_sealed_in_the_transaction(
    jobs: HenriJobs, work: Work, session: ClientSession
) -> None:
    """B4: what was sealed in the transaction takes no more jobs in it."""
    with session.start_transaction():
        batch = jobs.batch(session=session).seal()
        with pytest.raises(BatchSealed):
            batch.add(work, 1)


def test_member_with_a_session_of_its_own(
    jobs: HenriJobs, work: Work, session: ClientSession
) -> None:
    """X1: a member goes with its batch's transaction and no other."""
    batch = jobs.batch()
    with session.start_transaction():
        with pytest.raises(ConfigError, match=r"Give session= to jobs\.batch"):
            batch.add(work.using(session=session), 1)
        with pytest.raises(ConfigError, match="session of its own"):
            jobs.batch(callback=work.using(session=session))


def test_first_enqueue_of_all(jobs: HenriJobs, work: Work) -> None:
    """X1: nothing is installed inside a transaction, also where nothing was before it."""
    client = jobs.state.store_as_it_is.connection.client
    with client.start_session() as session, session.start_transaction():
        job = work.using(session=session).delay(1)
    assert jobs.get(job.id) is not None
    assert jobs.state.store.problems() == []


def test_lost_reply_to_a_commit(
    jobs: HenriJobs, work: Work, orders: Collection[Document], enqueued: list[str]
) -> None:
    """X1: a commit whose reply is lost is sent again until it is known, and told of once."""
    admin = jobs.client.admin
    fail = {"failCommands": ["commitTransaction"], "closeConnection": True}
    with jobs.transaction() as session:
        orders.insert_one({"_id": 1}, session=session)
        work.using(session=session).delay(1)
        # The driver repeats a commit once by itself.
        admin.command({"configureFailPoint": "failCommand", "mode": {"times": 3}, "data": fail})
    assert (jobs.count(), len(enqueued), orders.count_documents({})) == (1, 1, 2)


def test_sessions_of_two_threads(
    app: Flask, jobs: HenriJobs, work: Work, session: ClientSession
) -> None:
    """X1: what waits for one session's commit does not wait for another's."""
    with session.start_transaction():
        mine = work.using(session=session).delay(1)
        theirs: list[str] = []

        def other() -> None:
            with app.app_context(), jobs.transaction() as their_session:
                theirs.append(work.using(session=their_session).delay(2).id)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(PATIENCE)
        assert [job.id for job in jobs.list()] == theirs
    assert {job.id for job in jobs.list()} == {*theirs, mine.id}
