"""Rounds, the loops that do them, and what is said of a database that is away."""

from __future__ import annotations

import contextlib
import signal
import threading
import typing as t

from pymongo.errors import ConnectionFailure, OperationFailure

from flask_henri_jobs.errors import StoreUnavailable
from flask_henri_jobs.store.connection import answering
from flask_henri_jobs.worker.loop import LONGEST_PAUSE, Loop, Outages, Rounds, Wakeup

if t.TYPE_CHECKING:
    import pytest

PATIENCE = 10.0
FOREVER = 3600.0


def test_loop_survives_a_bad_round(caplog: pytest.LogCaptureFixture) -> None:
    """A round that raises is logged, and followed by another."""
    rounds: t.Iterator[Exception | None] = iter([ValueError("bad"), None])
    recovered = threading.Event()

    def tick() -> float:
        if error := next(rounds):
            raise error
        recovered.set()
        return FOREVER

    loop = Loop("test", tick)
    loop.start()

    assert recovered.wait(PATIENCE)
    assert loop.stop(PATIENCE)
    assert "A round of test failed." in caplog.text


def test_wake_during_a_round_shortens_the_wait_after_it() -> None:
    """A wake-up that comes while a round runs is not lost."""
    began, go_on, second = threading.Event(), threading.Event(), threading.Event()

    def tick() -> float:
        if began.is_set():
            second.set()
        began.set()
        go_on.wait(PATIENCE)
        return FOREVER

    loop = Loop("test", tick)
    loop.start()
    began.wait(PATIENCE)
    loop.wake()
    go_on.set()

    assert second.wait(PATIENCE)
    assert loop.stop(PATIENCE)


def test_loop_may_be_stopped_twice_or_before_its_start() -> None:
    """Stopping is allowed at any time, and any number of times."""
    loop = Loop("test", lambda: FOREVER)
    assert loop.stop(PATIENCE)
    loop.start()
    assert loop.stop(PATIENCE)
    assert loop.stop(PATIENCE)


def test_pauses_between_failures_grow() -> None:
    """W10: Rounds that fail are tried again at growing waits, never longer than five seconds."""

    def tick() -> float:
        raise StoreUnavailable("away")

    rounds = Rounds("test", tick)
    waits = [rounds.next() for _ in range(12)]

    assert waits == sorted(waits)
    assert waits[0] <= 0.2
    assert waits[-1] == LONGEST_PAUSE
    assert rounds.are_failing


def test_success_ends_the_growth() -> None:
    """A round that succeeds has its own wait, and the next failure waits briefly again."""
    answers: t.Iterator[bool] = iter([False] * 8 + [True, False])

    def tick() -> float:
        if not next(answers):
            raise StoreUnavailable("away")
        return 7.0

    rounds = Rounds("test", tick)
    waits = [rounds.next() for _ in range(10)]

    assert waits[8] == 7.0
    assert waits[9] == waits[0]


def test_sleep_ends_in_a_signal_handler() -> None:
    """W5: A signal handler may ring while its own thread begins to sleep, or just before."""
    wakeup = Wakeup()
    before = signal.signal(signal.SIGALRM, lambda *_: wakeup.ring())
    try:
        for _ in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            assert wakeup.sleep(PATIENCE)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_many_rings_end_one_sleep() -> None:
    """Rings that came before a sleep end that sleep, and not the next."""
    wakeup = Wakeup()
    for _ in range(3):
        wakeup.ring()

    assert wakeup.sleep(FOREVER)
    assert not wakeup.sleep(0)


def ask(outages: Outages, answers: bool) -> None:
    with contextlib.suppress(StoreUnavailable), outages.asking(), answering("a question"):
        if not answers:
            raise ConnectionFailure("No server.")


DOWN = (
    "The database is away; everything is tried again."
    " The database did not answer a question within 10 s: No server."
    " Is it running, and is HENRI_JOBS_URI right?"
)
UP = "The database answers again."


class Seconds:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_outage_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """W10: However many questions fail, one line says that the database is away, one that it
    is back."""
    outages = Outages(seconds := Seconds())

    for answers in (True, False, False, False, True, True):
        ask(outages, answers)
        seconds.now += 1

    assert said(caplog) == [DOWN, UP]


def test_a_server_that_shuts_down(caplog: pytest.LogCaptureFixture) -> None:
    """W10: One that refuses a question and answers the next on its way out is not said to be
    back; one that was away for a moment is, a little later."""
    outages = Outages(seconds := Seconds())

    for answers in (False, True, True, False):
        ask(outages, answers)
        seconds.now += 0.1
        assert outages.is_on != answers
    assert said(caplog) == [DOWN]
    seconds.now += 60
    ask(outages, answers=True)
    assert said(caplog) == [DOWN, UP]

    for wait in (0.0, 0.5, 1.0):
        seconds.now += wait
        ask(outages, answers=wait > 0)
    assert said(caplog) == [DOWN, UP, DOWN, UP]


def test_what_need_not_be_asked(caplog: pytest.LogCaptureFixture) -> None:
    """W10: A round that finds nothing to ask says nothing of the database."""
    outages = Outages(seconds := Seconds())
    ask(outages, answers=False)
    seconds.now += 30

    with outages.asking():
        pass

    assert outages.is_on
    assert said(caplog) == [DOWN]


def test_an_answer_to_an_earlier_question_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """W10: An answer that was under way when the database went does not say that it is back, nor
    an error from before its return that it went again."""
    outages = Outages(seconds := Seconds())

    with outages.asking():
        seconds.now += 5
        ask(outages, answers=False)
        seconds.now += 5
    assert said(caplog) == [DOWN]
    assert outages.is_on

    with contextlib.suppress(StoreUnavailable), outages.asking():
        seconds.now += 5
        ask(outages, answers=True)
        seconds.now += 5
        raise StoreUnavailable("late")
    assert said(caplog) == [DOWN, UP]
    assert not outages.is_on


def test_a_tolerated_outage(caplog: pytest.LogCaptureFixture) -> None:
    """What others will repair goes on where the database is away, and says so."""

    def ask() -> None:
        raise StoreUnavailable("No server.")

    with Outages().tolerated():
        ask()

    assert len(caplog.records) == 1


def test_a_tolerated_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """W5: What the database refuses keeps a runner from nothing that comes after it."""

    def ask() -> None:
        raise OperationFailure("no such command")

    with Outages().tolerated():
        ask()

    assert "The database refuses what a runner asks." in caplog.text
