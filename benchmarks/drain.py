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

if t.TYPE_CHECKING:
    from collections.abc import Callable

JOBS = 10_000
RAW_PROCESSES = 2
PATIENCE = 300.0
"""Seconds after which a side is given up on."""


def worker(uri: str) -> float:
    """Perform the jobs by one worker process with 4 threads."""
    return by_worker(uri, JOBS, store_jobs)


def by_worker(uri: str, count: int, store: Callable[[], object]) -> float:
    """Have so many jobs stored, and return how many a second a worker performs."""
    with fresh(uri) as database:
        store()
        return drained([worker_command(uri, database)], count)


def worker_command(uri: str, database: str) -> list[str]:
    """Return what starts a worker with 4 threads that ends when there is nothing to do."""
    app = f"benchmarks.app:create_app({uri!r}, {database!r})"
    return [*[sys.executable, "-m", "flask", "--app", app], "jobs", "worker", "--once", "-t", "4"]


def raw(uri: str) -> float:
    """Take the same rows through the same states by two processes without any job code."""
    with fresh(uri) as database:
        store_jobs()
        loop = [sys.executable, "-m", "benchmarks.raw", uri, database]
        return drained([loop] * RAW_PROCESSES, JOBS)


def store_jobs() -> None:
    """Store the jobs that do nothing."""
    nothing.delay_many({"number": number} for number in range(JOBS))


def drained(commands: list[list[str]], count: int) -> float:
    """Run the commands to their end, and return how many of so many jobs they did a second."""
    with contextlib.ExitStack() as stack:
        running = [(stack.enter_context(ended(command)), command) for command in commands]
        for process, command in running:
            _, told = process.communicate(timeout=PATIENCE)
            if process.returncode != 0:
                raise RuntimeError(f"{shlex.join(command)} failed:\n{told}")
    return count * 1000 / milliseconds_of(jobs.database["henri_jobs"], count)


@contextlib.contextmanager
def ended(command: list[str]) -> t.Iterator[subprocess.Popen[str]]:
    """Run a command, and see that it has ended afterwards, however that comes."""
    quiet, kept = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=quiet, stderr=kept) as process:
        try:
            yield process
        finally:
            process.kill()


def milliseconds_of(collection: t.Any, count: int) -> int:
    """Return the time from the first claim to the last outcome; every job has to be done."""
    times = {"first": {"$min": "$claimed_at"}, "last": {"$max": "$finished_at"}}
    stages = [{"$match": {"state": "done"}}, {"$group": {"_id": None, "n": {"$sum": 1}, **times}}]
    [found] = collection.aggregate(stages)
    if found["n"] != count:
        raise RuntimeError(f"{found['n']} of {count} jobs are done.")
    return max(1, int(found["last"] - found["first"]))
