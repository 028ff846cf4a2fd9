"""The application that is measured, and databases for it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import typing as t
import uuid
from pathlib import Path

from flask import Flask

from flask_henri_jobs import HenriJobs, current_job, signals

jobs = HenriJobs()

NOTES = "BENCH_NOTES"
"""The environment variable that names the file which tasks write to."""

SEEN = "bench_seen"
"""The collection in which each runner leaves how often it saw ``job_succeeded``."""


EFFECTS = "bench_effects"
"""The collection that tasks write to in their transactions."""


@jobs.task(queue="default")
def nothing(number: int) -> None:
    """Do nothing."""


@jobs.task(queue="default", concurrency={"limit": 1, "key": "key"})
def limited(number: int, key: str) -> None:
    """Do nothing, one at a time of a key."""


@jobs.task(queue="default")
def transacting(number: int) -> None:
    """Have one effect, with the job's own outcome."""
    with current_job.transaction() as tx:
        jobs.database[EFFECTS].insert_one({"number": number}, session=tx)


@jobs.task(queue="default", max_attempts=1)
def sometimes(number: int) -> None:
    """Fail every tenth time."""
    if number % 10 == 0:
        raise ValueError(f"number {number} fails on purpose")


@jobs.task(queue="default")
def short(seconds: float) -> None:
    """Wait for something, as a call of another service does."""
    threading.Event().wait(seconds)


@jobs.task(queue="default")
def noted(number: int) -> None:
    """Write down when this first line was reached, by the clock that all processes share."""
    began = time.monotonic_ns()
    with Path(os.environ[NOTES]).open("a") as file:
        file.write(f"{number} {began}\n")


def create_app(uri: str, database: str) -> Flask:
    """Return the application on a server."""
    app = Flask(__name__)
    app.config.update(HENRI_JOBS_URI=uri, HENRI_JOBS_DATABASE=database)
    jobs.init_app(app)
    return app


class _Seen:
    """Counts the successes that a runner announces."""

    def __init__(self) -> None:
        self._count = 0
        signals.job_succeeded.connect(self.succeeded)
        signals.worker_stopped.connect(self.stopped)

    def succeeded(self, _app: Flask, **_: t.Any) -> None:
        """Count one; all are announced by one thread."""
        self._count += 1

    def stopped(self, _app: Flask, **_: t.Any) -> None:
        """Leave the count."""
        jobs.database[SEEN].insert_one({"succeeded": self._count})


_seen = _Seen()


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
