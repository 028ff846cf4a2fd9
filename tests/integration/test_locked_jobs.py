"""Putting back jobs whose documents are locked by a transaction that nobody ends."""

from __future__ import annotations

import time
import typing as t
from contextlib import nullcontext
from datetime import timedelta

import pytest

from flask_henri_jobs.outcome import Done
from flask_henri_jobs.store.connection import OPERATION_SECONDS
from flask_henri_jobs.store.leases import JobLocked, Leases
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.losses import Loss, Losses
from flask_henri_jobs.worker.marks import Marks
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from flask_henri_jobs import HenriJobs, Job
    from flask_henri_jobs.store import Store
    from flask_henri_jobs.store.job_transactions import JobSession

RUNNER, ANOTHER = "host:1:gone", "host:2:gone"


@pytest.fixture
def store(jobs: HenriJobs) -> Store:
    return jobs.state.store


@pytest.fixture
def claimed(jobs: HenriJobs, store: Store) -> list[Job]:
    """Three jobs that a process had claimed which is gone."""

    @jobs.task(name="work", max_attempts=9)
    def work() -> None: ...

    work.delay_many([{}] * 3)
    return store.claims.take(Wish(runner=RUNNER, at_most=3))


@pytest.fixture
def session(store: Store, claimed: list[Job]) -> Iterator[JobSession]:
    """The transaction of the first of them, open on the server, its outcome written."""
    session = store.job_transactions.begin(None)
    outcome = Done(at=store.clock.now(), duration=1)
    assert store.job_transactions.write(session, claimed[0], outcome)
    yield session
    store.job_transactions.end(session)


@pytest.fixture
def losses(app: Flask, store: Store) -> Iterator[Losses]:
    losses = Losses(app, lambda: nullcontext(store), lambda: None)
    losses.start()
    yield losses
    losses.finish(10)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that were to be recovered, in this order."""
    tried: list[str] = []
    recover_from = Leases.recover_from

    def recover(self: Leases, *args: t.Any, **how: t.Any) -> list[Job]:
        tried.extend(args[2])
        return recover_from(self, *args, **how)

    monkeypatch.setattr(Leases, "recover_from", recover)
    return tried


def states(claimed: list[Job]) -> list[str]:
    return [job.refresh().state for job in claimed]


@pytest.mark.parametrize("known", [True, False])
def test_loss(
    store: Store,
    claimed: list[Job],
    session: JobSession,
    losses: Losses,
    tried: list[str],
    known: bool,
) -> None:
    """X2: a locked job delays none of those that its process had, nor another's; it is put back
    as soon as its transaction has ended. Until then its runner is not forgotten."""
    ids = [job.id for job in claimed]
    store.runners.write(RUNNER, app="shop", host="host", pid=1, queues="*", threads=3)
    others = store.claims.take(Wish(runner=ANOTHER, at_most=1))
    assert others == []
    how: dict[str, t.Any] = {"reason": "was killed by signal 9", "suspect": True}
    # A process says which were being committed; one that died with its supervisor does not.
    begun, committing = (ids[1:2], ids[:1]) if known else (ids[:2], [])

    began = time.monotonic()
    losses.add(Loss(runner=RUNNER, begun=begun, committing=committing, **how))
    wait_until(lambda: states(claimed)[1:] == ["pending", "pending"], "the others")
    took = time.monotonic() - began

    # At once, where it was known which is locked; else after a look at each.
    assert tried[0] == (ids[1] if known else ids[0])
    assert took < OPERATION_SECONDS / 2
    assert claimed[0].refresh().state == "running"
    took_over = store.claims.take(Wish(runner=ANOTHER, at_most=2))
    assert {job.id for job in took_over} <= set(ids[1:])
    began = time.monotonic()
    losses.add(Loss(runner=ANOTHER, begun=[job.id for job in took_over], **how))
    wait_until(lambda: states(claimed)[1:] == ["pending", "pending"], "another's")
    assert time.monotonic() - began < OPERATION_SECONDS / 2
    assert RUNNER in _runners(store)

    store.job_transactions.end(session)
    wait_until(lambda: states(claimed)[0] == "pending", "the locked one")
    wait_until(lambda: RUNNER not in _runners(store), "the runner to be forgotten")
    assert bool(claimed[0].row.get("suspect")) is not known
    assert ("before its outcome was stored" in str(claimed[0].error)) is known


def _runners(store: Store) -> list[str]:
    return [row["_id"] for row in store.connection.collection("runners").find()]


def test_recovery_by_heartbeat(
    store: Store, claimed: list[Job], session: JobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X2: a recovery puts back those that are not locked, and the locked one in a later round."""
    monkeypatch.setattr("flask_henri_jobs.store.leases.LOCKED_SECONDS", 0.3)
    began = time.monotonic()
    store.clock.renew()
    back = store.leases.recover(timedelta(milliseconds=-60_000), at_once=True)

    assert time.monotonic() - began < OPERATION_SECONDS / 2
    assert sorted(job.id for job in back) == sorted(job.id for job in claimed[1:])
    assert [job.state for job in back] == ["pending"] * 2
    assert store.leases.recover(timedelta(milliseconds=-60_000), at_once=True) == []
    with pytest.raises(JobLocked, match="is put back later"):
        store.leases.recover_from(RUNNER, "was stopped")
    store.job_transactions.end(session)
    (last,) = store.leases.recover(timedelta(milliseconds=-60_000), at_once=True)
    assert last.id == claimed[0].id


def test_commit_after_a_recovery(store: Store, claimed: list[Job]) -> None:
    """X2: the outcome of a job that was put back meanwhile aborts its transaction."""
    session = store.job_transactions.begin(None)
    try:
        assert store.leases.recover_from(RUNNER, "was stopped")
        outcome = Done(at=store.clock.now(), duration=1)
        assert store.job_transactions.write(session, claimed[0], outcome) is None
    finally:
        store.job_transactions.end(session)
    assert claimed[0].refresh().state == "pending"


def test_marks() -> None:
    """X2: a process says which of its jobs are being committed."""
    marks = Marks()
    first, second = marks.begin("first"), marks.begin("second")
    marks.commits(first)
    assert (marks.begun(), marks.committing(), marks.performed()) == (["second"], ["first"], [])
    marks.commits(second)
    marks.commits(second, so=False)
    assert (marks.begun(), marks.committing()) == (["second"], ["first"])
    marks.returned(first)
    marks.end(second)
    assert (marks.begun(), marks.committing(), marks.performed()) == ([], [], ["first"])
