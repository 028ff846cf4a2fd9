"""Performing jobs that do nothing, against a loop that claims and ends documents and no more.

Both are timed from the first claim to the last outcome, as the rows tell: what a process needs to
start is not in it.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import typing as t

from .app import fresh, jobs, nothing

JOBS = 10_000
RAW_PROCESSES = 2
PATIENCE = 300.0
"""Seconds after which a side is given up on."""


def worker(uri: str) -> float:
    """Perform the jobs by one worker process with 4 threads."""
    with fresh(uri) as database:
        app = f"benchmarks.app:create_app({uri!r}, {database!r})"
        flask = [sys.executable, "-m", "flask", "--app", app]
        return drained([[*flask, "jobs", "worker", "--once", "--threads", "4"]])


def raw(uri: str) -> float:
    """Take the same rows through the same states by two processes without any job code."""
    with fresh(uri) as database:
        loop = [sys.executable, "-m", "benchmarks.raw", uri, database]
        return drained([loop] * RAW_PROCESSES)


def drained(commands: list[list[str]]) -> float:
    """Store the jobs, run the commands to their end, and return the jobs done a second."""
    nothing.delay_many({"number": number} for number in range(JOBS))
    with contextlib.ExitStack() as stack:
        running = [(stack.enter_context(ended(command)), command) for command in commands]
        for process, command in running:
            _, told = process.communicate(timeout=PATIENCE)
            if process.returncode != 0:
                raise RuntimeError(f"{shlex.join(command)} failed:\n{told}")
    return JOBS * 1000 / milliseconds_of(jobs.database["henri_jobs"])


@contextlib.contextmanager
def ended(command: list[str]) -> t.Iterator[subprocess.Popen[str]]:
    """Run a command, and see that it has ended afterwards, however that comes."""
    quiet, kept = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=quiet, stderr=kept) as process:
        try:
            yield process
        finally:
            process.kill()


def milliseconds_of(collection: t.Any) -> int:
    """Return the time from the first claim to the last outcome; every job has to be done."""
    times = {"first": {"$min": "$claimed_at"}, "last": {"$max": "$finished_at"}}
    stages = [{"$match": {"state": "done"}}, {"$group": {"_id": None, "n": {"$sum": 1}, **times}}]
    [found] = collection.aggregate(stages)
    if found["n"] != JOBS:
        raise RuntimeError(f"{found['n']} of {JOBS} jobs are done.")
    return max(1, int(found["last"] - found["first"]))
