"""How soon the jobs of a limited task follow one another."""

from __future__ import annotations

import itertools
import threading
import time
import typing as t

from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until

if t.TYPE_CHECKING:
    from flask import Flask

    from flask_henri_jobs import HenriJobs

HOW_MANY = 20


def test_limited_jobs_follow_at_once(app: Flask, jobs: HenriJobs) -> None:
    """L4: Where one job of a key runs at a time, the next begins when it ends, and not with the
    next poll: a runner looks again as soon as what it remembers of the key is out of date.
    """
    starts: list[float] = []

    @jobs.task(name="one", concurrency=1)
    def one(n: int) -> None:
        starts.append(time.monotonic())

    one.delay_many([{"n": n} for n in range(HOW_MANY)])
    state = jobs.state_of(app)
    runner = Runner(app, jobs.tasks, state.store, state.settings, threads=5)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        wait_until(lambda: len(starts) == HOW_MANY, "the last job")
    finally:
        runner.stop()
        thread.join(30)

    waits = sorted(later - start for start, later in itertools.pairwise(starts))
    assert waits[len(waits) // 2] < state.settings.poll_interval.total_seconds() / 2
