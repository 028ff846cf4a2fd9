"""Limits over real workers that are killed, and stopped until others take over."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import typing as t
from collections import defaultdict
from pathlib import Path

import pytest
from flask import Flask
from pymongo import MongoClient

import limits_app
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

TESTS = Path(limits_app.__file__).parent
WORKERS, ACCOUNTS, JOBS = 4, 20, 2000
STUCK_SECONDS = 2

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]


class Workers:
    """Processes of ``flask jobs worker``, with which something is always wrong."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._pause = threading.Event()
        self._running = [self._start() for _ in range(WORKERS)]

    def kill_one(self) -> None:
        """End a worker as ``kill -9`` does, with its supervisor, and start another."""
        victim = random.randrange(WORKERS)
        self._kill(self._running[victim])
        self._running[victim] = self._start()

    def kill_a_runner(self) -> None:
        """End one runner process, which its supervisor notices."""
        worker = random.choice(self._running)
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        if children:
            os.kill(int(random.choice(children)), signal.SIGKILL)

    def stall_one(self) -> None:
        """Stop a worker for longer than its jobs may be silent, and let it go on."""
        worker = random.choice(self._running)
        os.killpg(worker.pid, signal.SIGSTOP)
        self._pause.wait(1.5 * STUCK_SECONDS)
        os.killpg(worker.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End all of them."""
        for worker in self._running:
            self._kill(worker)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "flask", "--app", "limits_app", "jobs", "worker", "-t", "4"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @staticmethod
    def _kill(worker: subprocess.Popen[bytes]) -> None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@pytest.fixture
def database(mongo_uri: str, database_name: str) -> Iterator[Database[Document]]:
    with MongoClient[Document](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
def workers(mongo_uri: str, database_name: str) -> Iterator[Workers]:
    app = Flask("builder")
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    limits_app.jobs.init_app(app)
    with app.app_context():
        limits_app.jobs.install()
        limits_app.load.delay_many({"account": n % ACCOUNTS, "n": n} for n in range(JOBS))
    limits_app.jobs.state_of(app).close()
    workers = Workers(
        os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
            "FLASK_HENRI_JOBS_URI": mongo_uri,
            "FLASK_HENRI_JOBS_DATABASE": database_name,
            "FLASK_HENRI_JOBS_POLL_INTERVAL": "100ms",
            "FLASK_HENRI_JOBS_STUCK_AFTER": f"{STUCK_SECONDS}s",
        }
    )
    yield workers
    workers.stop()


def test_killed_and_stalled_workers(workers: Workers, database: Database[Document]) -> None:
    """L3, L6: never more than the limit are inside, whatever becomes of those who hold permits;
    every job is performed, and no permit is left."""
    jobs, pause = database["henri_jobs"], threading.Event()
    wait_until(lambda: jobs.count_documents({"state": "done"}) > 0, "the first job to be done")
    harm = itertools.cycle([workers.kill_a_runner, workers.stall_one, workers.kill_one])
    while jobs.count_documents({"state": {"$ne": "done"}}):
        if jobs.count_documents({"state": "done"}) < 0.9 * JOBS:
            next(harm)()
        pause.wait(random.uniform(0.2, 0.5))
    wait_until(lambda: database["henri_jobs_limits"].count_documents({}) == 0, "free permits")

    most = {account: most_at_once(ones) for account, ones in intervals(database).items()}
    assert len(most) == ACCOUNTS
    assert max(most.values()) == limits_app.LIMIT, most
    # The harm came about: attempts were lost, and the jobs performed again.
    assert jobs.count_documents({"attempts": {"$gt": 1}}) > 0


def intervals(database: Database[Document]) -> dict[int, list[tuple[float, float]]]:
    """Return when somebody was inside, by account.

    An interval ends when its attempt left, or lost the job, whichever was first.
    """
    lost_at = {
        (row["_id"], entry["attempt"]): float(entry["at"])
        for row in database["henri_jobs"].find({"attempts": {"$gt": 1}})
        for entry in json.loads(row["history"])
    }
    inside = defaultdict(list)
    for visit in database["visits"].find():
        ends = [visit.get("left"), lost_at.get((visit["job"], visit["attempt"]))]
        [end, *_] = sorted(one for one in ends if one is not None)
        if visit["entered"] < end:
            inside[visit["account"]].append((visit["entered"], end))
    return inside


def most_at_once(inside: list[tuple[float, float]]) -> int:
    """Return how many intervals have a moment in common. One that ends makes room first."""
    changes = sorted([(end, -1) for _, end in inside] + [(start, 1) for start, _ in inside])
    return max(itertools.accumulate(change for _, change in changes))
