"""``run_worker(once=True)`` ends when all is done, and not before."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask

from flask_henri_jobs import HenriJobs

if t.TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def jobs() -> HenriJobs:
    return HenriJobs()


@pytest.fixture
def app(mongo_uri: str, database_name: str, jobs: HenriJobs) -> Iterator[Flask]:
    app = Flask(__name__)
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    app.config["HENRI_JOBS_POLL_INTERVAL"] = "50ms"
    jobs.init_app(app)
    with app.app_context():
        yield app
    jobs.state_of(app).close()


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
