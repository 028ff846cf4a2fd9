"""The application of :mod:`fleet_app`, and workers of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from flask import Flask
from pymongo import MongoClient

import fleet_app
from fleet import Start, Worker

if t.TYPE_CHECKING:
    from pymongo.database import Database

TESTS = Path(fleet_app.__file__).parent

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def database(mongo_uri: str, database_name: str) -> t.Iterator[Database[Document]]:
    with MongoClient[Document](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> t.Iterator[Flask]:
    app = Flask("fleet_app")
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    fleet_app.jobs.init_app(app)
    with app.app_context():
        fleet_app.jobs.install()
        yield app
    fleet_app.jobs.state_of(app).close()


@pytest.fixture
def start(
    mongo_uri: str, database_name: str, tmp_path: Path, app: Flask, database: Database[Document]
) -> t.Iterator[Start]:
    """Start ``flask jobs worker`` with some options."""
    workers: list[Worker] = []

    def start(
        *args: str, wrapped: str | None = None, folder: Path | None = None, **env: str
    ) -> Worker:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, [folder or TESTS, TESTS, TESTS.parent])),
            "FLASK_HENRI_JOBS_URI": mongo_uri,
            "FLASK_HENRI_JOBS_DATABASE": database_name,
            "FLASK_HENRI_JOBS_POLL_INTERVAL": "50ms",
            **env,
        }
        flask = ["-m", "flask", "--app", "fleet_app", "jobs", "worker", *args]
        output = tmp_path / f"output-{len(workers)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *(["-c", wrapped] if wrapped else []), *flask],
                env=environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        worker = Worker(process, output, database["henri_jobs_runners"])
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
