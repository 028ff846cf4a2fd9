"""An application whose only task recurs: ``flask --app clock_app jobs worker``."""

from __future__ import annotations

import os
import signal
import typing as t

from flask import Flask

from flask_henri_jobs import HenriJobs, Job, current_job, signals

jobs = HenriJobs()


def create_app(**config: t.Any) -> Flask:
    """Return the application, set up from the environment and from what is given."""
    app = Flask("clock_app")
    app.config.from_prefixed_env()
    app.config.update(config)
    jobs.init_app(app)
    return app


@jobs.task(name="tick", every="1s")
def tick() -> None:
    """Note the slot."""
    jobs.database["ticks"].insert_one({"due_at": current_job.due_at})


def die(_app: Flask, job: Job, **_facts: t.Any) -> None:
    """End a runner where a slot is enqueued and its schedule not moved on yet; a third of them."""
    slot = int(str(job.unique_key).rpartition(":")[2])
    if slot % 3000 == 0:
        jobs.database["deaths"].insert_one({"slot": slot})
        os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get("CLOCK_DIES"):
    signals.schedule_fired.connect(die)
