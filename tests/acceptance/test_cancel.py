"""Cancelling, with whole workers: it holds whatever a task does and whoever dies (W8)."""

from __future__ import annotations

import os
import signal
import time
import typing as t

import pytest

import fleet_app
from fleet import Start, stored, wait_for_start, wait_for_state
from mongod import wait_until

if t.TYPE_CHECKING:
    from pymongo.database import Database

    from flask_henri_jobs import Job

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]

STUCK: t.Any = {"FLASK_HENRI_JOBS_STUCK_AFTER": "2s"}


def seconds_until_dead(database: Database[Document], job: Job) -> float:
    """Cancel a job, and return how long it takes until it is dead for that."""
    began_at = time.monotonic()
    fleet_app.jobs.cancel(job.id)
    row = wait_for_state(database, job.id, "dead")
    assert row["dead_reason"] == "cancelled"
    return time.monotonic() - began_at


def test_cancelled_by_a_whole_worker(start: Start, database: Database[Document]) -> None:
    """W8: a waiting job never begins; one that asks ends within 1 s; one that does not is told 1 s
    later, and given up 5 s after that. The callback of their batch tells the truth."""
    start("-t", "3").wait_for_runners()
    with fleet_app.jobs.batch(callback=fleet_app.tell) as batch:
        asks, steps, stuck = (
            batch.add(task) for task in (fleet_app.asks, fleet_app.steps, fleet_app.stuck)
        )
        waiting = batch.add(fleet_app.noted.using(wait="1s"), n=1)
        done = batch.add(fleet_app.quick.using(wait="2s"), n=1)
    wait_for_start(database, 3)

    assert seconds_until_dead(database, waiting) < 1
    assert seconds_until_dead(database, asks) < 1
    assert 1 < seconds_until_dead(database, steps) < 2
    assert 6 < seconds_until_dead(database, stuck) < 7.5

    wait_for_state(database, done.id, "done")
    notes = database["notes"]
    wait_until(lambda: notes.find_one({"batch": {"$exists": True}}) is not None, "the callback")
    told = notes.find_one({"batch": {"$exists": True}})
    assert told is not None
    counts = {"total": 5, "done": 5, "failed": 4, "succeeded": 1}
    assert {name: told["batch"][name] for name in counts} == counts
    ended = {note["job"]: note["ended"] for note in notes.find({"ended": {"$exists": True}})}
    assert ended == {asks.id: "by itself", steps.id: "JobCancelled"}
    begun = [note["job"] for note in notes.find({"started": True})]
    assert sorted(begun) == sorted([asks.id, steps.id, stuck.id])


def test_killed_runner_of_a_cancelled_job(start: Start, database: Database[Document]) -> None:
    """W8: a cancel is heard while no worker is up: a job whose worker was killed is dead as
    cancelled when another recovers it, and does not begin again."""
    worker = start("-t", "1", **STUCK)
    job = fleet_app.slow.using(unique="slow").delay(60)
    wait_for_start(database)
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.ended()

    assert fleet_app.jobs.cancel(job.id).state == "running"
    start("-t", "1", **STUCK)

    row = wait_for_state(database, job.id, "dead")
    assert (row["dead_reason"], row["attempts"]) == ("cancelled", 1)
    assert "unique_key" not in row
    assert fleet_app.slow.using(unique="slow").delay(0).created
    assert len(wait_for_start(database, 2)) == 2


def test_killed_process_of_a_cancelled_job(start: Start, database: Database[Document]) -> None:
    """W6, W8: so it is where its supervisor puts back at once what a killed process had."""
    worker = start("-t", "1")
    (pid,) = worker.wait_for_runners()
    job = fleet_app.stuck.delay()
    wait_for_start(database)
    os.kill(pid, signal.SIGSTOP)
    fleet_app.jobs.cancel(job.id)

    os.kill(pid, signal.SIGKILL)

    row = wait_for_state(database, job.id, "dead")
    assert (row["dead_reason"], row["attempts"]) == ("cancelled", 1)


def test_stop_with_a_cancelled_job(start: Start, database: Database[Document]) -> None:
    """W5, W8: a job that outlasts the grace, and is cancelled meanwhile, is dead and not put
    back."""
    worker = start("-t", "1", "--grace", "1s")
    worker.wait_for_runners()
    job = fleet_app.stuck.delay()
    wait_for_start(database)
    fleet_app.jobs.cancel(job.id)

    worker.process.send_signal(signal.SIGTERM)

    assert worker.ended() == 0
    row = stored(database, job.id)
    assert (row["state"], row["dead_reason"], row["attempts"]) == ("dead", "cancelled", 1)


def test_lost_job_of_a_stopped_runner(start: Start, database: Database[Document]) -> None:
    """A9: a runner that was stopped past ``stuck_after`` has JobLost raised in the task whose job
    another has, when it goes on; and that job is not disturbed."""
    stopped = start("-t", "1", **STUCK)
    (pid,) = stopped.wait_for_runners()
    job = fleet_app.steps.delay()
    wait_for_start(database)
    os.killpg(stopped.process.pid, signal.SIGSTOP)
    start("-t", "1", **STUCK)
    (theirs,) = (note["pid"] for note in wait_for_start(database, 2) if note["pid"] != pid)

    os.killpg(stopped.process.pid, signal.SIGCONT)

    lost = {"job": job.id, "pid": pid, "ended": "JobLost"}
    wait_until(lambda: database["notes"].find_one(lost) is not None, "its task to be told")
    wait_until(lambda: database["notes"].find_one({"lost": job.id}) is not None, "its loss")
    row = stored(database, job.id)
    assert (row["state"], row["attempts"]) == ("running", 2)
    assert seconds_until_dead(database, job) < 2
    assert database["notes"].find_one({"job": job.id, "pid": theirs, "ended": "JobCancelled"})
