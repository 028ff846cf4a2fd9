"""Performing jobs that do nothing, against a loop that claims and ends documents and no more.

Both are timed from the first claim to the last outcome, as the rows tell: what a process needs to
start is not in it.
"""

from __future__ import annotations

import subprocess
import sys
import typing as t

from .app import fresh, jobs, nothing

JOBS = 10_000
RAW_PROCESSES = 2


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
    processes = [subprocess.Popen(command, stderr=None) for command in commands]
    try:
        for process in processes:
            if process.wait(300) != 0:
                raise subprocess.CalledProcessError(process.returncode, process.args)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return JOBS * 1000 / milliseconds_of(jobs.database["henri_jobs"])


def milliseconds_of(collection: t.Any) -> int:
    """Return the time from the first claim to the last outcome; every job has to be done."""
    times = {"first": {"$min": "$claimed_at"}, "last": {"$max": "$finished_at"}}
    stages = [{"$match": {"state": "done"}}, {"$group": {"_id": None, "n": {"$sum": 1}, **times}}]
    [found] = collection.aggregate(stages)
    if found["n"] != JOBS:
        raise RuntimeError(f"{found['n']} of {JOBS} jobs are done.")
    return max(1, int(found["last"] - found["first"]))
