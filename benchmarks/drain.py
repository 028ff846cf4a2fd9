"""Performing jobs that do nothing, against a loop that claims and ends documents and no more.

Both are timed from the first claim to the last outcome, as the rows tell: what a process needs to
start is not in it.
"""

from __future__ import annotations

import contextlib
import sys
import time
import typing as t

from .app import SEEN, fresh, jobs, limited, nothing, short
from .processes import running, until, worker

JOBS = 10_000
PROCESSES = 2
SHORT_JOBS, SHORT_SECONDS, SHORT_THREADS = 5_000, 0.02, 8
FEW, MANY = 12_000, 300_000
"""How many wait in all, while as many as above are drained."""

LOW = 50
"""The priority of those that wait behind the others."""

KEYS = 100


def share_of_raw(uri: str) -> float:
    """Return the rate of 2 processes with 4 threads each as a share of the raw loop's."""
    return drained_by_worker(uri) / drained_by_raw(uri)


def drained_by_worker(uri: str) -> float:
    """Return the jobs a second, every one of them performed once and announced once."""
    with fresh(uri) as database:
        nothing.delay_many({"number": number} for number in range(JOBS))
        rows = jobs.database["henri_jobs"]
        with worker(uri, database, "--processes", str(PROCESSES), "--threads", "4"):
            await_end_of({"queue": "default"})
        done_once = rows.count_documents({"state": "done", "attempts": 1})
        announced = sum(row["succeeded"] for row in jobs.database[SEEN].find())
        if done_once != JOBS or announced != JOBS:
            raise RuntimeError(f"Of {JOBS}, {done_once} are done and {announced} announced, once.")
        return JOBS / seconds_of({"state": "done"}, JOBS)


def drained_by_raw(uri: str) -> float:
    """Take the same rows through the same states by two processes without any job code."""
    with fresh(uri) as database:
        nothing.delay_many({"number": number} for number in range(JOBS))
        with contextlib.ExitStack() as stack:
            raw = [sys.executable, "-m", "benchmarks.raw", uri, database]
            for process in [stack.enter_context(running(raw)) for _ in range(PROCESSES)]:
                process.finish()
        return JOBS / seconds_of({"state": "done"}, JOBS)


def share_of_ideal(uri: str) -> float:
    """Return the rate of jobs that wait 20 ms as a share of what the threads could do."""
    with fresh(uri) as database:
        short.delay_many({"seconds": SHORT_SECONDS} for _ in range(SHORT_JOBS))
        options = ("--processes", str(PROCESSES), "--threads", str(SHORT_THREADS))
        with worker(uri, database, *options):
            await_end_of({"queue": "default"})
        ideal = SHORT_JOBS * SHORT_SECONDS / (PROCESSES * SHORT_THREADS)
        return ideal / seconds_of({"state": "done"}, SHORT_JOBS)


def flatness(uri: str) -> t.Generator[float, None, None]:
    """Yield the rate out of a large backlog as a share of that out of a small one, and again."""
    with fresh(uri) as many_database:
        wait_behind(MANY - JOBS)
        while True:
            many = drained_in_front(uri, many_database)
            with fresh(uri) as few_database:
                wait_behind(FEW - JOBS)
                few = drained_in_front(uri, few_database)
            yield many / few


def drained_in_front(uri: str, database: str) -> float:
    """Return the jobs a second of those that are first, whatever waits behind them."""
    before = jobs.state.store.clock.now()
    nothing.delay_many({"number": number} for number in range(JOBS))
    first: dict[str, t.Any] = {"queue": "default", "concurrency_key": None, "priority": 0}
    first["run_at"] = {"$lte": jobs.state.store.clock.now()}
    with worker(uri, database, "--processes", str(PROCESSES), "--threads", "4"):
        await_end_of(first)
    return JOBS / seconds_of({"priority": 0, "claimed_at": {"$gte": before}}, JOBS)


def wait_behind(number: int) -> None:
    """Store jobs that are not due, or limited, or of a low priority, a third each."""
    third = number // 3
    rows = jobs.database["henri_jobs"]
    for kind in (
        nothing.using(wait="1d").delay(0),
        limited.using(priority=LOW).delay(0, "0"),
        nothing.using(priority=LOW).delay(0),
    ):
        for at in range(0, third, 10_000):
            rows.insert_many(
                [like(kind.row, number) for number in range(at, min(at + 10_000, third))],
                ordered=False,
            )


def like(row: t.Mapping[str, t.Any], number: int) -> dict[str, t.Any]:
    """Return another row of a job's kind; a limited one has one of many keys."""
    copy = {**row, "_id": f"{row['_id']}-{number:06}"}
    if "concurrency_key" in copy:
        copy["concurrency_key"] = f"{limited.name}:{number % KEYS}"
    return copy


def await_end_of(which: dict[str, t.Any]) -> None:
    """Return when none of these jobs waits or runs; each question is for one document."""
    rows = jobs.database["henri_jobs"]
    for state in ("pending", "running", "pending", "running"):
        asked = {"state": state, **which}
        until(lambda asked=asked: rows.find_one(asked, ["_id"]) is None, "jobs")  # type: ignore[misc]


def await_done(number: int) -> None:
    """Return when so many jobs are done; it asks seldom, as each question counts them."""
    rows = jobs.database["henri_jobs"]
    until(lambda: rows.count_documents({"state": "done"}) >= number, "jobs", every=0.5)


def seconds_of(which: dict[str, t.Any], number: int) -> float:
    """Return the time from the first claim to the last outcome of jobs, which are so many."""
    times = {"first": {"$min": "$claimed_at"}, "last": {"$max": "$finished_at"}}
    stages = [{"$match": which}, {"$group": {"_id": None, "n": {"$sum": 1}, **times}}]
    [found] = jobs.database["henri_jobs"].aggregate(stages)
    if found["n"] != number:
        raise RuntimeError(f"{found['n']} of {number} jobs are done.")
    return max(1, int(found["last"] - found["first"])) / 1000


def rates_by_backlog(uri: str) -> list[tuple[int, float]]:
    """Return the rate out of backlogs of several sizes, for the plot."""
    rates = []
    with fresh(uri) as database:
        waiting = 0
        for size in (FEW, 50_000, 100_000, 200_000, MANY):
            wait_behind(size - JOBS - waiting)
            waiting = size - JOBS
            rates.append((size, drained_in_front(uri, database)))
            time.sleep(0.1)
    return rates
