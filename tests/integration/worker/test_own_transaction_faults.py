"""What a job's transaction comes to when the server aborts it, or does not say."""

from __future__ import annotations

import threading
import typing as t
from datetime import timedelta

import pytest
from pymongo.errors import OperationFailure

from faults import CLOSED, LOST_REPLY, failing
from flask_henri_jobs import HenriJobs, current_job, outcome
from flask_henri_jobs.backoff import Backoff
from flask_henri_jobs.errors import StoreUnavailable, TransactionAborted
from flask_henri_jobs.outcome import MOST_ABORTED
from flask_henri_jobs.store.job_transactions import JobSession, JobTransactions
from flask_henri_jobs.store.leases import Leases
from flask_henri_jobs.worker import attempts, transacting

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask
    from pymongo import MongoClient
    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

    from flask_henri_jobs import Job, Task
    from hearing import Heard

Document: t.TypeAlias = dict[str, t.Any]
Pay: t.TypeAlias = "Task[[], None]"
ONCE: Document = {"_id": "count", "n": 1}
NEVER: Document = {"_id": "count", "n": 0}
PATIENCE = 20.0
OUT_OF_TIME: Document = {"errorCode": 50}
FORGOTTEN: Document = {"errorCode": 251, "errorLabels": ["TransientTransactionError"]}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transacting, "RETRY_SECONDS", 0.01)


@pytest.fixture
def effects(app: object, jobs: HenriJobs) -> Collection[Document]:
    """What the tasks write."""
    effects: Collection[Document] = jobs.database["effects"]
    effects.insert_one({"_id": "count", "n": 0})
    return effects


@pytest.fixture
def meanwhile() -> list[Callable[[], object]]:
    """What a test has done in the middle of the next transactions, one in each."""
    return []


@pytest.fixture
def pay(
    jobs: HenriJobs, effects: Collection[Document], meanwhile: list[Callable[[], object]]
) -> Pay:
    """A task that adds 1 in its transaction, and lets no error of its own out."""

    @jobs.task(name="pay", max_attempts=2, timeout="10s")
    def pay() -> None:
        try:
            with current_job.transaction() as tx:
                effects.find_one(session=tx)
                if meanwhile:
                    meanwhile.pop(0)()
                effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
        except Exception as error:
            raise AssertionError from error

    return pay


@pytest.fixture
def rival(jobs: HenriJobs, effects: Collection[Document]) -> Iterator[ClientSession]:
    """Somebody's open transaction, that has written what the tasks write."""
    with jobs.client.start_session() as session, session.start_transaction():
        effects.update_one({"_id": "count"}, {"$set": {"rival": True}}, session=session)
        yield session
        if session.in_transaction:
            session.abort_transaction()


def perform(jobs: HenriJobs, job: Job) -> Job:
    """Have the job performed that may wait until it is due again."""
    jobs.database["henri_jobs"].update_one({"_id": job.id}, {"$set": {"run_at": 1}})
    jobs.run_worker(once=True, threads=1)
    return job.refresh()


