"""The application that is measured: tasks that do nothing."""

from __future__ import annotations

import contextlib
import time
import typing as t
import uuid

from flask import Flask

from flask_henri_jobs import HenriJobs

jobs = HenriJobs()


@jobs.task(queue="default")
def nothing(number: int) -> None:
    """Do nothing."""


@jobs.task(queue="default", concurrency={"limit": 1, "key": "key"})
def limited(number: int, key: int) -> None:
    """Do nothing, one of a key at a time."""


def create_app(uri: str, database: str) -> Flask:
    """Return the application on a server."""
    app = Flask(__name__)
    app.config.update(HENRI_JOBS_URI=uri, HENRI_JOBS_DATABASE=database)
    jobs.init_app(app)
    return app


@contextlib.contextmanager
def fresh(uri: str) -> t.Iterator[str]:
    """Enter the application on a database of its own, with its indexes. Yield the name of that."""
    database = f"bench_{uuid.uuid4().hex[:12]}"
    app = create_app(uri, database)
    with app.app_context():
        jobs.install()
        try:
            yield database
        finally:
            jobs.client.drop_database(database)
            jobs.state.close()


def rate(number: int, measured: t.Callable[[], object]) -> float:
    """Return how many a second that is."""
    began = time.perf_counter()
    measured()
    return number / (time.perf_counter() - began)
