"""Heartbeats for what a process holds, and what it may begin of that."""

from __future__ import annotations

import threading
import typing as t
from datetime import timedelta

import pytest
from pymongo import MongoClient

from faults import APP_NAME, CLOSED, failing
from flask_henri_jobs.outcome import Done
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker import keeper as keeping
from flask_henri_jobs.worker.attempts import Attempts
from flask_henri_jobs.worker.holdings import Holdings
from flask_henri_jobs.worker.keeper import Keeper
from flask_henri_jobs.worker.loop import Outages
from plans import Recorder

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask
    from pymongo.collection import Collection

    from flask_henri_jobs import HenriJobs, Job
    from flask_henri_jobs.store import Store

Document: t.TypeAlias = dict[str, t.Any]

HEARTBEAT = 30.0
STUCK_AFTER = 180.0


class Seconds:
    """Steady seconds that a test moves: the machine is suspended, or time passes."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def recorder() -> Recorder:
    """Hears every command of the worker."""
    return Recorder()


@pytest.fixture
def client(mongo_uri: str, recorder: Recorder) -> Iterator[MongoClient[Document]]:
    with MongoClient[Document](mongo_uri, appname=APP_NAME, event_listeners=[recorder]) as client:
        yield client


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def holdings(seconds: Seconds) -> Holdings:
    return Holdings(seconds)


@pytest.fixture
def keeper(store: Store, holdings: Holdings, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(keeping, "RETRY_SECONDS", 0.001)
    return Keeper(
        store.leases,
        store.permits,
        holdings,
        Attempts(),
        store.clock,
        heartbeat=timedelta(seconds=HEARTBEAT),
        stuck_after=timedelta(seconds=STUCK_AFTER),
        outages=Outages(),
    )


@pytest.fixture
def claim(
    app: Flask, jobs: HenriJobs, store: Store, holdings: Holdings
) -> Callable[[int], list[Job]]:
    """Claim new jobs of a limited task, and hold them."""

    @jobs.task(name="work", concurrency=9)
    def work() -> None: ...

    def claim(count: int) -> list[Job]:
        work.delay_many([{}] * count)
        known_at = holdings.now()
        limits = jobs.tasks.lanes()
        store.claims.look_again()
        claimed = store.claims.take(Wish(runner="host:1:us", at_most=count, lanes=limits))
        holdings.add(claimed, known_at)
        return claimed

    return claim


@pytest.fixture
def age(stored: Collection[Document], jobs: HenriJobs) -> Callable[[], None]:
    """Make every heartbeat in the database an old one, so that a new one shows."""

    def age() -> None:
        for collection in (stored, jobs.database["henri_jobs_limits"]):
            collection.update_many({}, {"$set": {"heartbeat_at": 1}})

    return age


def beaten(collection: Collection[Document]) -> list[bool]:
    """Return for each row whether it has a new heartbeat."""
    return [row["heartbeat_at"] > 1 for row in collection.find().sort("_id")]


def test_heartbeats_only_after_the_first_interval(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    stored: Collection[Document],
    jobs: HenriJobs,
    age: Callable[[], None],
    recorder: Recorder,
) -> None:
    """C: A short job has no heartbeat; one that lasts has one an interval, with its permit."""
    claim(2)
    seconds.now += HEARTBEAT
    claim(1)
    age()

    assert keeper.round() == HEARTBEAT / 2

    assert beaten(stored) == [True, True, False]
    assert sorted(beaten(jobs.database["henri_jobs_limits"])) == [False, True, True]
    recorder.commands.clear()
    keeper.round()
    assert recorder.commands == []
    seconds.now += HEARTBEAT / 2
    age()
    keeper.round()
    assert beaten(stored) == [True] * 3
    # One write for all jobs, and one for all permits.
    assert len([one for one in recorder.commands if "update" in one]) == 4


def test_a_claim_that_is_fresh_is_begun_without_a_question(
    keeper: Keeper, claim: Callable[[int], list[Job]], seconds: Seconds, recorder: Recorder
) -> None:
    """W4, A9: A job is begun at once while its claim is younger than a third of ``stuck_after``."""
    (job,) = claim(1)
    recorder.commands.clear()
    seconds.now += STUCK_AFTER / 3 - 1

    assert keeper.may_begin(job)
    assert recorder.commands == []


def test_a_runner_that_was_suspended(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    stored: Collection[Document],
    holdings: Holdings,
    recorder: Recorder,
    age: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A9: After a suspension a job is begun only if its claim stands, which a heartbeat tells."""
    kept, recovered = claim(2)
    another = {"claim_token": "another's", "claimed_by": "host:2:them"}
    stored.update_one({"_id": recovered.id}, {"$set": another})
    age()
    seconds.now += STUCK_AFTER / 3

    assert keeper.may_begin(kept)
    assert not keeper.may_begin(recovered)

    assert beaten(stored) == [True, False]
    assert holdings.not_cancelled() == [kept]
    assert caplog.text.count("another runner has the job") == 1
    recorder.commands.clear()
    assert keeper.may_begin(kept)
    assert recorder.commands == []


