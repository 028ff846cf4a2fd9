"""An application for the tests of processes: ``flask --app fleet_app jobs worker``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t

from flask import Flask

from flask_henri_jobs import HenriJobs, Job, current_job, signals

jobs = HenriJobs()

LATER = "import os, time; os.fork() or (os.setsid(), time.sleep(0.1)) and os._exit(0)"
"""A program that leaves an orphan behind, which ends a little later."""

if (code := os.environ.get("FLEET_DIES_AT_START")) and "--runner" in sys.argv:
    os._exit(int(code))


def create_app() -> Flask:
    """Return the application, set up from the environment."""
    app = Flask("fleet_app")
    app.config.from_prefixed_env()
    jobs.init_app(app)
    # Of this app only: a test may have imported the module, and run workers of other apps.
    signals.worker_stopping.connect(note_stopping, app)
    signals.job_lost.connect(note_lost, app)
    return app


@jobs.task(name="quick")
def quick(n: int) -> None:
    """Take two milliseconds."""
    threading.Event().wait(0.002)


@jobs.task(name="noted")
def noted(n: int) -> None:
    """Say by whom it is performed."""
    note(started=True)


@jobs.task(name="slow")
def slow(seconds: float) -> None:
    """Say by whom it is performed, and take so long."""
    note(started=True)
    threading.Event().wait(seconds)
    note(finished=True)


@jobs.task(name="brief")
def brief() -> None:
    """Take twenty milliseconds."""
    threading.Event().wait(0.02)


@jobs.task(name="silent")
def silent(seconds: float) -> None:
    """Take so long, and ask no database for anything."""
    threading.Event().wait(seconds)


@jobs.task(name="blocked", timeout="200ms", max_attempts=1)
def blocked() -> None:
    """Wait in a system call for what never comes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        note(started=True)
        ours.recv(1)


@jobs.task(name="asks")
def asks() -> None:
    """Go on until somebody cancels the job."""
    note(started=True)
    while not current_job.cancelled:
        time.sleep(0.01)
    note(ended="by itself")


@jobs.task(name="steps")
def steps() -> None:
    """Go on in short steps, and say what ended that."""
    note(started=True)
    try:
        while True:
            time.sleep(0.01)
    except BaseException as told:
        note(ended=type(told).__name__)
        raise


@jobs.task(name="stuck", max_attempts=3)
def stuck() -> None:
    """Wait in a system call for what never comes, for as long as it may."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        note(started=True)
        ours.recv(1)


@jobs.task(name="tell")
def tell(batch: dict[str, t.Any]) -> None:
    """Write down what a batch came to."""
    note(batch=batch)


@jobs.task(name="poison", max_attempts=3)
def poison() -> None:
    """End the process, once those beside it have begun."""
    threading.Event().wait(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.task(name="inside", max_attempts=100, concurrency={"limit": 2, "key": "key"})
def inside(key: int) -> None:
    """Say when it is inside, and under which claim."""
    claim = {"job": current_job.id, "token": current_job.row["claim_token"]}
    entered = time.time()
    visits = jobs.database["visits"]
    visit = visits.insert_one({**claim, "key": key, "entered": entered}).inserted_id
    threading.Event().wait(0.2)
    visits.update_one({"_id": visit}, {"$set": {"left": time.time()}})


@jobs.task(name="rated", max_attempts=1, rate=os.environ.get("FLEET_RATE", "100/10s"))
def rated() -> None:
    """Say when it begins."""
    jobs.database["starts"].insert_one({"at": time.time(), "attempt": current_job.attempts})


@jobs.task(name="leave", max_attempts=2)
def leave(code: int) -> None:
    """End the process with a code."""
    os._exit(code)


@jobs.task(name="fork")
def fork() -> None:
    """Leave the child to itself, which returns from here as this process does."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        note(code=os.waitstatus_to_exitcode(status))


@jobs.task(name="orphan")
def orphan() -> None:
    """Leave a process behind that nobody waits for."""
    subprocess.run([sys.executable, "-c", LATER], check=True)


def note_stopping(_app: Flask, **_facts: t.Any) -> None:
    """Write down that a runner stops."""
    jobs.database["notes"].insert_one({"stopping": True})


def note_lost(_app: Flask, job: Job, **_facts: t.Any) -> None:
    """Write down that an outcome was dropped."""
    jobs.database["notes"].insert_one({"lost": job.id, "pid": os.getpid()})


def note(**facts: t.Any) -> None:
    """Write something down about the job in hand."""
    jobs.database["notes"].insert_one({"job": current_job.id, "pid": os.getpid(), **facts})
