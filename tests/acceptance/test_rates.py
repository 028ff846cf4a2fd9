"""A rate over real workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

import fleet_app
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask
    from pymongo.database import Database

TESTS = Path(fleet_app.__file__).parent
WORKERS = 3

pytestmark = [pytest.mark.faults, pytest.mark.undisturbed]

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def workers(mongo_uri: str, app: Flask, database: Database[Document]) -> Iterator[None]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "FLASK_HENRI_JOBS_URI": mongo_uri,
        "FLASK_HENRI_JOBS_DATABASE": database.name,
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "flask", "--app", "fleet_app", "jobs", "worker", "-t", "8"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(WORKERS)
    ]
    yield
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.usefixtures("workers")
def test_no_window_holds_more_than_its_rate(database: Database[Document]) -> None:
    """X4: over three workers each stretch of time holds as many starts as the rate says at most,
    wherever it begins, and all together take no more than 1.05 of the time that they must."""
    jobs = int(os.environ.get("FLEET_RATED_JOBS", "500"))
    rate = fleet_app.rated.rate
    assert rate is not None
    wait_until(lambda: database["henri_jobs_runners"].count_documents({}) >= WORKERS, "the workers")

    fleet_app.rated.delay_many([{}] * jobs)

    window = rate.window / 1000
    for _ in range(int(jobs / rate.most * window / 10) + 1):
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: database["starts"].count_documents({}) == jobs, "every start")
    starts = sorted(row["at"] for row in database["starts"].find())
    assert len(starts) == jobs
    assert database["starts"].distinct("attempt") == [1]
    # Between a start and the one a whole rate of starts later lies a whole window.
    nearest = min(later - start for start, later in zip(starts, starts[rate.most :], strict=False))
    assert nearest >= window
    ideal = (jobs // rate.most - 1) * window
    took = starts[-1] - starts[0]
    print(f"{jobs} at {rate}: {took:.2f} s of {ideal:.0f}; nearest {nearest:.4f} s")
    assert took <= 1.05 * ideal
