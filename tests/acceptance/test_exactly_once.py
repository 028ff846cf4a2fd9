"""Effects that are there once, whatever is killed and whenever."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import typing as t
from contextlib import nullcontext

import pytest
from pymongo import MongoClient

import killed_jobs
from flask_henri_jobs.worker.losses import Loss, Losses
from killed_jobs import COUNTERS, POINTS, WITHIN
from mongod import wait_until, wired_members

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flask import Flask
    from pymongo.database import Database

    from flask_henri_jobs import HenriJobs
    from mongod import Deployment
    from proxy import Proxy

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]
EACH = int(os.environ.get("KILLS_EACH", "15"))
"""How often a process is killed at each point."""

SUPERVISED = (
    "after the first write",
    "after the outcome was written",
    WITHIN,
    "after the commit",
    "before what follows it",
)

LOST = 400
"""How many jobs are performed while the primary is lost."""

PROCESSES = 2
PATIENCE = 240.0


@pytest.fixture
def uri(mongo_uri: str) -> Iterator[str]:
    """A server that ends a transaction which nobody ends after a second or two, not a minute."""
    with MongoClient[Document](mongo_uri) as client:
        before = client.admin.command("getParameter", transactionLifetimeLimitSeconds=1)
        client.admin.command("setParameter", transactionLifetimeLimitSeconds=1)
        yield mongo_uri
        seconds = before["transactionLifetimeLimitSeconds"]
        client.admin.command("setParameter", transactionLifetimeLimitSeconds=seconds)


@contextlib.contextmanager
def runners(uri: str, database: str, folder: Path, losses: Losses) -> Iterator[None]:
    """Have processes perform jobs within the block, each replaced when it is killed."""
    command = [sys.executable, killed_jobs.__file__, uri, database, str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def put_back(said: t.IO[str]) -> None:
        for line in said:
            found = json.loads(line)
            if found["runner"] is not None:
                losses.add(Loss(reason="was killed by signal 9", suspect=True, **found))

    with contextlib.ExitStack() as stack:
        for _ in range(PROCESSES):
            process = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    start_new_session=True,
                )
            )
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            assert process.stdout is not None
            threading.Thread(target=put_back, args=(process.stdout,), daemon=True).start()
        yield


def wait_for_all(database: Database[Document], count: int) -> None:
    """Wait until so many jobs are done."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if database["henri_jobs"].count_documents({"state": "done"}) == count:
            return
        time.sleep(0.1)
    states = [*database["henri_jobs"].aggregate([{"$sortByCount": "$state"}])]
    raise TimeoutError(f"After {PATIENCE} s the jobs are {states}.")


