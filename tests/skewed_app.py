"""An application for processes whose wall clock is wrong: ``flask --app skewed_app jobs worker``.

``python -m skewed_app`` enqueues, as a web process with such a clock does.
"""

from __future__ import annotations

import threading
import time
import typing as t

# libfaketime 0.9.10 breaks the sleep of Python 3.11 and later where the monotonic clock is left
# alone: https://github.com/wolfcw/libfaketime/issues/426. This one sleeps in another way.
setattr(time, "sleep", threading.Event().wait)  # noqa: B010 - it returns something, unlike sleep

from flask import Flask  # noqa: E402 - after that

from flask_henri_jobs import HenriJobs, current_job  # noqa: E402

jobs = HenriJobs()

DELAY = "1500ms"


def create_app() -> Flask:
    """Return the application, set up from the environment."""
    app = Flask("skewed_app")
    app.config.from_prefixed_env()
    jobs.init_app(app)
    return app


@jobs.task(name="slow")
def slow() -> None:
    """Be in hand for as long as the test lasts."""
    note("slow")
    threading.Event().wait(4)


@jobs.task(name="later")
def later(enqueued_by: str) -> None:
    """Note when it began."""
    note("later", enqueued_by=enqueued_by)


@jobs.task(name="tick", every="1s")
def tick() -> None:
    """Note the slot."""
    note("tick", due_at=current_job.due_at)


def note(name: str, **facts: t.Any) -> None:
    """Write down what began, and the clock of the process that performed it."""
    jobs.database["begun"].insert_one({"name": name, "wall": time.time(), **facts})


if __name__ == "__main__":
    with create_app().app_context():
        later.using(wait=DELAY).delay_many({"enqueued_by": f"{time.time():.0f}"} for _ in range(3))
