"""Limits over real workers that are killed, and stopped for too long."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import typing as t
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import fleet_app
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from bson import Timestamp
    from flask import Flask
    from pymongo.database import Database

TESTS = Path(fleet_app.__file__).parent
WORKERS, KEYS, LIMIT, JOBS = 4, 20, 2, 2_000
STUCK_AFTER, STOPPED, ROUNDS = "2s", 3.0, 4
THREADS = "12"
"""More than the keys have slots for, so that each is wanted all the time."""

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]


class Workers:
    """Processes of ``flask jobs worker``, each in a group of its own."""

    def __init__(self, environment: dict[str, str], runners: t.Any) -> None:
        self._environment = environment
        self._runners = runners
        self._running = [self._start() for _ in range(WORKERS)]

    def disturb(self, pause: threading.Event) -> None:
        """Stop one worker for longer than its claims last, and kill others meanwhile."""
        stopped, runner, whole = random.sample(range(WORKERS), 3)
        self._signal(stopped, signal.SIGSTOP)
        try:
            pause.wait(random.uniform(0.1, 0.5))
            self._kill_runner_of(runner)
            pause.wait(random.uniform(0.1, 0.5))
            self._signal(whole, signal.SIGKILL)
            self._running[whole].wait()
            self._running[whole] = self._start()
            pause.wait(STOPPED)
        finally:
            self._signal(stopped, signal.SIGCONT)

    def stop(self) -> None:
        """End all of them."""
        for number, process in enumerate(self._running):
            with contextlib.suppress(ProcessLookupError):
                self._signal(number, signal.SIGKILL)
            process.wait()

    def _kill_runner_of(self, number: int) -> None:
        """Kill the process that performs jobs, and leave its supervisor to see to it."""
        group = self._running[number].pid
        for row in self._runners.find({"role": "jobs"}):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(row["pid"]) == group:
                    os.kill(row["pid"], signal.SIGKILL)

    def _signal(self, number: int, what: int) -> None:
        os.killpg(self._running[number].pid, what)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "flask", "--app", "fleet_app", "jobs", "worker", "-t", THREADS],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


class Visit(t.NamedTuple):
    """When a job of a key was inside, as far as it may count."""

    key: int
    entered: float
    left: float


@pytest.fixture
def workers(mongo_uri: str, app: Flask, database: Database[Document]) -> Iterator[Workers]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "FLASK_HENRI_JOBS_URI": mongo_uri,
        "FLASK_HENRI_JOBS_DATABASE": database.name,
        "FLASK_HENRI_JOBS_POLL_INTERVAL": "100ms",
        "FLASK_HENRI_JOBS_STUCK_AFTER": STUCK_AFTER,
    }
    workers = Workers(environment, database["henri_jobs_runners"])
    yield workers
    workers.stop()


def test_never_more_than_the_limit(workers: Workers, database: Database[Document]) -> None:
    """L3: with runners killed, and stopped for longer than their claims last, never more than 2 of
    a key are inside; every job is performed, and no permit is left over.

    A job that was given up on is inside until its row's token changed: nobody else may count it
    longer, and it may be stopped inside for ever.
    """
    beginning = t.cast("Timestamp", database.command("ping")["operationTime"])
    fleet_app.inside.delay_many([{"key": number % KEYS} for number in range(JOBS)])
    wait_until(lambda: database["visits"].find_one() is not None, "the first to be inside")

    pause = threading.Event()
    for _ in range(ROUNDS):
        workers.disturb(pause)

    jobs = database["henri_jobs"]
    wait_until(lambda: jobs.count_documents({"state": "done"}) == JOBS, "every job to be done")
    wait_until(lambda: database["henri_jobs_limits"].find_one() is None, "the permits to be free")

    visits = visits_of(database, beginning)
    given_up = len(visits) - JOBS
    print(f"{JOBS} jobs, {given_up} begun again over {ROUNDS} rounds of 3 faults")
    assert given_up > ROUNDS
    most = most_inside(visits)
    assert set(most) == set(range(KEYS))
    assert max(most.values()) == LIMIT


def visits_of(database: Database[Document], beginning: Timestamp) -> list[Visit]:
    """Return who was inside when: until it left, or its job's token changed, if that was before."""
    ends = token_ends(database, beginning)
    return [
        Visit(
            key=visit["key"],
            entered=visit["entered"],
            left=min(visit.get("left", float("inf")), ends[visit["token"], visit["job"]]),
        )
        for visit in database["visits"].find()
    ]


def token_ends(database: Database[Document], beginning: Timestamp) -> dict[tuple[str, str], float]:
    """Return when each claim's token was replaced or removed, as the server's log has it."""
    last: dict[str, str | None] = {}
    ends: dict[tuple[str, str], float] = defaultdict(lambda: float("inf"))
    updates = [{"$match": {"operationType": "update"}}]
    with database["henri_jobs"].watch(updates, start_at_operation_time=beginning) as stream:
        while (change := stream.try_next()) is not None:
            described = change["updateDescription"]
            removed = "claim_token" in described["removedFields"]
            if not removed and "claim_token" not in described["updatedFields"]:
                continue
            job = change["documentKey"]["_id"]
            if before := last.get(job):
                ends[before, job] = change["wallTime"].timestamp()
            last[job] = described["updatedFields"].get("claim_token")
    return ends


def most_inside(visits: list[Visit]) -> dict[int, int]:
    """Return for each key how many were inside at once, at the most."""
    # One that leaves in the moment in which another enters is not beside it.
    steps = [(visit.entered, 1, visit.key) for visit in visits if visit.entered < visit.left]
    steps += [(visit.left, -1, visit.key) for visit in visits if visit.entered < visit.left]
    inside: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for _, step, key in sorted(steps):
        inside[key] += step
        most[key] = max(most[key], inside[key])
    return most
