"""An app with tasks, whose jobs are performed when a test says so."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask
from pymongo import MongoClient

from batch_tasks import Tasks
from flask_henri_jobs import Discard, HenriJobs

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection
    from pymongo.database import Database

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> Flask:
    app = Flask("shop")
    app.config.update(
        HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name, HENRI_JOBS_POLL_INTERVAL="50ms"
    )
    return app


@pytest.fixture
def jobs(app: Flask) -> t.Iterator[HenriJobs]:
    jobs = HenriJobs(app)
    with app.app_context():
        jobs.install()
        yield jobs
        jobs.state.close()


@pytest.fixture
def tasks(jobs: HenriJobs) -> Tasks:
    called: list[tuple[str, Document]] = []

    @jobs.task(name="work")
    def work(n: int) -> None:
        pass

    @jobs.task(name="fail")
    def fail(n: int) -> None:
        raise Discard(f"{n} is no good")

    @jobs.task(name="once", unique="n")
    def once(n: int) -> None:
        pass

    @jobs.task(name="finished")
    def finished(batch: Document, account: int | None = None) -> None:
        called.append(("finished", batch | {"account": account}))

    @jobs.task(name="succeeded")
    def succeeded(batch: Document) -> None:
        called.append(("succeeded", batch))

    @jobs.task(name="failed")
    def failed(batch: Document) -> None:
        called.append(("failed", batch))

    return Tasks(work, fail, once, finished, called)


@pytest.fixture
def work_off(jobs: HenriJobs) -> Callable[[], None]:
    """Perform all that is due, and return."""
    return lambda: jobs.run_worker(once=True)


@pytest.fixture
def database(mongo_uri: str, database_name: str) -> t.Iterator[Database[Document]]:
    with MongoClient[Document](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
def stored(database: Database[Document]) -> Collection[Document]:
    """The jobs as they are stored."""
    return database["henri_jobs"]
