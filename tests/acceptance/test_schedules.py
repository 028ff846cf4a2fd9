"""Real worker processes that all fire one schedule."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest
from pymongo import MongoClient

import clock_app
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

Document: t.TypeAlias = dict[str, t.Any]

pytestmark = pytest.mark.faults

SLOTS = 30


@pytest.fixture
def database(mongo_uri: str, database_name: str) -> Iterator[Database[Document]]:
    with MongoClient[Document](mongo_uri) as client:
        yield client[database_name]


class StartWorkers(t.Protocol):
    def __call__(self, how_many: int, **environment: str) -> None: ...


@pytest.fixture
def start_workers(mongo_uri: str, database_name: str) -> Iterator[StartWorkers]:
    command = [sys.executable, "-m", "flask", "--app", "clock_app", "jobs", "worker"]
    started: list[subprocess.Popen[bytes]] = []

    def start(how_many: int, **environment: str) -> None:
        given = os.environ | {
            "PYTHONPATH": str(Path(clock_app.__file__).parent),
            "FLASK_HENRI_JOBS_URI": mongo_uri,
            "FLASK_HENRI_JOBS_DATABASE": database_name,
            **environment,
        }
        started.extend(
            subprocess.Popen(command, env=given, stderr=subprocess.DEVNULL) for _ in range(how_many)
        )

    yield start
    for process in started:
        process.terminate()
    for process in started:
        assert process.wait(40) == 0


def seconds_of_ticks(database: Database[Document]) -> list[float]:
    """Return the slots that jobs were performed for, in seconds since the epoch."""
    found = database["ticks"].find()
    return [tick["due_at"].replace(tzinfo=UTC).timestamp() for tick in found]


def runners(database: Database[Document]) -> int:
    """Return how many runners have performed a job."""
    return len(database["henri_jobs"].distinct("claimed_by"))


@pytest.mark.timeout(180)
def test_five_workers(database: Database[Document], start_workers: StartWorkers) -> None:
    """S1, S8: five workers perform each of the thirty slots of half a minute once."""
    start_workers(5)
    wait_until(lambda: database["ticks"].count_documents({}) > 0, "the first tick")
    # Those that are up late join in; the half minute begins when some have.
    wait_until(lambda: runners(database) >= 2, "a second runner")
    first = max(seconds_of_ticks(database)) + 2
    slots = [first + number for number in range(SLOTS)]
    wait_until(lambda: max(seconds_of_ticks(database)) > slots[SLOTS // 2], "half of the slots")
    wait_until(lambda: max(seconds_of_ticks(database)) > slots[-1] + 2, "the last slot")

    ticks = Counter(seconds_of_ticks(database))
    assert {slot: ticks[slot] for slot in slots} == dict.fromkeys(slots, 1)
    assert all(slot.is_integer() for slot in ticks)


@pytest.mark.timeout(180)
def test_killed_between_enqueue_and_advance(
    database: Database[Document], start_workers: StartWorkers
) -> None:
    """S1: a slot whose runner was killed before it moved the schedule on has one job."""
    start_workers(2, CLOCK_DIES="1")
    wait_until(lambda: database["deaths"].count_documents({}) >= 4, "four deaths")
    last = database["deaths"].distinct("slot")[-1]

    def has_moved_on() -> bool:
        return database["henri_jobs_schedules"].count_documents({"next_run_at": {"$gt": last}}) > 0

    wait_until(has_moved_on, "the schedule to move on")
    deaths = Counter(death["slot"] for death in database["deaths"].find())
    # A second runner that had enqueued the slot anew would have died of it, too.
    assert set(deaths.values()) == {1}
    keys = Counter(row["unique_key"] for row in database["henri_jobs"].find())
    assert {keys[f"recurring:tick:{slot}"] for slot in deaths} == {1}
