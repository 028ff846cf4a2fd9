"""When a runner looks again: rings, moments, polling, and waking in vain."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.queues import ALL_QUEUES, QueueSelection
from flask_henri_jobs.worker.alarm import LISTENS_SECONDS, LOOK_SECONDS, Alarm
from server_time import ServerTime

POLL = 1.0


class Woken:
    """A runner's side of an alarm: how often it was woken, and how it slept."""

    def __init__(self, queues: QueueSelection = ALL_QUEUES) -> None:
        self.time = ServerTime()
        self.times = 0
        self.is_free = True
        self.slept: list[float] = []
        self.were_last: list[bool] = []
        self.alarm = Alarm(
            queues,
            self.wake,
            lambda: self.is_free,
            self.time.clock.now,
            POLL,
            steady=lambda: self.time.seconds,
            sleep=self.slept.append,
            chance=lambda: 1.0,
        )
        self.time.advance(1.0)
        self.alarm.answer()

    def wake(self) -> None:
        self.times += 1

    def ring(self, queue: str = "default", after_ms: int = 0) -> None:
        self.alarm.heard({"queue": queue, "run_at": self.time.now + after_ms})

    def look(self, *, found: bool) -> frozenset[str]:
        rung = self.alarm.answer()
        self.were_last.append(self.alarm.is_last)
        self.alarm.looked(rung, found=found)
        return rung


@pytest.fixture
def woken() -> Woken:
    return Woken()


def test_a_ring_wakes(woken: Woken) -> None:
    """W3: a runner is woken for a queue that it takes, and looks there first."""
    assert woken.alarm.seconds() == POLL

    woken.ring("mail")

    assert woken.times == 1
    assert woken.look(found=True) == {"mail"}
    assert woken.look(found=False) == set()


def test_runners_of_other_queues_sleep_on() -> None:
    """W3: a ring carries its queue."""
    woken = Woken(QueueSelection(("mail",)))

    woken.ring("other")
    woken.ring("other", after_ms=100)
    woken.alarm.heard({"awaited": "job"})
    woken.alarm.heard({"made": True})

    assert woken.times == 0
    assert woken.alarm.seconds() == POLL


def test_a_woken_runner_looks_again_for_longer_than_a_burst(woken: Woken) -> None:
    """B7: a burst rings once, and what comes after its ring is seen every 10 ms."""
    woken.ring()
    woken.look(found=True)

    assert woken.alarm.seconds() == LOOK_SECONDS
    woken.time.advance(LISTENS_SECONDS)
    woken.look(found=False)
    assert woken.alarm.seconds() == POLL


def test_the_last_look_begins_when_the_time_is_over(woken: Woken) -> None:
    """B7: A look whose answer was long in coming is followed by one more; not by many, though no
    thread is free for them."""
    woken.ring()
    woken.look(found=False)
    woken.time.advance(2 * LISTENS_SECONDS)

    assert woken.alarm.seconds() == LOOK_SECONDS
    woken.is_free = False
    assert woken.alarm.seconds() == POLL
    woken.is_free = True
    woken.look(found=False)
    assert woken.alarm.seconds() == POLL
    woken.look(found=False)
    assert woken.were_last == [False, True, False]


def test_a_burst_that_began_before_it(woken: Woken) -> None:
    """B7: A runner that starts looks again too: it has not heard what was rung before."""
    alarm = Alarm(
        ALL_QUEUES,
        woken.wake,
        lambda: True,
        woken.time.clock.now,
        POLL,
        steady=lambda: woken.time.seconds,
    )
    alarm.answer()

    assert alarm.seconds() == LOOK_SECONDS


def test_a_busy_runner_ignores_rings_and_looks_once_it_is_free(woken: Woken) -> None:
    """B7: no thread is free; what the burst goes on to ring for may come when one is."""
    woken.is_free = False

    woken.ring("mail")

    assert woken.times == 0
    assert woken.look(found=False) == {"mail"}
    assert woken.alarm.seconds() == LOOK_SECONDS


def test_waits_longer_after_being_woken_in_vain(woken: Woken) -> None:
    """B7: who was woken in vain waits up to 2, 4, 8 ms and so on, at most 50, until it has one."""
    for _ in range(8):
        woken.ring()
        woken.look(found=False)

    assert woken.slept == [0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
    woken.ring()
    woken.look(found=True)
    woken.ring()
    woken.slept.clear()
    woken.look(found=True)
    assert woken.slept == []


def test_a_look_nobody_rang_for_is_not_in_vain(woken: Woken) -> None:
    """B7: polling finds nothing most of the time, and the next ring is answered at once."""
    woken.look(found=False)
    woken.look(found=False)

    woken.ring()
    woken.look(found=True)

    assert woken.slept == []


def test_sleeps_until_the_nearest_moment(woken: Woken) -> None:
    """W3: a job that is due before the next poll is not found late."""
    woken.ring("mail", after_ms=700)
    woken.ring("mail", after_ms=300)
    woken.ring("mail", after_ms=500)

    # A nearer moment than that of the sleep wakes it, a later one does not.
    assert woken.times == 2
    assert woken.look(found=False) == set()
    assert woken.alarm.seconds() == pytest.approx(0.301)

    woken.time.advance(0.301)
    assert woken.look(found=True) == {"mail"}
    assert woken.alarm.seconds() == LOOK_SECONDS

    woken.time.advance(LISTENS_SECONDS)
    woken.look(found=False)
    assert woken.alarm.seconds() == pytest.approx(0.15)


def test_later_moments_wait_for_a_poll(woken: Woken) -> None:
    """W3: the sleep is never longer than the poll interval."""
    woken.alarm.expect_all([{"queue": "mail", "run_at": woken.time.now + 60_000}])

    assert woken.alarm.seconds() == POLL


def test_remembers_the_nearest_of_very_many_moments(woken: Woken) -> None:
    """W3: memory is bounded; the moments that are forgotten are the farthest."""
    rows = [{"queue": "mail", "run_at": woken.time.now + ms} for ms in range(30_000, 500, -1)]
    woken.alarm.expect_all(rows)

    assert woken.alarm.seconds() == pytest.approx(0.502)


def test_looks_once_where_rings_may_have_been_missed(woken: Woken) -> None:
    """B7: a cursor that was opened again is followed by a look."""
    woken.alarm.may_have_missed()

    assert woken.times == 1
    assert woken.look(found=False) == set()
    assert woken.slept == []


def test_a_ring_by_henri_numbers(woken: Woken) -> None:
    """Section 3: moments may come as floating point numbers."""
    ring: dict[str, t.Any] = {"queue": "mail", "run_at": float(woken.time.now + 400)}
    woken.alarm.heard(ring)

    assert woken.alarm.seconds() == pytest.approx(0.401)
