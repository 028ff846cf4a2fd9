"""Runner processes that their own jobs kill, at every step of a transaction, run as a program.

It forks one after the other, so that a hundred of them take seconds, and prints of each what a
supervisor would read of its marks.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import threading
import typing as t
from pathlib import Path

from flask import Flask

from flask_henri_jobs import HenriJobs, current_job
from flask_henri_jobs.store.job_transactions import JobTransactions
from flask_henri_jobs.worker import work
from flask_henri_jobs.worker.committer import Announcer, Committer
from flask_henri_jobs.worker.keeper import Keeper
from flask_henri_jobs.worker.marks import new_marks
from flask_henri_jobs.worker.post import Post
from flask_henri_jobs.worker.runner import Runner

if t.TYPE_CHECKING:
    from collections.abc import Callable

COUNTERS = 64
THREADS = 3
LONGEST_COMMIT = 0.01

BEFORE: dict[str, tuple[type, str]] = {
    "before the outcome is written": (JobTransactions, "write"),
    "before the commit": (JobTransactions, "commit"),
    "before it is handed over": (Committer, "hand_over"),
    "before what follows it": (Runner, "_follow_up"),
    "before it is announced": (Announcer, "announce"),
}
AFTER: dict[str, tuple[type, str]] = {
    "after the last heartbeat": (Keeper, "set_apart"),
    "after the begin": (JobTransactions, "begin"),
    "after the outcome was written": (JobTransactions, "write"),
    "after the commit": (JobTransactions, "commit"),
}
IN_THE_TASK = (
    "before the block",
    "after the first write",
    "after the last write",
    "after the block",
)
WITHIN = "within the commit"
POINTS = (*BEFORE, *AFTER, *IN_THE_TASK, WITHIN)


def declared(uri: str, database: str, folder: str) -> tuple[Flask, HenriJobs]:
    """Return an app whose jobs add 1 to a counter, and one each to the list of their effects."""
    app = Flask("killed")
    app.config.update(
        HENRI_JOBS_URI=uri,
        HENRI_JOBS_DATABASE=database,
        HENRI_JOBS_MAX_ATTEMPTS=1000,
        HENRI_JOBS_POLL_INTERVAL="50ms",
        HENRI_JOBS_BACKOFF={"base": "50ms", "factor": 1},
    )
    jobs = HenriJobs(app)

    @jobs.task(name="add", transactional=True)
    def add(number: int, at: str) -> None:
        die("before the block", Path(folder))
        with current_job.transaction() as tx:
            counters = jobs.database["counters"]
            counters.update_one(
                {"_id": number % COUNTERS}, {"$inc": {"n": 1}}, upsert=True, session=tx
            )
            die("after the first write", Path(folder))
            jobs.database["effects"].insert_one({"job": current_job.id}, session=tx)
            die("after the last write", Path(folder))
        die("after the block", Path(folder))

    return app, jobs


def die(point: str, folder: Path, job: t.Any = current_job) -> None:
    """Kill this process, if the job is to kill it at this point and has not yet."""
    if job.args["at"] == point and is_first(job.id, folder):
        os.kill(os.getpid(), signal.SIGKILL)


def is_first(job_id: str, folder: Path) -> bool:
    """Whether a job has killed no process yet; from here on it has."""
    try:
        (folder / job_id).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def set_traps(folder: Path) -> None:
    """Have the steps of a transaction kill the process where their job says so."""
    for point, (owner, name) in BEFORE.items():
        _trap(owner, name, before=functools.partial(_die_for, point, folder))
    for point, (owner, name) in AFTER.items():
        _trap(owner, name, after=functools.partial(_die_for, point, folder))
    _trap(JobTransactions, "commit", before=functools.partial(_die_soon, folder))


def _trap(owner: type, name: str, **when: Callable[[tuple[t.Any, ...]], None]) -> None:
    does = getattr(owner, name)

    @functools.wraps(does)
    def trapped(self: t.Any, *args: t.Any) -> t.Any:
        if "before" in when:
            when["before"](args)
        came = does(self, *args)
        if "after" in when:
            when["after"](args)
        return came

    setattr(owner, name, trapped)


def _die_for(point: str, folder: Path, args: tuple[t.Any, ...]) -> None:
    for job in _jobs_of(args):
        die(point, folder, job)


def _die_soon(folder: Path, args: tuple[t.Any, ...]) -> None:
    """Kill the process while a commit is on its way, or at the server, or on its way back."""
    for job in _jobs_of(args):
        if job.args["at"] == WITHIN and is_first(job.id, folder):
            seconds = random.uniform(0, LONGEST_COMMIT)
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def _jobs_of(args: tuple[t.Any, ...]) -> list[t.Any]:
    """Return the jobs that a step is about: the one in hand, or those of endings."""
    if current_job:
        return [current_job]
    (about,) = args
    many: list[t.Any] = about if isinstance(about, list) else [about]
    endings: list[t.Any] = [getattr(one, "ending", one) for one in many]
    return [ending.job for ending in endings]


def create_app() -> Flask:
    """Return the app for ``flask jobs worker``, which is told of the rest by its environment."""
    folder = os.environ["KILLED_JOBS_FOLDER"]
    set_traps(Path(folder))
    return declared(os.environ["KILLED_JOBS_URI"], os.environ["KILLED_JOBS_DATABASE"], folder)[0]


def main(uri: str, database: str, folder: str) -> None:
    """Fork a runner after the other, until this process is killed."""
    app, jobs = declared(uri, database, folder)
    set_traps(Path(folder))
    while True:
        marks = new_marks()
        child = os.fork()
        if not child:
            with app.app_context():
                post = Post(marks=marks)
                how: dict[str, t.Any] = {"queues": None, "grace": None, "schedules": False}
                work(jobs, once=False, threads=THREADS, post=post, **how)
            os._exit(0)
        os.waitpid(child, 0)
        loss = {"runner": marks.runner, "begun": marks.begun(), "performed": marks.performed()}
        print(json.dumps(loss | {"committing": marks.committing()}), flush=True)
        marks.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
