"""What a worker costs that has nothing to do, and what its memory comes to."""

from __future__ import annotations

import sys
import time
import typing as t

from pymongo import MongoClient

from .app import fresh, jobs, nothing, sometimes
from .processes import processor_seconds, resident_bytes, runner_pids, running, until, worker

WINDOW = 10.0
"""Seconds that idleness is watched for at a time."""

SETTLING = 5.0
WARM, PERFORMED = 5_000, 50_000
MEGABYTE = 1_000_000


class Idle(t.NamedTuple):
    """What a runner process and its share of the supervisor cost."""

    operations: float
    """Server operations a second."""
    percent: float
    """Of one core."""


def idleness(uri: str) -> t.Generator[Idle, None, None]:
    """Yield what one runner costs within a time, and again."""
    # Asked seldom, and through a client that asks nothing by itself meanwhile.
    with (
        MongoClient[t.Any](
            uri, serverMonitoringMode="poll", heartbeatFrequencyMS=120_000
        ) as watcher,
        fresh(uri) as database,
    ):
        at_rest = operations_a_second(watcher)
        with worker(uri, database, "--processes", "1") as process:
            time.sleep(SETTLING)
            pids = [process.popen.pid, *runner_pids()]
            while True:
                used = sum(map(processor_seconds, pids))
                operations = operations_a_second(watcher) - at_rest
                share = (sum(map(processor_seconds, pids)) - used) / WINDOW
                yield Idle(operations, 100 * share)


def operations_a_second(watcher: MongoClient[t.Any]) -> float:
    """Return the operations that the server counts within a time, besides this question."""
    before, began = operations(watcher), time.monotonic()
    time.sleep(WINDOW)
    after = operations(watcher)
    return (after - before - 1) / (time.monotonic() - began)


def operations(watcher: MongoClient[t.Any]) -> int:
    """Return how many operations the server has counted."""
    return sum(
        count
        for name, count in watcher.admin.command("serverStatus")["opcounters"].items()
        if isinstance(count, int) and name != "deprecated"
    )


class Memory(t.NamedTuple):
    """The memory of a runner, in megabytes."""

    above_bare: float
    """What it has above the application without a worker, when it has performed some jobs."""
    growth: float
    """What it has gained after many more, a tenth of them failing."""


def memory(uri: str) -> Memory:
    """Return what a runner takes."""
    with fresh(uri) as database:
        bare = bare_bytes(uri, database)
        with worker(uri, database, "--processes", "1", "--threads", "4"):
            [pid] = runner_pids()
            nothing.delay_many({"number": number} for number in range(100))
            await_ends(100)
            started = resident_bytes(pid)
            sometimes.delay_many({"number": number} for number in range(WARM))
            await_ends(WARM + 100)
            warm = resident_bytes(pid)
            sometimes.delay_many({"number": number} for number in range(PERFORMED))
            await_ends(PERFORMED + WARM + 100)
            return Memory((started - bare) / MEGABYTE, (resident_bytes(pid) - warm) / MEGABYTE)


def await_ends(number: int) -> None:
    """Wait until so many jobs have ended, and their outcomes are announced."""
    rows = jobs.database["henri_jobs"]
    ended = {"state": {"$in": ["done", "dead"]}}
    until(lambda: rows.count_documents(ended, hint="fhj_recent") >= number, f"{number} ends")
    time.sleep(1.0)


def bare_bytes(uri: str, database: str) -> int:
    """Return the memory of the application with its database client, and no worker."""
    lines = [
        "import time",
        "from benchmarks.app import create_app, jobs",
        f"with create_app({uri!r}, {database!r}).app_context():",
        "    jobs.client.admin.command('ping')",
        "    jobs.database['ready'].insert_one({})",
        "    time.sleep(600)",
    ]
    with running([sys.executable, "-c", "\n".join(lines)]) as process:
        until(lambda: jobs.database["ready"].find_one() is not None, "the application", process)
        return resident_bytes(process.popen.pid)
