"""Batches over real workers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import typing as t
from pathlib import Path

import pytest
from flask import Flask
from pymongo import MongoClient

import batch_app
from mongod import wait_until

if t.TYPE_CHECKING:
    from pymongo.database import Database

TESTS = Path(batch_app.__file__).parent
BATCHES, MEMBERS, WORKERS, KILLS = 50, 40, 3, 10

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]


class Workers:
    """Processes of ``flask jobs worker``, which are killed and replaced."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._running = [self._start() for _ in range(WORKERS)]

    def kill_one(self) -> None:
        """End one as ``kill -9`` does, whatever it is at, and start another."""
        victim = random.randrange(WORKERS)
        _kill(self._running[victim])
        self._running[victim] = self._start()

    def stop(self) -> None:
        """End all of them."""
        for process in self._running:
            _kill(process)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "flask", "--app", "batch_app", "jobs", "worker", "-t", "3"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _kill(worker: subprocess.Popen[bytes]) -> None:
    """End a worker's processes, the supervisor and its runners alike."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


@pytest.fixture
def environment(mongo_uri: str, database_name: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "FLASK_HENRI_JOBS_URI": mongo_uri,
        "FLASK_HENRI_JOBS_DATABASE": database_name,
        "FLASK_HENRI_JOBS_POLL_INTERVAL": "100ms",
        "FLASK_HENRI_JOBS_STUCK_AFTER": "2s",
    }


@pytest.fixture
def database(mongo_uri: str, database_name: str) -> t.Iterator[Database[Document]]:
    with MongoClient[Document](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
def app(environment: dict[str, str]) -> t.Iterator[Flask]:
    app = Flask("builder")
    app.config.update(
        HENRI_JOBS_URI=environment["FLASK_HENRI_JOBS_URI"],
        HENRI_JOBS_DATABASE=environment["FLASK_HENRI_JOBS_DATABASE"],
    )
    batch_app.jobs.init_app(app)
    yield app
    batch_app.jobs.state_of(app).close()


@pytest.fixture
def workers(environment: dict[str, str], app: Flask) -> t.Iterator[Workers]:
    with app.app_context():
        batch_app.jobs.install()
    workers = Workers(environment)
    yield workers
    workers.stop()


def test_killed_workers(app: Flask, workers: Workers, database: Database[Document]) -> None:
    """B1 to B3: with workers killed at random moments, each batch calls back once, after its last
    job, with counts that are those of its members' states."""
    pause = threading.Event()
    with app.app_context():
        for number in range(BATCHES):
            with batch_app.jobs.batch(callback=batch_app.finished, name=str(number)) as batch:
                batch.add_many(batch_app.member, [{"n": n} for n in range(MEMBERS)])
            if number % (BATCHES // KILLS) == 0:
                workers.kill_one()
                pause.wait(random.uniform(0.2, 1.0))

    wait_until(lambda: unfinished(database) == 0, "the batches to finish")

    jobs, called = database["henri_jobs"], database["called"]
    for batch_row in database["henri_jobs_batches"].find():
        batch_id = batch_row["_id"]
        states = [job["state"] for job in jobs.find({"batch_id": batch_id})]
        counts = {
            "total": MEMBERS,
            "done": states.count("done") + states.count("dead"),
            "failed": states.count("dead"),
        }
        [callback] = jobs.find({"unique_key": f"batch:{batch_id}"})
        calls = list(called.find({"batch.id": batch_id}))
        last = max(job["finished_at"] for job in jobs.find({"batch_id": batch_id}))

        assert {name: batch_row[name] for name in counts} == counts
        assert counts["done"] == MEMBERS
        assert batch_row["callback_id"] == callback["_id"]
        assert {call["job"] for call in calls} == {callback["_id"]}
        assert min([callback["started_at"], *(call["at"] for call in calls)]) >= last
        told = {"succeeded": MEMBERS - counts["failed"], "id": batch_id, "name": batch_row["name"]}
        assert all(call["batch"] == counts | told for call in calls)
    assert jobs.count_documents({"name": "finished"}) == BATCHES


def unfinished(database: Database[Document]) -> int:
    """Return how much is not over: batches, and callbacks that nobody was given yet."""
    jobs, batches = database["henri_jobs"], database["henri_jobs_batches"]
    return batches.count_documents({"finished_at": None}) + jobs.count_documents(
        {"state": {"$in": ["pending", "running"]}}
    )
