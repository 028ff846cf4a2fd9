"""An application process that enqueues all the while: ``python -m benchmarks.soak.load LEDGER``.

It keeps nothing in its memory: what was acknowledged goes into a file, a line each.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
import time
import typing as t
from pathlib import Path

from flask_henri_jobs import JobFailed, StoreUnavailable, WaitTimeout
from flask_henri_jobs.errors import JobBusy, UnknownJob

from . import app as soaked
from .app import create_app, jobs

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flask import Flask

    from flask_henri_jobs import Job

THREADS = 3
ROUND_SECONDS = 0.5
"""How often each thread does one of everything."""

PAUSED_SECONDS, RESUMED_SECONDS = 5.0, 20.0


class Ledger:
    """What was acknowledged, and what was done to it, in a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def add(self, what: str, ids: Iterable[str]) -> None:
        """Note what became of some jobs: ``stored``, ``deleted`` or ``retried``."""
        with self._lock:
            self._file.writelines(f"{what} {job_id}\n" for job_id in ids)

    def keep(self, *made: Job) -> None:
        """Note that jobs are stored."""
        self.add("stored", [job.id for job in made])


class Load:
    """One thread's share of the load."""

    def __init__(self, ledger: Ledger, number: int, ended: threading.Event) -> None:
        self._ledger = ledger
        self._ended = ended
        self._random = random.Random(number)
        self._numbers = itertools.count()

    def run(self, app: Flask) -> None:
        """Do one of everything, again and again, each in a context of its own."""
        steps: list[Callable[[int], object]] = [
            *(self.few, self.many, self.fail, self.limit, self.batch, self.cancel),
            *(self.operate, self.tenants, self.result),
        ]
        while not self._ended.is_set():
            began = time.monotonic()
            number = next(self._numbers)
            for step in steps:
                # As a web process does for each request.
                with app.app_context():
                    self._tried(step, number)
            self._ended.wait(max(0.0, ROUND_SECONDS - (time.monotonic() - began)))

    def _tried(self, step: Callable[[int], object], number: int) -> None:
        try:
            step(number)
        except StoreUnavailable as error:
            print(f"{step.__name__}: {error}", file=sys.stderr, flush=True)

    def few(self, number: int) -> None:
        """Enqueue one of several kinds."""
        self._ledger.keep(soaked.short.delay(number), soaked.coroutine.delay(number))
        self._ledger.keep(soaked.rated.delay(number), soaked.paused.delay(number))
        self._ledger.keep(soaked.short.using(wait="2s", priority=5).delay(number))
        if number % 6 == 0:
            self._ledger.keep(soaked.long.delay(number))
        if number % 40 == 0:
            self._ledger.keep(soaked.far.using(wait="1d").delay(number))

    def many(self, number: int) -> None:
        """Enqueue several at once."""
        self._ledger.keep(*soaked.short.using(queue="low").delay_many([{"number": number}] * 3))

    def fail(self, number: int) -> None:
        """Enqueue what fails."""
        self._ledger.keep(soaked.failing.delay(number))
        if number % 20 == 0:
            self._ledger.keep(soaked.endless.delay(number))

    def limit(self, _number: int) -> None:
        """Enqueue what has a limit, and what there may be one of."""
        key = self._random.randrange(soaked.KEYS)
        self._ledger.keep(soaked.limited.delay(key), soaked.once.delay(key))

    def batch(self, number: int) -> None:
        """Fill a batch; now and then, end it early."""
        if number % 10:
            return
        with jobs.batch(callback=soaked.finished, name=f"batch {number}") as batch:
            members = batch.add_many(soaked.member, [{"number": n} for n in range(10)])
        self._ledger.keep(*members)
        if number % 50 == 0:
            jobs.batches.cancel(batch.id)

    def cancel(self, number: int) -> None:
        """Cancel a job that waits, one that may have begun, and one that runs."""
        waiting = soaked.short.using(wait="1h").delay(number)
        begun = soaked.short.delay(number)
        self._ledger.keep(waiting, begun)
        jobs.cancel(waiting.id)
        jobs.cancel(begun.id)
        if number % 20 == 10:
            running = soaked.long.using(priority=-5).delay(number)
            self._ledger.keep(running)
            self._ended.wait(0.3)
            jobs.cancel(running.id)

    def operate(self, number: int) -> None:
        """Retry a dead job, delete another, and look at some, as people do."""
        if number % 10 != 5:
            return
        # No members of batches, whose ends were counted.
        dead = jobs.list(name="failing", state="dead", limit=2)
        for job, operation in zip(dead, [jobs.retry, jobs.delete], strict=False):
            word = "retried" if operation == jobs.retry else "deleted"
            # Noted first: of a job that is deleted nothing else tells.
            self._ledger.add(word, [job.id])
            try:
                operation(job.id)
            except (JobBusy, UnknownJob):
                # Another thread has retried it, or deleted it.
                continue
        jobs.status()
        jobs.limits()

    def tenants(self, number: int) -> None:
        """Enqueue for a tenant."""
        with jobs.tenant(f"tenant {number % 5}"):
            self._ledger.keep(soaked.short.using(expires="1h", tags=("soak",)).delay(number))

    def result(self, number: int) -> None:
        """Wait for what a job returns."""
        if number % 4 == 0:
            job = soaked.short.using(priority=-1).delay(number)
            self._ledger.keep(job)
            try:
                job.wait("5s")
            except (WaitTimeout, JobFailed):
                # A kill came between, or others had their turn.
                return


def pause_now_and_then(app: Flask, ended: threading.Event) -> None:
    """Pause a queue, a task and a tenant for a while, again and again; leave none of it paused."""
    things: list[t.Any] = [{"queue": "paused"}, {"name": "rated"}, {"tenant": "tenant 1"}]
    for which in itertools.cycle(things):
        if ended.wait(RESUMED_SECONDS):
            return
        with app.app_context():
            jobs.pause(**which)
            ended.wait(PAUSED_SECONDS)
            jobs.resume(**which)


def main() -> None:
    """Go on until told to stop."""
    app = create_app()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ledger = Ledger(Path(sys.argv[1]))
    loads = [Load(ledger, number, ended) for number in range(THREADS)]
    threads = [threading.Thread(target=load.run, args=(app,)) for load in loads]
    threads.append(threading.Thread(target=pause_now_and_then, args=(app, ended)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jobs.state_of(app).close()


if __name__ == "__main__":
    main()
