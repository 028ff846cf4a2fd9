"""``flask jobs worker`` as it is run: a supervisor and its runner processes, and how they end."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import typing as t
from pathlib import Path

import pytest

import fleet_app
from faults import CLOSED, failing
from flask_henri_jobs.worker.performer import CHILD_RETURNED
from fleet import Start, is_alive, stored, wait_for_start, wait_for_state
from mongod import wait_until

if t.TYPE_CHECKING:
    from pymongo.database import Database

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]

AS_PROCESS_ONE = (
    "import ctypes, os, sys;"
    "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""Has orphans left to this process, as they are to process 1 of a container."""


def messages(row: Document) -> list[str]:
    """Return what a job's history says, without the runners' ids."""
    return [entry["message"].split(maxsplit=3)[3] for entry in json.loads(row["history"])]


def test_killed_runner(start: Start, database: Database[Document]) -> None:
    """W6: what a killed process had begun keeps its attempt and says why, what it had only claimed
    does not; both are back within 2 s, and a new process performs them."""
    worker = start("-t", "1")
    (pid,) = worker.wait_for_runners()
    slow = fleet_app.slow.delay(0.3)
    wait_for_start(database)
    fleet_app.quick.delay_many([{"n": n} for n in range(20)])

    os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()

    wait_until(lambda: stored(database, slow.id)["history"] != "[]", "it to be put back")
    assert time.monotonic() - killed_at < 2
    row = wait_for_state(database, slow.id, "done")
    assert row["attempts"] == 2
    assert messages(row) == ["was killed by signal 9 while performing this job."]
    assert row["suspect"] is True
    wait_until(lambda: database["henri_jobs"].count_documents({"state": "done"}) == 21, "the rest")
    assert database["henri_jobs"].count_documents({"name": "quick", "attempts": {"$ne": 1}}) == 0
    assert f"The runner process {pid} was killed by signal 9; it is replaced." in worker.said


def test_killed_before_the_outcome_was_stored(start: Start, database: Database[Document]) -> None:
    """Q4: a runner is killed where a job has returned and its outcome is not stored: it is
    performed again, its first attempt counts, and its history says why there is another."""
    worker = start("-t", "1")
    (pid,) = worker.wait_for_runners()
    slow = fleet_app.slow.delay(0.5)
    wait_for_start(database)
    with failing(database.client, "update", appName="flask_henri_jobs", **CLOSED):
        wait_until(lambda: "The database is away" in worker.said, "the outcome to be refused")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "its end")

    row = wait_for_state(database, slow.id, "done")
    assert row["attempts"] == 2
    assert messages(row) == [
        "was killed by signal 9 after performing this job, before its outcome was stored."
    ]


def test_thirty_killed_runners(start: Start, database: Database[Document]) -> None:
    """W6: over 3,000 jobs a runner is killed thirty times, at any moment: each time what it had is
    back within 2 s, and in the end all are done, each other attempt with its reason on record."""
    jobs, runners = database["henri_jobs"], database["henri_jobs_runners"]
    fleet_app.brief.delay_many([{}] * 3000)
    start("-p", "2", "-t", "4")

    def alive() -> list[Document]:
        return [row for row in runners.find() if is_alive(row["pid"])]

    waits: list[float] = []
    for _ in range(30):
        time.sleep(random.uniform(0.0, 0.3))  # at any moment of a runner's life
        wait_until(lambda: bool(alive()), "a runner")
        runner = random.choice(alive())
        os.kill(runner["pid"], signal.SIGKILL)
        had = {"state": "running", "claimed_by": runner["_id"]}
        killed_at = time.monotonic()
        wait_until(lambda had=had: jobs.find_one(had) is None, "its jobs to be put back")  # type: ignore[misc]
        waits.append(time.monotonic() - killed_at)

    for count in (1000, 2000, 3000):
        wait_until(lambda n=count: jobs.count_documents({"state": "done"}) >= n, f"{count} done")  # type: ignore[misc]
    assert max(waits) < 2
    again = list(jobs.find({"attempts": {"$gt": 1}}))
    print(f"30 kills, {len(again)} of 3000 again, back after {max(waits):.2f} s at most")
    assert again
    for row in again:
        assert len(json.loads(row["history"])) == row["attempts"] - 1


