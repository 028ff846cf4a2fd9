"""Real worker processes, each on queues of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

import shop
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from flask_henri_jobs import Job


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> Iterator[Flask]:
    app = shop.create_app(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    with app.app_context():
        yield app
    shop.jobs.state_of(app).close()


class StartWorker(t.Protocol):
    def __call__(self, queues: str) -> int:
        """Start a worker on some queues. Return the id of its process."""


@pytest.fixture
def start_worker(mongo_uri: str, database_name: str) -> Iterator[StartWorker]:
    environment = os.environ | {
        "PYTHONPATH": str(Path(shop.__file__).parent),
        "FLASK_HENRI_JOBS_URI": mongo_uri,
        "FLASK_HENRI_JOBS_DATABASE": database_name,
        "FLASK_HENRI_JOBS_POLL_INTERVAL": "100ms",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(queues: str) -> int:
        command = [sys.executable, "-m", "flask", "--app", "shop", "jobs", "worker", "-q", queues]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        return started[-1].pid

    yield start
    for process in started:
        process.terminate()
    for process in started:
        assert process.wait(30) == 0


def enqueue(queue: str, how_many: int) -> list[Job]:
    # A job that fails has on record who performed it.
    return [shop.jobs.enqueue("shop.fail", queue=queue) for _ in range(how_many)]


def takers(queue: str) -> set[int]:
    """Return the workers whose processes took the jobs of a queue."""
    attempts = [attempt for job in shop.jobs.list(queue=queue) for attempt in job.history]
    return {parent_of(str(attempt["runner"]).split(":")[1]) for attempt in attempts}


def parent_of(pid: str) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_workers_keep_to_their_queues(app: Flask, start_worker: StartWorker) -> None:
    """Q2: each worker takes from the queues that it was given, and nobody touches the others."""
    for queue in ("critical", "default", "mail", "low"):
        enqueue(queue, 20)
    untouched = [job.row for job in enqueue("unserved", 5)]

    first = start_worker("critical,default")
    second = start_worker("mail:4,low:1")
    wait_until(lambda: shop.jobs.count(state="dead") == 80, "the jobs of four queues")

    assert takers("critical") == takers("default") == {first}
    assert takers("mail") == takers("low") == {second}
    # What each would have done with its free time it has had the time for.
    later = enqueue("mail", 1)[0]
    wait_until(lambda: later.refresh().state == "dead", "a later job")
    assert sorted((job.row for job in shop.jobs.list(queue="unserved")), key=str) == sorted(
        untouched, key=str
    )


def test_named_queues_and_the_others(app: Flask, start_worker: StartWorker) -> None:
    """Q2: with ``*`` among the weights a worker takes from every queue there is."""
    for queue in ("mail", "low", "unheard-of"):
        enqueue(queue, 5)

    only = start_worker("mail:4,*:1")
    wait_until(lambda: shop.jobs.count(state="dead") == 15, "the jobs of every queue")

    assert takers("mail") == takers("low") == takers("unheard-of") == {only}