def test_conflict(
    jobs: HenriJobs,
    pay: Pay,
    rival: ClientSession,
    effects: Collection[Document],
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X2: a job whose transaction is aborted goes back for a while, with its attempt restored, ten
    times; the next time it has failed. A rival that goes lets it end."""
    # The first wait is so short that a runner performs the job twice before it has nothing to do.
    monkeypatch.setattr(outcome, "AFTER_ABORT", Backoff(base=timedelta(seconds=20), jitter=0))
    job = pay.delay()
    for times in range(1, MOST_ABORTED + 1):
        perform(jobs, job)
        assert (job.state, job.attempts, job.row["aborted_transactions"]) == ("pending", 0, times)
    assert heard.names(besides="job_enqueued job_started") == ["job_retried"] * MOST_ABORTED
    assert str(job.error).startswith("TransactionAborted: The transaction was aborted: ")
    assert "WriteConflict" in str(job.error)
    assert "full error" not in str(job.error)
    assert type(heard.of("job_retried")[0]["error"]) is TransactionAborted
    assert job.run_at.timestamp() * 1000 - job.row["updated_at"] > 15_000

    perform(jobs, job)

    assert (job.state, job.attempts) == ("pending", 1)
    assert str(job.error).startswith("OperationFailure: ")
    assert heard.names(besides="job_enqueued job_started")[-2:] == ["job_failed", "job_retried"]
    rival.abort_transaction()
    perform(jobs, job)
    assert (job.state, job.attempts, effects.find_one()) == ("done", 2, ONCE)
    jobs.database["henri_jobs"].update_one({"_id": job.id}, {"$set": {"state": "dead"}})
    assert "aborted_transactions" not in jobs.retry(job.id).row


def test_conflict_of_a_function(
    jobs: HenriJobs, rival: ClientSession, effects: Collection[Document], heard: Heard
) -> None:
    """X2: a function is run again in place, each time in a transaction of its own."""
    tries: list[bytes] = []

    @jobs.task(name="pay", max_attempts=1)
    def pay() -> None:
        def work(tx: JobSession) -> None:
            tries.append(tx.session_id["id"])
            if len(tries) == 4:
                rival.abort_transaction()
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)

        current_job.run_in_transaction(work)

    job = perform(jobs, pay.delay())

    assert (job.state, job.attempts, job.history, len(tries)) == ("done", 1, [], 4)
    assert effects.find_one() == ONCE
    assert heard.of("job_retried") == []


def test_conflict_of_a_function_that_lasts(
    jobs: HenriJobs,
    rival: ClientSession,
    effects: Collection[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X2: in place it is run ten times; then its job goes back with its attempt restored."""
    monkeypatch.setattr(transacting, "MOST_TRIES", 3)
    tries: list[int] = []

    @jobs.task(name="pay", max_attempts=1)
    def pay() -> None:
        def work(tx: JobSession) -> None:
            tries.append(1)
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)

        current_job.run_in_transaction(work)

    job = perform(jobs, pay.delay())

    assert (job.state, job.attempts, len(tries)) == ("pending", 0, 3)


@pytest.mark.parametrize(
    "how", [LOST_REPLY, CLOSED, OUT_OF_TIME], ids=["lost reply", "closed", "out of time"]
)
@pytest.mark.parametrize("times", [1, 3])
def test_unknown_commit(
    jobs: HenriJobs,
    pay: Pay,
    client: MongoClient[Document],
    effects: Collection[Document],
    how: Document,
    times: int,
) -> None:
    """X2: a commit whose fate is unknown is sent again until it is known, and stands once."""
    job = pay.delay()
    with failing(client, "commitTransaction", times=times, **how):
        perform(jobs, job)

    assert (job.state, job.attempts, job.history) == ("done", 1, [])
    assert effects.find_one() == ONCE


