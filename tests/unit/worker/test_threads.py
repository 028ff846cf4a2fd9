"""The executing threads, and the jobs that wait before them."""

from __future__ import annotations

import threading
import typing as t

import pytest

from flask_henri_jobs.job import Job
from flask_henri_jobs.worker.threads import Threads
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 10.0


class Work:
    """What the threads do: it stands still until the test lets it go on."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended = threading.Semaphore(0)
        self.idle = threading.Semaphore(0)
        self.begin = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def perform(self, job: Job) -> None:
        self.began.append(job.id)
        self.begin.release()
        assert self.go_on.acquire(timeout=PATIENCE)
        if job.name == "bad":
            raise SystemExit(1)

    def on_idle(self) -> None:
        self.idle.release()

    def has_begun(self, jobs: int) -> None:
        """Return when so many jobs more have begun."""
        for _ in range(jobs):
            assert self.begin.acquire(timeout=PATIENCE)


def job(number: int, name: str = "good") -> Job:
    return Job({"_id": str(number), "name": name})


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def threads(work: Work) -> Iterator[Threads]:
    threads = Threads(2, work.perform, work.on_idle)
    threads.start()
    yield threads
    work.go_on.release(100)
    assert threads.stop(PATIENCE)


def test_counts(threads: Threads, work: Work) -> None:
    """W1: It is known how many threads are free, and how many jobs wait before them."""
    assert (threads.idle, threads.waiting, threads.is_empty) == (2, 0, True)

    for number in range(3):
        threads.perform(job(number))
    work.has_begun(2)

    assert (threads.idle, threads.waiting, threads.is_empty) == (0, 1, False)
    work.go_on.release()
    work.has_begun(1)
    assert work.began == ["0", "1", "2"]
    work.go_on.release(2)
    wait_until(lambda: threads.is_empty, "the threads")
    assert (threads.idle, threads.waiting) == (2, 0)


def test_take_back(threads: Threads, work: Work) -> None:
    """W4: What no thread has begun can be taken back, in its order, and none of it is begun."""
    for number in range(5):
        threads.perform(job(number))
    work.has_begun(2)

    assert [one.id for one in threads.take_back()] == ["2", "3", "4"]
    assert threads.take_back() == []
    assert (threads.idle, threads.waiting) == (0, 0)
    work.go_on.release(2)
    wait_until(lambda: threads.is_empty, "the threads")
    assert work.began == ["0", "1"]


def test_low_water(threads: Threads, work: Work) -> None:
    """W4: More jobs are asked for when few wait, before the threads run out of them."""
    threads.low_water = 2
    for number in range(5):
        threads.perform(job(number))
    work.has_begun(2)
    work.go_on.release()
    work.has_begun(1)
    assert not work.idle.acquire(blocking=False)

    work.go_on.release()

    assert work.idle.acquire(timeout=PATIENCE)
    assert threads.waiting in {1, 2}


def test_a_thread_outlives_what_it_does(
    work: Work, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """W10: Where something raises, the thread is free again, and performs the next job."""
    threads = Threads(1, work.perform, work.on_idle)
    threads.start()
    for number in range(3):
        threads.perform(job(number, "bad"))

    work.go_on.release(3)
    work.has_begun(3)
    assert work.idle.acquire(timeout=PATIENCE)

    assert threads.stop(PATIENCE)
    assert threads.is_empty
    assert caplog.text.count("A round of an executing thread failed.") == 3


def test_stop_waits_no_longer_than_told(threads: Threads, work: Work) -> None:
    """W5: A thread that has not returned in time is left, and ends after its job."""
    threads.perform(job(1))
    work.has_begun(1)

    assert not threads.stop(0.01)
    work.go_on.release()
    assert threads.stop(PATIENCE)
