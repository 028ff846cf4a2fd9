"""Workers and enqueuers whose clocks are ten minutes off, ahead and behind (C1)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t
from collections import Counter
from pathlib import Path

import pytest
from pymongo import MongoClient

from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

Document: t.TypeAlias = dict[str, t.Any]

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
"""Of Debian's package ``faketime``, whose command would stand between a test and its process."""

TESTS = Path(__file__).parents[1]
SKEW = 600

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed"),
]


@pytest.fixture
def database(mongo_uri: str, database_name: str) -> Iterator[Database[Document]]:
    with MongoClient[Document](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
def environment(mongo_uri: str, database_name: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "FLASK_HENRI_JOBS_URI": mongo_uri,
        "FLASK_HENRI_JOBS_DATABASE": database_name,
        # Shorter than the clocks are apart: a heartbeat by either would look long past.
        "FLASK_HENRI_JOBS_STUCK_AFTER": "30s",
    }


def skewed(minutes: str, environment: dict[str, str]) -> dict[str, str]:
    """Return an environment with a wrong clock; the monotonic one is left alone."""
    clock = {"FAKETIME": minutes, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return environment | clock | {"LD_PRELOAD": str(LIBRARY)}


@pytest.fixture
def workers(environment: dict[str, str], database: Database[Document]) -> Iterator[None]:
    """One worker ten minutes ahead, and one behind."""
    command = [
        sys.executable,
        "-m",
        "flask",
        "--app",
        "skewed_app",
        "jobs",
        "worker",
        "-t",
        "3",
        "--grace",
        "0s",
    ]
    started = [
        subprocess.Popen(command, env=skewed(minutes, environment), stderr=subprocess.DEVNULL)
        for minutes in ("+10m", "-10m")
    ]
    try:
        wait_until(lambda: database["henri_jobs_runners"].count_documents({}) == 2, "two runners")
        yield
        for process in started:
            process.terminate()
        assert [process.wait(20) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait(20)


@pytest.mark.timeout(90)
@pytest.mark.usefixtures("workers")
def test_ten_minutes_ahead_and_behind(
    database: Database[Document], environment: dict[str, str]
) -> None:
    """C1: nothing is recovered that lives, no slot fires twice, and nothing begins early or late,
    whatever the clocks of those who enqueue and perform."""
    enqueue(database, environment, slow=4)
    for minutes in ("+10m", "-10m"):
        command = [sys.executable, "-m", "skewed_app"]
        subprocess.run(command, env=skewed(minutes, environment), check=True, timeout=30)
    begun = database["begun"]
    wait_until(lambda: begun.count_documents({"name": "later"}) == 6, "what was delayed")
    wait_until(lambda: begun.count_documents({"name": "tick"}) >= 6, "six ticks")
    wait_until(lambda: ended(database, "slow") == 4, "what took long")

    assert performed_under_both_clocks(database)
    delayed = list(database["henri_jobs"].find({"name": "later"}))
    waited = [row["started_at"] - row["created_at"] for row in delayed]
    assert all(1500 <= ms < 4000 for ms in waited), waited
    now = time.time() * 1000
    assert all(abs(row["created_at"] - now) < 60_000 for row in delayed)
    slots = Counter(tick["due_at"] for tick in begun.find({"name": "tick"}))
    assert set(slots.values()) == {1}
    assert database["henri_jobs"].distinct("attempts", {"state": "done"}) == [1]
    assert database["henri_jobs"].count_documents({"history": {"$ne": "[]"}}) == 0


def enqueue(database: Database[Document], environment: dict[str, str], *, slow: int) -> None:
    """Store jobs by a process whose clock is right."""
    command = ["-m", "flask", "--app", "skewed_app", "jobs", "enqueue", "slow"]
    for _ in range(slow):
        subprocess.run(
            [sys.executable, *command], env=environment, check=True, stdout=subprocess.DEVNULL
        )


def ended(database: Database[Document], name: str) -> int:
    return database["henri_jobs"].count_documents({"name": name, "state": "done"})


def performed_under_both_clocks(database: Database[Document]) -> bool:
    """Whether both workers performed some, each with its own wrong clock."""
    off: list[float] = [note["wall"] - time.time() for note in database["begun"].find()]
    return min(off) < -SKEW / 2 and max(off) > SKEW / 2
