"""From the command of a worker to its first job, above what importing the application takes."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

from example_app import create_app
from example_app.extensions import jobs
from example_app.tasks import import_rows

from .processes import FOLDER, running, until


def seconds_above_import(uri: str) -> float:
    """Return the seconds for the example application."""
    return seconds_to_first_job(uri) - seconds_to_import()


def seconds_to_import() -> float:
    """Return how long an interpreter takes to import the application, and to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import example_app"], check=True, cwd=FOLDER)
    return time.perf_counter() - began


def seconds_to_first_job(uri: str) -> float:
    """Return the time from the command to the start of a job that waits already."""
    database = f"bench_{uuid.uuid4().hex[:12]}"
    app = create_app(HENRI_JOBS_URI=uri, HENRI_JOBS_DATABASE=database)
    environment = {"FLASK_HENRI_JOBS_URI": uri, "FLASK_HENRI_JOBS_DATABASE": database}
    command = [sys.executable, "-m", "flask", "--app", "example_app", "jobs", "worker"]
    with app.app_context():
        job = import_rows.delay("bench", 1, [])
        # By the server's clock, as the start of the job is.
        began = jobs.state.store.clock.now()
        with running(command, **environment) as process:
            until(lambda: job.refresh().started_at is not None, "the first job", process)
            process.stop()
        jobs.client.drop_database(database)
        jobs.state.close()
    assert job.row["started_at"] is not None
    return (int(job.row["started_at"]) - began) / 1000
