"""Counting starts against rates."""

from __future__ import annotations

import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest

from claiming import rates_on
from flask_henri_jobs.job import Job
from flask_henri_jobs.rate import Rate
from flask_henri_jobs.store.rates import SEEN_SECONDS, WHOLE_SECONDS, Rates

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.clock import Moment
    from flask_henri_jobs.job import Document
    from plans import Recorder

RATE = Rate("mail", 10, 60_000)


class Steady:
    """This process's time, which a test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.seconds


class ServersTime:
    """The server's time."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def __call__(self) -> Moment:
        """Ask it."""
        return int(self._database.command("hello")["localTime"].timestamp() * 1000)


@pytest.fixture
def steady() -> Steady:
    return Steady()


@pytest.fixture
def rates(jobs: Collection[Document], database: Database[Document], steady: Steady) -> Rates:
    rates = rates_on(jobs, ServersTime(database))
    rates.steady = steady
    return rates


def job(number: int = 0, token: str = "token") -> Job:
    return Job({"_id": f"job-{number}", "claim_token": token})


def age(rates: Rates, ms: int, **which: t.Any) -> None:
    """Have starts be that much longer ago."""
    rates.rates.update_many(which, {"$inc": {"taken_at": -ms}})


def test_so_many_and_no_more(rates: Rates) -> None:
    """X4: of a bucket as many starts are counted as its rate says, and then none."""
    assert rates.free("mail", RATE, 3) == 3

    started = [rates.take("mail", RATE, job(n)) for n in range(RATE.most)]

    assert len({start.slot for start in started if start}) == RATE.most
    assert rates.take("mail", RATE, job(99)) is None
    assert rates.free("mail", RATE, 3) == 0
    assert rates.take("mail:7", RATE, job(99)) is not None


def test_a_window_later(rates: Rates, steady: Steady) -> None:
    """X4: a start is free again a whole window after the one in its place, and not before."""
    for n in range(RATE.most):
        rates.take("mail", RATE, job(n))
    assert rates.take("mail", RATE, job(99)) is None

    age(rates, RATE.window - 5_000)
    steady.seconds += RATE.window / 1000
    assert rates.take("mail", RATE, job(99)) is None
    age(rates, 5_000 + RATE.leeway + 10, job_id={"$in": ["job-3", "job-7"]})
    steady.seconds += RATE.window / 1000

    assert rates.free("mail", RATE, 10) == 2
    assert rates.take("mail", RATE, job(100)) is not None
    assert rates.take("mail", RATE, job(101)) is not None
    assert rates.take("mail", RATE, job(102)) is None
    kept = {row["job_id"] for row in rates.rates.find()}
    assert kept >= {"job-100", "job-101"}
    assert not kept & {"job-3", "job-7"}


def test_a_start_is_never_counted_too_early(rates: Rates) -> None:
    """X4: what is counted is later than any moment at which its job may begin, and by the
    server's clock."""
    before = rates.now()

    start = rates.take("mail", RATE, job())

    after = rates.now()
    row = t.cast("Document", rates.rates.find_one({"job_id": "job-0"}))
    assert before + RATE.leeway <= row["taken_at"] <= after + RATE.leeway
    assert start is not None
    assert start.until == RATE.leeway / 2000


def test_rivals(rates: Rates, jobs: Collection[Document]) -> None:
    """X4: of many that ask at once, in several processes, as many are served as there are starts,
    each by one of its own."""
    runners = [rates_on(jobs, rates.now) for _ in range(4)]
    gate = threading.Barrier(8)

    def take(number: int) -> list[str]:
        gate.wait()
        asked = [runners[number % 4].take("mail", RATE, job(number * 10 + n)) for n in range(5)]
        return [start.slot for start in asked if start is not None]

    with ThreadPoolExecutor(8) as pool:
        slots = [slot for found in pool.map(take, range(8)) for slot in found]

    assert len(slots) == len(set(slots)) == RATE.most
    assert rates.rates.count_documents({}) == RATE.most


