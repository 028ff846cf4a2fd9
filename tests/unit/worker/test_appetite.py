"""What the next claim asks for."""

from __future__ import annotations

import threading
import typing as t

import pytest

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.job import Job
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.worker import appetite as appetites
from flask_henri_jobs.worker.appetite import Appetite
from flask_henri_jobs.worker.pace import LONGEST_WAIT
from flask_henri_jobs.worker.strangers import Strangers
from flask_henri_jobs.worker.threads import Threads
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_800_000_000_000


class Seconds:
    """Steady seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    seconds = Seconds()
    monkeypatch.setattr(appetites, "steady_seconds", seconds)
    return seconds


@pytest.fixture
def go_on() -> threading.Event:
    """Lets the threads end what they perform."""
    return threading.Event()


@pytest.fixture
def threads(go_on: threading.Event) -> Iterator[Threads]:
    """Two threads that stand still in each job."""
    threads = Threads(2, lambda _: t.cast("None", go_on.wait(20)), lambda: None)
    threads.start()
    yield threads
    go_on.set()
    assert threads.stop(20)


@pytest.fixture
def appetite(threads: Threads, seconds: Seconds) -> Appetite:
    jobs = HenriJobs()
    jobs.task(name="mail")(print)
    return Appetite("host:1:us", QueueTurns(), {}, threads, Strangers(jobs.tasks, lambda: NOW))


def job(**fields: t.Any) -> Job:
    return Job({"_id": "a", "name": "mail", **fields})


def test_a_job_for_each_free_thread(appetite: Appetite, threads: Threads) -> None:
    """W1: A claim asks for as many jobs as threads are free, and at first for none ahead."""
    assert appetite.free_threads() == 2
    threads.perform(job())
    assert appetite.free_threads() == 1

    wish = appetite.wish(1)

    assert (wish.runner, wish.at_most, wish.ahead) == ("host:1:us", 1, 0)
    assert [wish.takes(dict(job().row)) for _ in range(2)] == [True, False]


def test_short_jobs_ahead(appetite: Appetite, threads: Threads) -> None:
    """W4: Where jobs are short, 50 ms of work are claimed for each thread, less what waits."""
    for _ in range(80):
        appetite.note("mail", 0.001)

    assert appetite.wish(2).ahead == pytest.approx(100, abs=1)
    for _ in range(42):
        threads.perform(job())
    waiting = threads.waiting
    assert appetite.wish(0).ahead == pytest.approx(100 - waiting, abs=1)


def test_running_dry(appetite: Appetite, threads: Threads) -> None:
    """W4: More is claimed while jobs still wait, once half of what was claimed ahead has begun."""
    for _ in range(80):
        appetite.note("mail", 0.001)
    for _ in range(62):
        threads.perform(job())
    appetite.took([job()] * 62, 2)

    dry = [appetite.runs_dry]
    threads.take_back()
    for _ in range(20):
        threads.perform(job())
    dry.append(appetite.runs_dry)
    assert dry == [False, True]
    assert 0 < threads.low_water <= 31


def test_nothing_runs_dry_that_was_not_claimed_ahead(appetite: Appetite, threads: Threads) -> None:
    """W4: Where nothing was claimed ahead, a claim waits for a thread that is free."""
    for _ in range(3):
        threads.perform(job())
    appetite.took([job(), job()], 2)

    assert not appetite.runs_dry


def test_jobs_that_cannot_begin_soon(
    appetite: Appetite, threads: Threads, seconds: Seconds
) -> None:
    """W4: What waits for a tenth of a second is too much; what runs is not, however long."""
    for _ in range(2):
        threads.perform(job())
    appetite.took([job(), job()], 2)
    seconds.now += 3600
    wait_until(lambda: threads.waiting == 0, "the threads")
    assert not appetite.has_too_many

    threads.perform(job())
    appetite.took([job()], 0)
    assert not appetite.has_too_many
    seconds.now += LONGEST_WAIT + 0.001
    assert appetite.has_too_many


def test_suspects_are_not_wanted(appetite: Appetite) -> None:
    """W6: A suspect is performed alone, so an ordinary claim steps over it."""
    wanted = appetite.wish(1).wanted

    assert wanted(dict(job(run_at=NOW).row))
    assert not wanted(dict(job(run_at=NOW, suspect=True).row))
    assert not wanted(dict(job(run_at=NOW).row) | {"name": "stranger"})
