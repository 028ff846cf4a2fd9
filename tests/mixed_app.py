"""An application whose runners write down when each job began and ended, when they stop."""

from __future__ import annotations

import os
import threading
import time
import typing as t

from flask import Flask

from flask_henri_jobs import HenriJobs, signals

jobs = HenriJobs()

noted: list[dict[str, t.Any]] = []


def create_app() -> Flask:
    """Return the application, set up from the environment."""
    app = Flask("mixed_app")
    app.config.from_prefixed_env()
    jobs.init_app(app)
    # Of this app only: a test may have imported the module, and run workers of other apps.
    signals.worker_stopping.connect(write_down, app)
    return app


@jobs.task(name="long")
def long(number: int) -> None:
    """Take two seconds."""
    take(number, 2.0)


@jobs.task(name="short")
def short(number: int) -> None:
    """Take five milliseconds."""
    take(number, 0.005)


def take(number: int, seconds: float) -> None:
    began = time.time()
    threading.Event().wait(seconds)
    thread = f"{os.getpid()}:{threading.get_ident()}"
    noted.append({"number": number, "thread": thread, "began": began, "ended": time.time()})


def write_down(_app: Flask, **_facts: t.Any) -> None:
    """Leave the notes in the database."""
    if noted:
        jobs.database["notes"].insert_many(noted)