def test_a_lowered_rate(rates: Rates, steady: Steady) -> None:
    """X4: where a rate was lowered, what is above it is not taken again."""
    for n in range(RATE.most):
        rates.take("mail", RATE, job(n))
    age(rates, RATE.window + 1_000)
    lower = Rate("mail", 4, RATE.window)

    steady.seconds += SEEN_SECONDS
    assert rates.free("mail", lower, 10) == 4
    started = [rates.take("mail", lower, job(100 + n)) for n in range(6)]

    assert [start is not None for start in started] == [True] * 4 + [False] * 2


def test_a_raised_rate(rates: Rates, steady: Steady) -> None:
    """X4: where a rate was raised, there are more at once."""
    lower = Rate("mail", 4, RATE.window)
    for n in range(4):
        rates.take("mail", lower, job(n))
    assert rates.take("mail", lower, job(4)) is None
    steady.seconds += max(WHOLE_SECONDS, RATE.window / 1000) + 1

    assert rates.take("mail", RATE, job(4)) is not None


def test_when_the_next_is_free(rates: Rates, steady: Steady) -> None:
    """X4: a runner looks again when a start is free, and asks nothing until then."""
    assert rates.free_at("mail", RATE) is None
    for n in range(RATE.most):
        rates.take("mail", RATE, job(n))
    rates.begin_look()
    assert rates.look_in() == float("inf")

    assert rates.take("mail", RATE, job(99)) is None

    assert RATE.window / 1000 - 2 < rates.look_in() < RATE.window / 1000 + 1
    assert rates.is_spent("mail")
    free_at = rates.free_at("mail", RATE)
    assert free_at is not None
    assert 0 <= free_at - rates.now() - RATE.window + 2_000 <= 2_000 + RATE.leeway
    steady.seconds += RATE.window / 1000 + 1
    assert not rates.is_spent("mail")


def test_a_start_that_came_late_is_counted_anew(rates: Rates) -> None:
    """X4: a job that did not begin in time is counted from when it does, in its own place; one
    whose place is another's by now is not."""
    start = rates.take("mail", RATE, job(1))
    assert start is not None
    age(rates, 1_000, job_id="job-1")
    before = rates.now()

    again = rates.renew(start, RATE, job(1))

    assert again is not None
    assert again.slot == start.slot
    [row] = rates.rates.find({"job_id": "job-1"})
    assert row["taken_at"] >= before
    assert rates.renew(start, RATE, job(1, token="another's")) is None


def test_what_it_costs(
    rates: Rates, recorder: Recorder, database: Database[Document], steady: Steady
) -> None:
    """X4: a start is one round trip, and looking costs one in many: all is found by the index,
    whatever other buckets hold."""
    rates.take("mail", RATE, job())
    for other in range(50):
        rates.rates.insert_many(
            {
                "_id": f"other:{other}#{slot}",
                "slot": slot,
                "rate_key": f"other:{other}",
                "taken_at": 0,
            }
            for slot in range(20)
        )
    # Once a minute it is asked whether all slots are there.
    rates.free("mail", RATE, 1)
    steady.seconds += 1
    recorder.commands.clear()

    for n in range(5):
        assert rates.free("mail", RATE, 1) == 1
        assert rates.take("mail", RATE, job(n)) is not None

    plans = recorder.plans(database)
    assert [next(iter(plan.command)) for plan in plans] == ["find", *["findAndModify"] * 5]
    assert max(plan.documents for plan in plans) <= RATE.most
    assert max(plan.keys for plan in plans) <= RATE.most + 2


def test_slots_are_made_as_they_are_needed(rates: Rates) -> None:
    """X4: a bucket of a large rate that begins one job has a few documents, which the server
    deletes some time after the last start."""
    large = Rate("mail", 10_000, 60_000)

    rates.take("mail:1", large, job())

    assert rates.rates.count_documents({}) < 50
    row = t.cast("Document", rates.rates.find_one({"job_id": "job-0"}))
    assert row["idle_at"].timestamp() * 1000 > row["taken_at"] + large.window