def test_a_commit_that_the_server_has_forgotten(
    jobs: HenriJobs,
    pay: Pay,
    effects: Collection[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X2: the job's document says that its transaction was committed, where the server cannot."""
    commit = JobSession.commit_transaction

    def forget(self: JobSession) -> None:
        commit(self)
        raise OperationFailure("no such transaction", 251, FORGOTTEN)

    monkeypatch.setattr(JobSession, "commit_transaction", forget)
    job = perform(jobs, pay.delay())

    assert (job.state, job.attempts) == ("done", 1)
    assert effects.find_one() == ONCE


def test_a_commit_that_came_too_late(
    jobs: HenriJobs,
    pay: Pay,
    client: MongoClient[Document],
    effects: Collection[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X2: a transaction that the server has aborted, as it does by its age, is tried again."""
    commit = JobSession.commit_transaction

    def come_late(self: JobSession) -> None:
        client.admin.command("killSessions", [self.session_id])
        commit(self)

    job = pay.delay()
    with monkeypatch.context() as patch:
        patch.setattr(JobSession, "commit_transaction", come_late)
        perform(jobs, job)
    assert (job.state, job.attempts, effects.find_one()) == ("pending", 0, NEVER)
    assert (perform(jobs, job).state, effects.find_one()) == ("done", ONCE)


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_lost_claim(
    jobs: HenriJobs,
    effects: Collection[Document],
    stored: Collection[Document],
    heard: Heard,
    has_snapshot: bool,
) -> None:
    """X2: a job that another runner took over meanwhile has no effect here, and says so."""

    @jobs.task(name="pay")
    def pay() -> None:
        with current_job.transaction() as tx:
            if has_snapshot:
                effects.find_one(session=tx)
            stored.update_one({}, {"$set": {"claim_token": "another's"}})
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)

    job = perform(jobs, pay.delay())

    assert job.row["claim_token"] == "another's"
    assert effects.find_one() == NEVER
    assert heard.names(besides="job_enqueued job_started") == ["job_lost"]


def test_cancel(
    jobs: HenriJobs,
    pay: Pay,
    effects: Collection[Document],
    meanwhile: list[Callable[[], object]],
) -> None:
    """X2, W8: a job that is cancelled in its transaction is dead, and has no effect."""
    job = pay.delay()
    meanwhile.append(lambda: jobs.cancel(job.id))
    perform(jobs, job)

    assert (job.state, job.dead_reason, effects.find_one()) == ("dead", "cancelled", NEVER)


def test_a_cancel_that_is_heeded(jobs: HenriJobs, effects: Collection[Document]) -> None:
    """X2, W8: a task that has seen that it is cancelled has stopped, and its writes are aborted."""

    @jobs.task(name="pay")
    def pay() -> None:
        jobs.cancel(current_job.id)
        with current_job.transaction() as tx:
            while not current_job.cancelled:
                threading.Event().wait(0.005)
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)

    job = perform(jobs, pay.delay())

    assert (job.state, job.dead_reason, effects.find_one()) == ("dead", "cancelled", NEVER)


def test_no_database_at_its_begin(
    app: Flask,
    jobs: HenriJobs,
    pay: Pay,
    effects: Collection[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X2, W10: a job that finds no database to begin its transaction in is not to blame."""

    def keep(_self: Leases, _jobs: object) -> set[str]:
        raise StoreUnavailable("The database did not answer a heartbeat.")

    job = pay.delay()
    # No claim is fresh enough: a heartbeat comes first.
    stuck_after = timedelta(minutes=1)
    with jobs.with_settings(app, stuck_after=stuck_after), monkeypatch.context() as patch:
        patch.setattr(Leases, "keep", keep)
        perform(jobs, job)
        assert (job.state, job.attempts, effects.find_one()) == ("pending", 0, NEVER)
    assert (perform(jobs, job).state, effects.find_one()) == ("done", ONCE)


def test_timeout_in_its_block(
    jobs: HenriJobs, effects: Collection[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """X2, W7: an attempt whose time is up in its block has failed, and has no effect."""

    @jobs.task(name="pay", max_attempts=1, timeout="50ms")
    def pay() -> None:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            while True:
                threading.Event().wait(0.005)

    job = perform(jobs, pay.delay())

    assert (job.state, job.dead_reason, effects.find_one()) == ("dead", "timeout", NEVER)
    # Its locks are gone with it.
    assert effects.update_one({"_id": "count"}, {"$set": {"n": 5}}).modified_count == 1


def test_timeout_in_its_commit(
    jobs: HenriJobs,
    effects: Collection[Document],
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X2, W7: nobody gives up an attempt that is being committed; what it came to stands."""
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.05)
    commit = JobTransactions.commit

    def commit_late(self: JobTransactions, *args: t.Any) -> None:
        threading.Event().wait(0.8)
        commit(self, *args)

    monkeypatch.setattr(JobTransactions, "commit", commit_late)

    @jobs.task(name="pay", max_attempts=1, timeout="500ms")
    def pay() -> None:
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)

    job = perform(jobs, pay.delay())

    assert (job.state, effects.find_one()) == ("done", ONCE)
    assert heard.of("job_died") == heard.of("job_lost") == []
    assert len(heard.of("job_succeeded")) == 1
