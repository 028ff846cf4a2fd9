"""What a supervisor does for the jobs of a process that died."""

from __future__ import annotations

import os
import typing as t
from contextlib import nullcontext

import pytest
from flask import Flask

from faults import CLOSED, failing, faulty_client
from flask_henri_jobs import HenriJobs, Job, signals
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.losses import Loss, Losses
from flask_henri_jobs.worker.machine import own_traits, this_machine
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo import MongoClient

RUNNER = "host:1:gone"


@pytest.fixture
def client(mongo_uri: str) -> Iterator[MongoClient[dict[str, t.Any]]]:
    with faulty_client(mongo_uri) as client:
        yield client


@pytest.fixture
def jobs(client: MongoClient[dict[str, t.Any]]) -> HenriJobs:
    return HenriJobs(client=lambda: client)


@pytest.fixture
def app(database_name: str, jobs: HenriJobs) -> Iterator[Flask]:
    app = Flask(__name__)
    app.config.update(HENRI_JOBS_DATABASE=database_name)
    jobs.init_app(app)
    with app.app_context():
        yield app


@pytest.fixture
def suspected() -> list[bool]:
    return []


@pytest.fixture
def losses(app: Flask, jobs: HenriJobs, suspected: list[bool]) -> Iterator[Losses]:
    store = jobs.state.store
    losses = Losses(app, lambda: nullcontext(store), lambda: suspected.append(True))
    losses.start()
    yield losses
    losses.finish(10)


@pytest.fixture
def claimed(jobs: HenriJobs, app: Flask) -> list[Job]:
    """Three jobs that a process had claimed which is gone, with a permit for each."""

    @jobs.task(name="work", max_attempts=2, concurrency=3)
    def work() -> None: ...

    for _ in range(3):
        work.delay()
    return jobs.state.store.claims.take(Wish(runner=RUNNER, at_most=3, lanes=jobs.tasks.lanes()))


def lost(begun: list[str], **how: t.Any) -> Loss:
    return Loss(runner=RUNNER, begun=begun, reason="was killed by signal 9", suspect=True, **how)


def states(jobs: HenriJobs, claimed: list[Job]) -> list[tuple[str, int]]:
    """Return the state and the attempts of each job that was claimed."""
    now = [t.cast("Job", jobs.get(job.id)) for job in claimed]
    return [(job.state, job.attempts) for job in now]


def test_loss(jobs: HenriJobs, claimed: list[Job], losses: Losses, suspected: list[bool]) -> None:
    """W6: what had begun keeps its attempt, what had not gets it back, and the permits are free."""
    assert len(jobs.state.store.permits.held()) == 3

    losses.add(lost([claimed[0].id]))

    wait_until(lambda: not jobs.state.store.permits.held(), "the permits")
    assert states(jobs, claimed) == [("pending", 1), ("pending", 0), ("pending", 0)]
    assert suspected == [True]


def test_loss_of_an_outcome(
    jobs: HenriJobs, claimed: list[Job], losses: Losses, suspected: list[bool]
) -> None:
    """Q4: what had returned, and whose outcome was not stored, was performed: its attempt counts,
    and its history says why there is another. It is no suspect."""
    losses.add(lost([claimed[0].id], performed=[claimed[1].id]))

    wait_until(lambda: not jobs.state.store.permits.held(), "the permits")
    assert states(jobs, claimed) == [("pending", 1), ("pending", 1), ("pending", 0)]
    performed = t.cast("Job", jobs.get(claimed[1].id))
    assert str(performed.error).endswith(
        " was killed by signal 9 after performing this job, before its outcome was stored."
    )
    assert len(performed.history) == 1
    assert not performed.row.get("suspect")
    assert suspected == [True]


def test_loss_while_the_database_is_away(
    jobs: HenriJobs,
    claimed: list[Job],
    losses: Losses,
    client: MongoClient[dict[str, t.Any]],
) -> None:
    """W10: what the database does not answer to is tried again until it does."""
    with failing(client, "update", times=4, **CLOSED):
        losses.add(lost([claimed[0].id], is_certain=True))

        wait_until(
            lambda: states(jobs, claimed) == [("pending", 1), ("pending", 0), ("pending", 0)],
            "the jobs to be put back",
        )


def test_claim_that_lands_later(jobs: HenriJobs, claimed: list[Job], losses: Losses) -> None:
    """A5: a claim that takes effect after its process died is put back by a later look."""
    losses.add(lost([]))
    wait_until(lambda: states(jobs, claimed) == [("pending", 0)] * 3, "the first look")
    # Which gives back the permits a moment later.
    wait_until(lambda: not jobs.state.store.permits.held(), "the permits")

    late = jobs.state.store.claims.take(Wish(runner=RUNNER, at_most=3, lanes=jobs.tasks.lanes()))

    assert len(late) == 3
    wait_until(lambda: states(jobs, claimed) == [("pending", 0)] * 3, "the second look")


def test_signals_of_a_loss(app: Flask, jobs: HenriJobs, claimed: list[Job], losses: Losses) -> None:
    """A job that was recovered is told of, and one without attempts left as dead."""
    told: list[str] = []

    def hear(_app: Flask, job: Job, **facts: t.Any) -> None:
        told.append(job.id)

    jobs.database["henri_jobs"].update_one({"_id": claimed[0].id}, {"$set": {"attempts": 2}})
    with signals.job_died.connected_to(hear, app), signals.job_recovered.connected_to(hear, app):
        losses.add(lost([claimed[0].id]))
        wait_until(lambda: len(told) == 2, "both signals")

    assert told == [claimed[0].id] * 2
    assert states(jobs, claimed)[0] == ("dead", 2)


@pytest.mark.skipif(this_machine() is None, reason="the system does not tell processes apart")
@pytest.mark.parametrize(
    ("traits", "is_put_back"),
    [
        ({"born": "1"}, True),
        ({"born": "1", "machine": "another"}, False),
        ({}, False),
        ({"pid": 2**22 + 1}, True),
    ],
    ids=["its number was given again", "of another machine", "alive", "no such process"],
)
def test_runners_that_died_with_their_worker(
    app: Flask,
    jobs: HenriJobs,
    claimed: list[Job],
    suspected: list[bool],
    traits: dict[str, t.Any],
    is_put_back: bool,
) -> None:
    """W6: a worker that starts puts back what dead runners of its machine have, and no other's."""
    store = jobs.state.store
    facts = {"app": "shop", "host": "host", "pid": os.getpid(), "role": "jobs", "queues": "*"}
    facts |= {"threads": 3, "tasks": ["work"], **own_traits(), **traits}
    store.runners.write(RUNNER, **facts)
    losses = Losses(app, lambda: nullcontext(store), lambda: suspected.append(True))

    losses.start()
    # Something that is put back after it.
    store.runners.write("another:2:gone", **facts | {"born": "another", "machine": "another"})
    losses.add(Loss(runner="another:2:gone", begun=[], reason="left", suspect=False))
    wait_until(lambda: len(store.runners.of_machine("another")) < 2, "the look at the others")
    losses.finish(10)

    if is_put_back:
        assert states(jobs, claimed) == [("pending", 1)] * 3
        assert not store.permits.held()
        assert suspected == [True] * 3
        told = {past["message"] for job in claimed for past in job.refresh().history}
        assert told == {
            f"The runner {RUNNER} was killed with its worker while performing this job."
        }
    else:
        assert states(jobs, claimed) == [("running", 1)] * 3
        assert len(store.permits.held()) == 3
