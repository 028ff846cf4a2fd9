"""``run_worker(once=True)`` ends when all is done, and not before."""

from __future__ import annotations

import threading
import typing as t

import pytest

if t.TYPE_CHECKING:
    from flask import Flask

    from flask_henri_jobs import HenriJobs
    from integration.conftest import MakeApp


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(HENRI_JOBS_POLL_INTERVAL="50ms")


def test_once_performs_what_its_jobs_enqueue(app: Flask, jobs: HenriJobs) -> None:
    """A job that a job enqueued into another queue is performed before the worker ends."""

    @jobs.task(queue="second")
    def follow() -> None: ...

    @jobs.task(queue="first")
    def lead() -> None:
        follow.delay()

    lead.delay()

    jobs.run_worker(once=True)

    assert {(job.queue, job.state) for job in jobs.list()} == {
        ("first", "done"),
        ("second", "done"),
    }


def test_once_sees_what_was_enqueued_after_the_last_run(app: Flask, jobs: HenriJobs) -> None:
    """A second run performs what came since the first, however soon after it."""

    @jobs.task
    def work() -> None: ...

    jobs.run_worker(once=True)
    work.delay()
    jobs.run_worker(once=True)

    assert jobs.count(state="done") == 1


def test_once_performs_suspects_alone(app: Flask, jobs: HenriJobs) -> None:
    """W6: jobs that ran in a process that died are performed one at a time, nothing beside them."""
    running: list[str] = []
    together: list[list[str]] = []

    @jobs.task
    def work(name: str) -> None:
        running.append(name)
        threading.Event().wait(0.02)
        together.append(list(running))
        running.remove(name)

    names = ["a", "b", "c"]
    suspects = {work.delay(name).id for name in names}
    collection = jobs.database["henri_jobs"]
    collection.update_many({}, {"$set": {"suspect": True}})
    for number in range(20):
        work.delay(str(number))

    jobs.run_worker(once=True, threads=4)

    assert {job.id for job in jobs.list(state="done")} >= suspects
    assert len(together) == 23
    assert [beside for beside in together if set(beside) & set(names)] == [["a"], ["b"], ["c"]]
    assert any(len(beside) > 1 for beside in together)