@contextlib.contextmanager
def supervised(uri: str, database: str, folder: Path) -> Iterator[None]:
    """Have a worker with one runner process perform jobs within the block."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "KILLED_JOBS_URI": uri,
        "KILLED_JOBS_DATABASE": database,
        "KILLED_JOBS_FOLDER": str(folder),
    }
    options = ["--app", "killed_jobs:create_app", "jobs", "worker", "-p", "1", "-t", "3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "flask", *options], env=environment, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def enqueued(
    uri: str, database: str, folder: Path, points: list[str]
) -> Iterator[tuple[Flask, HenriJobs]]:
    """Store jobs that kill their process, one for each step, and see what has come of them."""
    began = time.monotonic()
    app, jobs = killed_jobs.declared(uri, database, str(folder))
    with app.app_context():
        jobs.install()
        random.shuffle(points)
        wanted = [{"number": number, "at": at} for number, at in enumerate(points)]
        ids = [job.id for job in jobs.tasks["add"].delay_many(wanted)]
        yield app, jobs
        killed = len([*folder.iterdir()])
        again = jobs.database["henri_jobs"].count_documents({"attempts": {"$gt": 1}})
        seconds = time.monotonic() - began
        print(f"{killed} kills by {len(ids)} jobs, {again} began again, in {seconds:.0f} s")
        # Some are done, by a neighbour that killed their process, before they come to their step.
        assert killed > 0.7 * len(ids)
        check(jobs.database, ids)
        jobs.state.close()


def check(database: Database[Document], ids: list[str]) -> None:
    """See that every counter is exact, and each job has had its effect once."""
    effects = [row["job"] for row in database["effects"].find()]
    counters = {row["_id"]: row["n"] for row in database["counters"].find()}
    assert sorted(effects) == sorted(ids)
    assert counters == collections.Counter(number % COUNTERS for number in range(len(ids)))


@pytest.mark.timeout(PATIENCE + 60)
def test_killed_at_every_step(uri: str, database_name: str, tmp_path: Path) -> None:
    """X2: each job adds 1 to a counter in its transaction and kills its process at a step of it,
    hundreds of times; in the end the counters are exact."""
    with contextlib.ExitStack() as stack:
        wanted = EACH * [*POINTS]
        app, jobs = stack.enter_context(enqueued(uri, database_name, tmp_path, wanted))
        store = jobs.state.store
        losses = Losses(app, lambda: nullcontext(store), lambda: None)
        losses.start()
        stack.callback(losses.finish, 30)
        stack.enter_context(runners(uri, database_name, tmp_path, losses))
        wait_for_all(jobs.database, len(wanted))


@pytest.mark.timeout(PATIENCE + 60)
def test_killed_under_a_supervisor(uri: str, database_name: str, tmp_path: Path) -> None:
    """X2: the same with ``flask jobs worker -p 1``, at steps that differ to its supervisor."""
    with (
        enqueued(uri, database_name, tmp_path, [*SUPERVISED]) as (_, jobs),
        supervised(uri, database_name, tmp_path),
    ):
        wait_for_all(jobs.database, len(SUPERVISED))


def steps_down(deployment: Deployment, primary: int, _wire: Proxy) -> None:
    deployment.members[primary].command("replSetStepDown", 20, secondaryCatchUpPeriodSecs=5)


def falls_silent(_deployment: Deployment, _primary: int, wire: Proxy) -> None:
    wire.swallow()


@pytest.mark.parametrize("loss", [steps_down, falls_silent])
def test_the_primary_is_lost(
    has_mongod: None, tmp_path: Path, loss: Callable[[Deployment, int, Proxy], None]
) -> None:
    """X2, W10: the primary steps down, or swallows its replies, in the middle of transactions:
    each job has its effect once, and none has lost an attempt."""
    with wired_members() as (deployment, wires):
        app, jobs = killed_jobs.declared(deployment.uri, "once", str(tmp_path))
        primary = deployment.members.index(deployment.primary)

        def lose() -> None:
            done = {"state": "done"}
            with MongoClient[Document](deployment.uri) as client:
                rows = client["once"]["henri_jobs"]
                wait_until(lambda: rows.count_documents(done) > LOST // 4, "some jobs")
            loss(deployment, primary, wires[primary])

        with app.app_context():
            jobs.install()
            jobs.database.create_collection("effects")
            jobs.database["counters"].insert_many([{"_id": n, "n": 0} for n in range(COUNTERS)])
            add = jobs.tasks["add"]
            ids = [job.id for job in add.delay_many([{"number": n, "at": ""} for n in range(LOST)])]
            losing = threading.Thread(target=lose)
            losing.start()
            while jobs.count(state="done") < LOST:
                jobs.run_worker(once=True, threads=4, schedules=False)
            losing.join()
            check(jobs.database, ids)
            attempts = jobs.database["henri_jobs"].distinct("attempts")
            aborted = jobs.database["henri_jobs"].count_documents(
                {"aborted_transactions": {"$gt": 0}}
            )
            print(f"{loss.__name__}: {LOST} jobs, {aborted} with an aborted transaction")
            assert attempts == [1]
            jobs.state.close()