def test_poison(start: Start, database: Database[Document]) -> None:
    """A3: one poison job before 500 good ones is dead after its attempts; the others are done, and
    but for those beside it at its first end none has a second attempt on record."""
    worker = start("-t", "4")
    worker.wait_for_runners()
    poison = fleet_app.poison.using(priority=-1).delay()
    fleet_app.quick.delay_many([{"n": n} for n in range(500)])

    row = wait_for_state(database, poison.id, "dead")
    done = {"name": "quick", "state": "done"}
    jobs = database["henri_jobs"]
    wait_until(lambda: jobs.count_documents(done) == 500, "the good ones to be done")

    assert (row["attempts"], row["dead_reason"]) == (3, "lost")
    attempts = sorted(job["attempts"] for job in jobs.find({"name": "quick"}))
    assert attempts[-1] <= 2
    assert jobs.count_documents({"name": "quick", "suspect": True}) <= 3
    for job in jobs.find({"name": "quick", "attempts": 2, "suspect": {"$ne": True}}):
        # It had returned, and its outcome was lost with the process.
        assert "after performing this job" in messages(job)[0]


def test_exit_code_is_named(start: Start, database: Database[Document]) -> None:
    """W6: a process that a job ended by itself is named by its exit code."""
    worker = start("-t", "1")
    worker.wait_for_runners()

    row = wait_for_state(database, fleet_app.leave.delay(3).id, "dead")

    assert messages(row) == ["exited with code 3 while performing this job."] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal(start: Start, database: Database[Document], number: int) -> None:
    """W5: a signal to every process of the worker, as Ctrl-C is, counts once: what runs is
    finished, and the exit code is 0."""
    worker = start("-p", "2", "-t", "1")
    worker.wait_for_runners(2)
    ids = [fleet_app.slow.delay(1).id for _ in range(2)]
    wait_for_start(database, 2)

    os.killpg(worker.process.pid, number)

    assert worker.ended() == 0
    assert [stored(database, job_id)["state"] for job_id in ids] == ["done", "done"]
    assert database["henri_jobs_runners"].count_documents({}) == 0
    assert "Traceback" not in worker.said


def test_second_signal(start: Start, database: Database[Document]) -> None:
    """W5: a second signal ends the grace: what runs is put back, and keeps its attempt."""
    worker = start("-t", "1", "--grace", "60s")
    worker.wait_for_runners()
    slow = fleet_app.slow.delay(60)
    wait_for_start(database)

    os.killpg(worker.process.pid, signal.SIGINT)
    wait_until(lambda: database["notes"].find_one({"stopping": True}) is not None, "the first")
    os.killpg(worker.process.pid, signal.SIGINT)

    assert worker.ended() == 0
    job = stored(database, slow.id)
    assert (job["state"], job["attempts"]) == ("pending", 1)
    assert messages(job) == ["was stopped while performing this job."]
    assert "suspect" not in job


def test_grace(start: Start, database: Database[Document]) -> None:
    """W5: a process that does not even hear that it is to stop is ended after the grace, and its
    job is put back at once."""
    worker = start("-t", "1", "--grace", "100ms")
    (pid,) = worker.wait_for_runners()
    slow = fleet_app.slow.delay(60)
    wait_for_start(database)
    os.kill(pid, signal.SIGSTOP)

    worker.process.terminate()

    assert worker.ended() == 0
    job = stored(database, slow.id)
    assert (job["state"], job["attempts"]) == ("pending", 1)
    assert messages(job) == ["was stopped while performing this job."]


def test_dies_at_start(start: Start) -> None:
    """W6: a process that dies before it begins is started again after a pause, which grows."""
    worker = start(FLEET_DIES_AT_START="7")

    wait_until(
        lambda: "exited with code 7 before it began; the next starts in 1 s." in worker.said,
        "the second pause",
    )
    worker.process.terminate()

    assert "exited with code 7 before it began; the next starts in 0.5 s." in worker.said
    assert worker.ended() == 0