def test_a_copy_of_an_earlier_claim(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    store: Store,
    stored: Collection[Document],
    holdings: Holdings,
) -> None:
    """A9: A job that was recovered from this very runner, and that it has claimed again, is begun
    once: under the new token."""
    (old,) = claim(1)
    seconds.now += STUCK_AFTER
    store.claims.hand_back([old])
    store.claims.look_again()
    (new,) = store.claims.take(Wish(runner="host:1:us", at_most=1, lanes={}))
    holdings.add([new], holdings.now())

    assert not keeper.may_begin(old)
    assert keeper.may_begin(new)
    assert holdings.not_cancelled() == [new]


def test_waiting_for_a_database_that_is_away(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    client: MongoClient[Document],
) -> None:
    """W10: Whether an old claim stands is asked until there is an answer."""
    (job,) = claim(1)
    seconds.now += STUCK_AFTER
    answer: list[bool] = []

    with failing(client, "update", times=2, **CLOSED):
        asker = threading.Thread(target=lambda: answer.append(keeper.may_begin(job)))
        asker.start()
        asker.join(20)

    assert answer == [True]


def test_a_claim_that_is_gone_while_it_runs(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    stored: Collection[Document],
    holdings: Holdings,
) -> None:
    """Q3: A heartbeat finds out which claims are gone, and beats for them no more."""
    jobs = claim(3)
    stored.delete_one({"_id": jobs[0].id})
    stored.update_one({"_id": jobs[1].id}, {"$set": {"state": "pending"}})
    seconds.now += HEARTBEAT

    keeper.round()

    assert holdings.not_cancelled() == [jobs[2]]


def test_an_outcome_beside_a_heartbeat(
    keeper: Keeper,
    store: Store,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A job whose outcome is stored while heartbeats are written was taken over by nobody."""
    job, other = claim(2)
    seconds.now += HEARTBEAT
    assert store.outcomes.write(job, Done(at=store.clock.now(), duration=1)) is not None
    keeper.round()
    assert not caplog.records

    store.leases.recover_from("host:1:us", "was killed", [other.id])
    seconds.now += HEARTBEAT
    keeper.round()
    assert [record.getMessage() for record in caplog.records] == [
        f"The claim of {other!r} is gone: another runner has the job."
    ]


def test_heartbeats_go_on_after_an_outage(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    stored: Collection[Document],
    client: MongoClient[Document],
    age: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W10: A heartbeat that fails is written in a later round; the thread of the rounds lives."""
    claim(1)
    age()
    seconds.now += HEARTBEAT
    monkeypatch.setattr("flask_henri_jobs.worker.loop.SHORTEST_PAUSE", 0.001)
    beat = threading.Event()
    renew = Holdings.renew

    def renewed(self: Holdings, *args: t.Any) -> None:
        renew(self, *args)
        beat.set()

    monkeypatch.setattr(Holdings, "renew", renewed)
    with failing(client, "update", times=2, **CLOSED):
        keeper.start()
        assert beat.wait(20)
        assert keeper.stop(10)

    assert beaten(stored) == [True]


def test_no_permit_no_beginning(
    keeper: Keeper,
    claim: Callable[[int], list[Job]],
    seconds: Seconds,
    jobs: HenriJobs,
    holdings: Holdings,
) -> None:
    """L3: a job whose permit was swept before its claim, and is another's now, does not begin,
    not even after a heartbeat of it was written."""
    [job] = claim(1)
    theirs = {"$set": {"token": "theirs"}}
    jobs.database["henri_jobs_limits"].update_one({"_id": job.permit}, theirs)
    assert keeper.may_begin(job)
    seconds.now += STUCK_AFTER / 2

    keeper.round()

    assert not keeper.may_begin(job)
    assert len(holdings) == 1
