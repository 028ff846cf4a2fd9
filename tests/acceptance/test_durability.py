"""The embedded database, killed again and again while somebody enqueues."""

from __future__ import annotations

import os
import signal
import threading
import typing as t

import pytest
from flask import Flask

from flask_henri_jobs import HenriJobs, StoreUnavailable
from flask_henri_jobs.store.embedded import share_server
from mongod import temporary_folder

if t.TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.faults

ROUNDS = int(os.environ.get("DURABILITY_ROUNDS", "10"))


@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_nothing_acknowledged_is_missing(has_mongod: None) -> None:
    """A6: Whatever ``delay`` has returned is there after ``kill -9`` of the database, each time."""
    acknowledged: list[str] = []
    with temporary_folder() as folder:
        for number in range(ROUNDS):
            with_one_server(folder, acknowledged, kill_after=0.05 + 0.01 * (number % 20))
        server = share_server(folder, None)
        try:
            jobs, app = queue_on(server.uri)
            with app.app_context():
                stored = set(jobs.database["henri_jobs"].distinct("_id"))
                jobs.state.close()
        finally:
            server.leave()
    print(f"{ROUNDS} kills, {len(acknowledged)} acknowledged, {len(stored)} stored")

    assert len(acknowledged) > ROUNDS
    assert set(acknowledged) <= stored


def queue_on(uri: str) -> tuple[HenriJobs, Flask]:
    app = Flask("shop")
    app.config.update(
        HENRI_JOBS_URI=uri, HENRI_JOBS_DATABASE="durable", HENRI_JOBS_ENQUEUE_TIMEOUT="1s"
    )
    return HenriJobs(app), app


def with_one_server(folder: Path, acknowledged: list[str], kill_after: float) -> None:
    """Start the server, enqueue, and kill it meanwhile."""
    server = share_server(folder, None)
    jobs, app = queue_on(server.uri)
    try:
        with app.app_context():
            pid = jobs.client.admin.command("serverStatus")["pid"]
            jobs.install()
            killing = threading.Timer(kill_after, os.kill, (int(pid), signal.SIGKILL))
            killing.start()
            try:
                while True:
                    acknowledged.append(jobs.enqueue("note").id)
            except StoreUnavailable:
                killing.join()
            jobs.state.close()
    finally:
        server.leave()
