"""The application that is soaked: tasks of every kind, each of which may be performed again."""

from __future__ import annotations

import asyncio
import logging
import random
import threading

from flask import Flask

from flask_henri_jobs import Discard, HenriJobs, Retry, Snooze, current_job

jobs = HenriJobs()

SLOT_SECONDS = 5
SLOTS = "soaked slot"
"""The name of the schedule."""

SHORT_SECONDS, LONG_SECONDS = 0.01, 3.0
ATTEMPTS = 8
"""More than kills and failures use up together, and fewer than a history has entries."""

LIMIT, KEYS = 2, 4

QUICKLY = {"base": "200ms", "factor": 1.5}

log = logging.getLogger(__name__)


def create_app(**settings: str) -> Flask:
    """Return the application, set up from the environment and by what is given."""
    app = Flask("soak")
    app.config.from_prefixed_env()
    app.config.update(settings)
    app.config["HENRI_JOBS_MAX_ATTEMPTS"] = ATTEMPTS
    app.config["HENRI_JOBS_BACKOFF"] = QUICKLY
    app.config["HENRI_JOBS_SCHEDULES"] = {
        SLOTS: {"task": "slot", "every": f"{SLOT_SECONDS}s", "args": {}}
    }
    jobs.init_app(app)
    return app


@jobs.task(name="short", store_result=True)
def short(number: int) -> int:
    """Take some milliseconds."""
    wait(SHORT_SECONDS)
    return number


@jobs.task(name="long", keep_logs=True)
def long(number: int) -> None:
    """Take seconds, and say how far it is."""
    for step in range(10):
        current_job.set_progress(step, 10)
        wait(LONG_SECONDS / 10)
    log.warning("Number %d was long.", number)


@jobs.task(name="coroutine")
async def coroutine(number: int) -> None:
    """Wait as a coroutine does."""
    await asyncio.sleep(SHORT_SECONDS)


@jobs.task(name="failing", max_attempts=3)
def failing(number: int) -> None:
    """Fail twice in three times, one way or another."""
    wait(SHORT_SECONDS)
    match random.randrange(9):
        case 0:
            raise Retry(wait="100ms")
        case 1:
            raise Snooze("300ms")
        case 2:
            raise Discard("It is one in nine.")
        case 3 | 4 | 5:
            raise ValueError(f"number {number} fails on purpose")


@jobs.task(name="endless", timeout="500ms", max_attempts=2)
def endless(number: int) -> None:
    """Go on for longer than it may."""
    wait(60)


@jobs.task(name="limited", concurrency={"limit": LIMIT, "key": "key"})
def limited(key: int) -> None:
    """Be inside with at most so many others of its key."""
    wait(0.1)


@jobs.task(name="rated", rate="20/s")
def rated(number: int) -> None:
    """Begin as often as it may."""


@jobs.task(name="once", unique="key")
def once(key: int) -> None:
    """Be alone with its key, while it waits and while it runs."""
    wait(0.05)


@jobs.task(name="paused", queue="paused")
def paused(number: int) -> None:
    """Wait in a queue that is paused for a while, now and then."""


@jobs.task(name="member")
def member(number: int) -> None:
    """Be one of a batch; of ten one fails for good."""
    wait(SHORT_SECONDS)
    if number % 10 == 3:
        raise Discard("It is the third of ten.")


@jobs.task(name="finished")
def finished(batch: dict[str, object]) -> None:
    """Be called when a batch is over."""


@jobs.task(name="slot")
def slot() -> None:
    """Be the job of a schedule's slot."""


@jobs.task(name="far")
def far(number: int) -> None:
    """Be due long after the end."""


def wait(seconds: float) -> None:
    """Wait, as a call of another service does, and be interrupted where that is due."""
    ended = threading.Event()
    for _ in range(max(1, round(seconds / 0.1))):
        ended.wait(min(seconds, 0.1))