def test_bad_start(start: Start) -> None:
    """A worker whose first process is refused ends with its code: a deploy fails at once."""
    worker = start(FLASK_HENRI_JOBS_IMPORTS='["no_such_module"]')

    assert worker.ended() == 1
    assert "HENRI_JOBS_IMPORTS names 'no_such_module'" in worker.said


def test_recycling(start: Start, database: Database[Document]) -> None:
    """W11: processes are replaced after so many jobs, and every job is performed once."""
    worker = start("-p", "1", "-t", "2", "--max-jobs", "20")
    (first,) = worker.wait_for_runners()
    fleet_app.quick.delay_many([{"n": n} for n in range(100)])

    jobs = database["henri_jobs"]
    wait_until(lambda: jobs.count_documents({"state": "done"}) == 100, "the jobs")
    wait_until(lambda: first not in worker.runners(), "the first process to be replaced")
    worker.wait_for_runners()

    assert jobs.count_documents({"attempts": 1}) == 100
    assert "it is replaced" not in worker.said


def test_memory(start: Start) -> None:
    """W11: a process that takes too much memory is replaced, after its successor is there."""
    worker = start("--max-memory", "1MB")
    (first,) = worker.wait_for_runners()

    wait_until(lambda: len(worker.runners()) == 2, "a successor beside it")
    wait_until(lambda: first not in worker.runners(), "the first process to be replaced")
    assert len(worker.runners()) <= 2


def test_reload(start: Start, database: Database[Document], tmp_path: Path) -> None:
    """W11: a change in a module of the project starts the processes anew, once, after the jobs in
    hand."""
    module = tmp_path / "fleet_app.py"
    module.write_text(Path(fleet_app.__file__).read_text())
    worker = start("-t", "1", "--reload", folder=tmp_path)
    (first,) = worker.wait_for_runners()
    slow = fleet_app.slow.delay(1)
    wait_for_start(database)

    os.utime(module)

    row = wait_for_state(database, slow.id, "done")
    assert row["attempts"] == 1
    wait_until(lambda: worker.runners() not in ([], [first]), "another process")
    (second,) = worker.runners()
    fleet_app.slow.delay(0.8)
    notes = wait_for_start(database, 2)
    assert [note["pid"] for note in notes] == [first, second]
    wait_until(lambda: database["notes"].count_documents({"finished": True}) == 2, "the second")
    assert worker.runners() == [second]
    assert worker.said.count("has changed") == 1


def test_orphans(start: Start, database: Database[Document]) -> None:
    """W6: as process 1 of a container the supervisor reaps what is left to it."""
    worker = start("-t", "1", wrapped=AS_PROCESS_ONE)
    worker.wait_for_runners()

    wait_for_state(database, fleet_app.orphan.delay().id, "done")
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children")
    wait_until(lambda: len(children.read_text().split()) == 1, "only the runner to be left")

    worker.process.terminate()
    assert worker.ended() == 0


def test_child_that_returns(start: Start, database: Database[Document]) -> None:
    """W9: a process that a task forked ends where it returns; the job has one outcome."""
    start("-t", "2")
    jobs = [fleet_app.fork.delay() for _ in range(3)]

    for job in jobs:
        assert wait_for_state(database, job.id, "done")["attempts"] == 1
    codes = [note["code"] for note in database["notes"].find({"code": {"$exists": True}})]
    assert codes == [CHILD_RETURNED] * 3


def test_killed_supervisor(start: Start, database: Database[Document]) -> None:
    """A runner whose supervisor was killed finishes what runs, and stops in order."""
    worker = start("-t", "1")
    (pid,) = worker.wait_for_runners()
    slow = fleet_app.slow.delay(1)
    wait_for_start(database)

    worker.process.kill()

    wait_until(lambda: not is_alive(pid), "the runner to end")
    assert stored(database, slow.id)["state"] == "done"
    assert database["henri_jobs_runners"].count_documents({}) == 0
    assert "The supervisor is gone" in worker.said


