"""``flask jobs worker`` of the fleet, run for a test and killed after it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

from flask import Flask

import fleet_app

if t.TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(fleet_app.__file__).parent

DOWN, UP = "The database is away", "The database answers again."


@contextlib.contextmanager
def fleet(uri: str, database: str) -> Iterator[Flask]:
    """Return the fleet's app, installed in a database, in its context."""
    app = Flask("fleet_app")
    app.config.update(HENRI_JOBS_URI=uri, HENRI_JOBS_DATABASE=database)
    fleet_app.jobs.init_app(app)
    with app.app_context():
        fleet_app.jobs.install()
        yield app
    fleet_app.jobs.state_of(app).close()


@contextlib.contextmanager
def worker_of(
    uri: str, database: str, output: Path, *options: str, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker whose output goes to a file.

    :param settings: By the ends of their names.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, [TESTS, TESTS.parent])),
        "FLASK_HENRI_JOBS_URI": uri,
        "FLASK_HENRI_JOBS_DATABASE": database,
        **{f"FLASK_HENRI_JOBS_{name.upper()}": value for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "flask", "--app", "fleet_app", "jobs", "worker", *options]
    with output.open("ab") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a worker with all its processes, as the kernel does; it may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
