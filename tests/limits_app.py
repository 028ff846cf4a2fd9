"""An application for the tests of limits: ``flask --app limits_app jobs worker``."""

from __future__ import annotations

import threading
import time

from flask import Flask

from flask_henri_jobs import HenriJobs, current_job

LIMIT = 2

jobs = HenriJobs()


def create_app() -> Flask:
    """Return the application, set up from the environment."""
    app = Flask("limits_app")
    app.config.from_prefixed_env()
    jobs.init_app(app)
    return app


def now() -> float:
    """Return the time in milliseconds; all processes of the test are on one host."""
    return time.time() * 1000


@jobs.task(name="load", max_attempts=1000, concurrency={"limit": LIMIT, "key": "account"})
def load(account: int, n: int) -> None:
    """Write down when it is inside."""
    entered = now()
    visits = jobs.database["visits"]
    visit = {"job": current_job.id, "attempt": current_job.attempt, "account": account}
    inserted = visits.insert_one({**visit, "entered": entered})
    threading.Event().wait(0.01 * (n % 4))
    visits.update_one({"_id": inserted.inserted_id}, {"$set": {"left": now()}})