def test_two_workers(start: Start, database: Database[Document]) -> None:
    """Q1: two workers perform 5,000 jobs, each once."""
    for worker in (start("-t", "4"), start("-t", "4")):
        assert worker.process.poll() is None
    fleet_app.noted.delay_many([{"n": n} for n in range(5000)])

    jobs = database["henri_jobs"]
    wait_until(lambda: jobs.count_documents({"state": "done"}) == 5000, "all to be done")

    assert jobs.count_documents({"attempts": {"$ne": 1}}) == 0
    begun = list(database["notes"].find({"started": True}))
    assert len(begun) == len({note["job"] for note in begun}) == 5000
    assert len({note["pid"] for note in begun}) == 2


def test_blocked_past_its_timeout(start: Start, database: Database[Document]) -> None:
    """W7: a task that is blocked in a system call is dead within 6 s after its timeout, its process
    is replaced meanwhile, and what runs beside it ends there, each job performed once."""
    worker = start("-t", "3")
    (first,) = worker.wait_for_runners()
    beside = [fleet_app.slow.delay(8).id for _ in range(2)]
    wait_for_start(database, 2)
    blocked = fleet_app.blocked.delay()
    wait_for_start(database, 3)
    began_at = time.monotonic()

    row = wait_for_state(database, blocked.id, "dead")
    assert time.monotonic() - began_at < 0.2 + 6
    assert (row["dead_reason"], row["attempts"]) == ("timeout", 1)
    assert "ours.recv(1)" in row["error_stack"]
    wait_until(lambda: any(pid != first for pid in worker.runners()), "a successor")
    assert is_alive(first)
    after = fleet_app.slow.delay(0)

    rows = [wait_for_state(database, job_id, "done") for job_id in [*beside, after.id]]
    assert [row["attempts"] for row in rows] == [1, 1, 1]
    begun = [note["job"] for note in wait_for_start(database, 4)]
    assert sorted(begun) == sorted([*beside, blocked.id, after.id])
    wait_until(lambda: not is_alive(first), "the first process to end")
    assert len(worker.wait_for_runners()) == 1


STUCK: t.Any = {"FLASK_HENRI_JOBS_STUCK_AFTER": "2s"}


def test_killed_worker(start: Start, database: Database[Document]) -> None:
    """Q4: a worker is killed whole while four of its jobs run: the other performs all 5,000, and
    exactly those four show a second attempt, and name the dead runner."""
    killed = start("-t", "4", "-q", "a", **STUCK)
    slow = fleet_app.slow.using(queue="a").delay_many([{"seconds": 0.5}] * 4)
    # Beside the four, so that it has more to lose than what runs.
    fleet_app.noted.using(queue="a").delay_many([{"n": n} for n in range(996)])
    begun = {note["job"] for note in wait_for_start(database, 4)}
    os.killpg(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    lost = database["henri_jobs"].find({"state": "running"}).distinct("claimed_by")
    start("-t", "4", **STUCK)
    fleet_app.noted.delay_many([{"n": n} for n in range(4000)])

    jobs = database["henri_jobs"]
    wait_until(lambda: jobs.count_documents({"state": "done"}) == 5000, "all to be done")

    again = {row["_id"]: row for row in jobs.find({"attempts": {"$ne": 1}})}
    assert again.keys() == begun == {job.id for job in slow}
    for row in again.values():
        (entry,) = json.loads(row["history"])
        assert (row["attempts"], [entry["runner"]]) == (2, lost)


def test_stopped_worker(start: Start, database: Database[Document]) -> None:
    """Q3: a worker that is stopped, overtaken and continued writes nothing, and says so."""
    stopped = start("-t", "1", **STUCK)
    (pid,) = stopped.wait_for_runners()
    slow = fleet_app.slow.delay(0.5)
    wait_for_start(database)
    os.killpg(stopped.process.pid, signal.SIGSTOP)
    start("-t", "1", **STUCK)
    overtaken = wait_for_state(database, slow.id, "done")

    os.killpg(stopped.process.pid, signal.SIGCONT)
    wait_until(lambda: database["notes"].find_one({"lost": slow.id}) is not None, "its loss")

    assert database["notes"].find_one({"lost": slow.id, "pid": pid}) is not None
    assert stored(database, slow.id) == overtaken
    assert overtaken["attempts"] == 2
