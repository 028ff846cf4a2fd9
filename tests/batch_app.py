"""An application for the tests of batches: ``flask --app batch_app jobs worker``."""

from __future__ import annotations

import threading
import typing as t

from flask import Flask

from flask_henri_jobs import Discard, HenriJobs, Retry, current_job

jobs = HenriJobs()


def create_app() -> Flask:
    """Return the application, set up from the environment."""
    app = Flask("batch_app")
    app.config.from_prefixed_env()
    jobs.init_app(app)
    return app


@jobs.task(name="member", max_attempts=100, backoff={"base": "20ms", "factor": 1})
def member(n: int) -> None:
    """Take some milliseconds; of ten, one is discarded and one fails the first time."""
    threading.Event().wait(0.002 * (n % 10))
    if n % 10 == 3:
        raise Discard("It is the third of ten.")
    if n % 10 == 7 and current_job.attempt == 1:
        raise Retry("It is the first attempt.")


@jobs.task(name="finished", max_attempts=100)
def finished(batch: dict[str, t.Any]) -> None:
    """Write down when it was called, and with what."""
    at = jobs.state.store.clock.now()
    jobs.database["called"].insert_one({"batch": batch, "at": at, "job": current_job.id})
