"""What is thrown into a task lands in it, or nowhere."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import time
import typing as t

import pytest

from flask_henri_jobs.errors import Interruption, JobCancelled, JobLost, JobTimeout
from flask_henri_jobs.worker.coroutines import run_coroutine
from flask_henri_jobs.worker.frame import Frame
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

LATE = JobTimeout("The attempt took longer than 30s.")


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Performing:
    """A thread that enters and leaves frames, as an executing thread does.

    :ivar inside: How often something landed in a task.
    :ivar outside: How often it landed elsewhere.
    """

    def __init__(self) -> None:
        self.frame = Frame()
        self.inside = self.outside = 0
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._over:
            try:
                self._perform()
                for number in range(20):
                    str(number)
            except Interruption:
                self.outside += 1
                self.frame.leave()

    def _perform(self) -> None:
        frame = self.frame = Frame()
        try:
            with frame:
                sum(range(20))
        except JobTimeout:
            frame.leave()
            self.inside += 1


@pytest.mark.usefixtures("quick_switches")
def test_nothing_lands_outside() -> None:
    """B10: however tasks come and go, what is thrown at them lands in none of the runner's code."""
    performing = [Performing(), Performing()]
    deadline = time.monotonic() + 10
    while min(one.inside for one in performing) < 30 and time.monotonic() < deadline:
        for one in performing:
            one.frame.throw(LATE)
    for one in performing:
        one.stop()

    assert [one.outside for one in performing] == [0, 0]
    assert min(one.inside for one in performing) >= 30


def test_before_it_is_entered() -> None:
    """A task that is told to end before it was entered is not entered."""
    frame = Frame()
    assert frame.throw(JobCancelled("no more"))

    with pytest.raises(JobCancelled, match="no more"), frame:
        pytest.fail("it was entered")

    assert frame.throw(JobCancelled("no more"))
    assert str(sum(range(10))) == "45"


def test_left() -> None:
    """Nothing is thrown into a task that has left."""
    frame = Frame()
    with frame:
        pass

    assert frame.throw(LATE)

    time.sleep(0)
    assert frame.thrown is LATE


@pytest.mark.parametrize("interruption", [LATE, JobCancelled("bye"), JobLost("gone")])
def test_message(interruption: Interruption) -> None:
    """What arrives in the thread, which has to be a class, is given its message."""
    frame = Frame()
    threading.Timer(0.02, lambda: frame.throw(interruption)).start()

    with pytest.raises(type(interruption)) as raised, frame:
        wait_until(lambda: False, "the end")
    frame.name(raised.value)

    assert str(raised.value) == raised.value.message == interruption.message
    assert raised.value is not interruption


def test_another_of_the_kind() -> None:
    """What a task raised by itself keeps its own message, and others are left alone."""
    frame = Frame()
    frame.throw(LATE)
    own, other = JobTimeout("mine"), ValueError("no")

    for raised in (own, other, None):
        frame.name(raised)

    assert (own.message, str(other)) == ("mine", "no")


def test_not_within_logging() -> None:
    """A thread within ``logging`` is left for a moment: it would leave a handler locked for ever,
    and with it every other thread that logs."""
    frame, handler = Frame(), logging.StreamHandler(io.StringIO())
    assert handler.lock is not None
    outcome: list[str] = []

    def task() -> None:
        try:
            with frame:
                handler.handle(logging.makeLogRecord({}))
                wait_until(lambda: False, "the end")
        except JobTimeout:
            outcome.append("timeout")

    with handler.lock:
        thread = threading.Thread(target=task)
        thread.start()
        wait_until(lambda: is_in_logging(thread), "the task to log")
        assert not frame.throw(LATE)
    wait_until(lambda: frame.throw(LATE) and not thread.is_alive(), "the task to end")

    assert outcome == ["timeout"]
    assert handler.lock.acquire(blocking=False)


def is_in_logging(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_globals["__name__"] == "logging"


def test_coroutine_is_cancelled() -> None:
    """A coroutine that waits is cancelled as a task is, and what was thrown is raised for it."""
    frame = Frame()
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    threading.Timer(0.02, lambda: frame.throw(LATE)).start()
    with pytest.raises(JobTimeout, match="longer than 30s"), frame:
        run_coroutine(work(), frame)

    assert seen == ["cancelled"]


def test_coroutine_told_before_it_began() -> None:
    """One that is told to end between the call and its first step is cancelled at that."""
    frame = Frame()

    async def work() -> None:
        await asyncio.sleep(10)

    def begin() -> None:
        with frame:
            frame.thrown = LATE
            run_coroutine(work(), frame)

    with pytest.raises(JobTimeout, match="longer than 30s"):
        begin()
