"""Long and short jobs side by side: none waits behind a long one while others have time (W4)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import typing as t
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from flask import Flask
from pymongo import MongoClient

import mixed_app
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

Document: t.TypeAlias = dict[str, t.Any]
Idle: t.TypeAlias = dict[str, list[tuple[float, float]]]
"""By thread, since when it was idle, and until when."""

TESTS = Path(mixed_app.__file__).parent
LONG, SHORT = 8, 1_000
LONGEST_WAIT = 0.25

pytestmark = [pytest.mark.faults, pytest.mark.undisturbed]


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> Iterator[Flask]:
    app = Flask("mixed_app")
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    mixed_app.jobs.init_app(app)
    with app.app_context():
        yield app
    mixed_app.jobs.state_of(app).close()


@pytest.mark.timeout(90)
def test_no_job_waits_behind_a_long_one(app: Flask, mongo_uri: str, database_name: str) -> None:
    """W4: of 8 long jobs and 1,000 short ones on 2 x 4 threads, each begins within 250 ms of the
    later of its claim and the moment a thread of another runner became idle."""
    enqueue()
    with MongoClient[Document](mongo_uri) as client:
        database = client[database_name]
        perform_all(database, mongo_uri)
        notes = list(database["notes"].find())
        claims = {row["number"]: row["claimed_at"] / 1000 for row in claimed(database)}

    assert len(notes) == LONG + SHORT
    idle = idle_times(notes)
    waits = [wait_of(note, claims[note["number"]], idle) for note in notes]
    assert max(waits) < LONGEST_WAIT


def enqueue() -> None:
    """Store the long jobs among the short ones, where chance has it."""
    long_ones = set(random.Random(5).sample(range(LONG + SHORT), LONG))
    for number in range(LONG + SHORT):
        if number in long_ones:
            mixed_app.long.delay(number)
        else:
            mixed_app.short.delay(number)


def perform_all(database: Database[Document], uri: str) -> None:
    """Have a worker perform what waits, and stop it."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "FLASK_HENRI_JOBS_URI": uri,
        "FLASK_HENRI_JOBS_DATABASE": database.name,
    }
    flask = [sys.executable, "-m", "flask", "--app", "mixed_app", "jobs", "worker"]
    command = [*flask, "-p", "2", "-t", "4"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as worker:
        try:
            done = {"state": "done"}
            wait_until(
                lambda: database["henri_jobs"].count_documents(done) == LONG + SHORT, "the last job"
            )
            worker.terminate()
            assert worker.wait(30) == 0
        finally:
            worker.kill()


def claimed(database: Database[Document]) -> Iterator[Document]:
    for row in database["henri_jobs"].find({}, ["args", "claimed_at"]):
        yield {"number": int(row["args"].partition(":")[2].strip("}")), **row}


def wait_of(note: Document, claimed_at: float, idle: Idle) -> float:
    """Return for how long a claimed job waited although another runner had an idle thread."""
    pid = note["thread"].partition(":")[0]
    idle_since = [
        since
        for thread, gaps in idle.items()
        if thread.partition(":")[0] != pid
        for since, until in gaps
        if since < note["began"] <= until
    ]
    if not idle_since:
        return 0.0
    began: float = note["began"]
    return began - max(claimed_at, min(idle_since))


def idle_times(notes: list[Document]) -> Idle:
    """Return the times between the jobs of each thread, the one after its last included."""
    by_thread: dict[str, list[Document]] = defaultdict(list)
    for note in sorted(notes, key=lambda note: note["began"]):
        by_thread[note["thread"]].append(note)
    return {
        thread: [
            *[(one["ended"], other["began"]) for one, other in pairwise(own)],
            (own[-1]["ended"], float("inf")),
        ]
        for thread, own in by_thread.items()
    }
