"""Counting starts against rates."""

from __future__ import annotations

import itertools
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest

from claiming import rates_on
from flask_henri_jobs.job import Job
from flask_henri_jobs.rate import Rate, Start
from flask_henri_jobs.store.rates import ALONE_SECONDS, SHARED_SECONDS, WHOLE_SECONDS, Rates, Wanted

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


def take(rates: Rates, number: int, bucket: str = "mail", rate: Rate = RATE) -> Start | None:
    """Count the start of one job."""
    return rates.take_one(Wanted(bucket, rate, job(number)))


def take_together(rates: Rates, numbers: t.Iterable[int], *buckets: str) -> dict[str, Start]:
    """Count the starts of jobs of one claim, a job of each number for each bucket in turn."""
    wanted = [
        Wanted(bucket, RATE, job(number))
        for number, bucket in zip(numbers, itertools.cycle(buckets or ["mail"]), strict=False)
    ]
    return rates.take(wanted)


def age(rates: Rates, ms: int, **which: t.Any) -> None:
    """Have starts be that much longer ago."""
    rates.rates.update_many(which, {"$inc": {"taken_at": -ms}})


def test_so_many_and_no_more(rates: Rates) -> None:
    """X4: of a bucket as many starts are counted as its rate says, and then none."""
    assert rates.free("mail", RATE, 3) == 3

    started = [take(rates, n) for n in range(RATE.most)]

    assert len({start.slot for start in started if start}) == RATE.most
    assert take(rates, 99) is None
    assert rates.free("mail", RATE, 3) == 0
    assert take(rates, 99, "mail:7") is not None


def test_a_window_later(rates: Rates, steady: Steady) -> None:
    """X4: a start is free again a whole window after the one in its place, and not before."""
    for n in range(RATE.most):
        take(rates, n)
    assert take(rates, 99) is None

    age(rates, RATE.window - 5_000)
    steady.seconds += RATE.window / 1000
    assert take(rates, 99) is None
    age(rates, 5_000 + RATE.leeway + 10, job_id={"$in": ["job-3", "job-7"]})
    steady.seconds += RATE.window / 1000

    assert rates.free("mail", RATE, 10) == 2
    assert take(rates, 100) is not None
    assert take(rates, 101) is not None
    assert take(rates, 102) is None
    kept = {row["job_id"] for row in rates.rates.find()}
    assert kept >= {"job-100", "job-101"}
    assert not kept & {"job-3", "job-7"}


def test_a_start_is_never_counted_too_early(rates: Rates) -> None:
    """X4: what is counted is later than any moment at which its job may begin, and by the
    server's clock."""
    before = rates.now()

    start = take(rates, 0)

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

    def take_five(number: int) -> list[str]:
        gate.wait()
        asked = [take(runners[number % 4], number * 10 + n) for n in range(5)]
        return [start.slot for start in asked if start is not None]

    with ThreadPoolExecutor(8) as pool:
        slots = [slot for found in pool.map(take_five, range(8)) for slot in found]

    assert len(slots) == len(set(slots)) == RATE.most
    assert rates.rates.count_documents({}) == RATE.most


def test_a_lowered_rate(rates: Rates, steady: Steady) -> None:
    """X4: where a rate was lowered, what is above it is not taken again."""
    for n in range(RATE.most):
        take(rates, n)
    age(rates, RATE.window + 1_000)
    lower = Rate("mail", 4, RATE.window)

    steady.seconds += ALONE_SECONDS
    assert rates.free("mail", lower, 10) == 4
    started = [take(rates, 100 + n, rate=lower) for n in range(6)]

    assert [start is not None for start in started] == [True] * 4 + [False] * 2


def test_a_raised_rate(rates: Rates, steady: Steady) -> None:
    """X4: where a rate was raised, there are more at once."""
    lower = Rate("mail", 4, RATE.window)
    for n in range(4):
        take(rates, n, rate=lower)
    assert take(rates, 4, rate=lower) is None
    steady.seconds += max(WHOLE_SECONDS, RATE.window / 1000) + 1

    assert take(rates, 4) is not None


def test_when_the_next_is_free(rates: Rates, steady: Steady) -> None:
    """X4: a runner looks again when a start is free, and asks nothing until then."""
    assert rates.free_at("mail", RATE) is None
    for n in range(RATE.most):
        take(rates, n)
    rates.begin_look()
    assert rates.look_in() == float("inf")

    assert take(rates, 99) is None

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
    start = take(rates, 1)
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
    """X4: a bucket is looked at once, and then a start is one round trip, and those of one claim
    are together: all is found by the index, whatever other buckets hold."""
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
    recorder.commands.clear()

    for n in range(5):
        assert rates.free("mail", RATE, 1) == 1
        assert take(rates, n) is not None
    plans = recorder.plans(database)
    assert len(take_together(rates, range(5, 12))) == 5
    assert rates.free("mail", RATE, 3) == 0
    assert take(rates, 12) is None

    assert [next(iter(plan.command)) for plan in plans] == ["aggregate", *["update"] * 5]
    assert max(plan.documents for plan in plans) <= 1
    assert max(plan.keys for plan in plans) <= RATE.most
    assert [next(iter(command)) for command in recorder.commands] == ["update"]


def test_a_window_later_it_costs_no_more(rates: Rates, recorder: Recorder, steady: Steady) -> None:
    """X4: who takes all starts of a bucket knows when each is free again."""
    short = Rate("mail", 3, 1_000)
    assert [take(rates, n, rate=short) is not None for n in range(4)] == [True, True, True, False]
    age(rates, 2_000)
    later = rates.now() + 2_000
    rates.now = lambda: later
    recorder.commands.clear()
    steady.seconds += 2

    assert [take(rates, n, rate=short) is not None for n in range(3)] == [True] * 3
    assert [next(iter(command)) for command in recorder.commands] == ["update"] * 3


def test_who_shares_a_bucket_looks_more_often(
    rates: Rates, jobs: Collection[Document], recorder: Recorder, steady: Steady
) -> None:
    """X4: a start that another took meanwhile costs two questions, and from then on what was seen
    of the bucket holds for a moment only."""
    other = rates_on(jobs, rates.now)
    rates.random = other.random = lambda slots, count: sorted(slots)[:count]
    assert rates.free("mail", RATE, 1) == 1
    for n in range(RATE.most - 2):
        take(other, n)
    taken = [row["slot"] for row in rates.rates.find()]
    assert 0 in taken
    recorder.commands.clear()

    assert take(rates, 100) is not None
    asked = [next(iter(command)) for command in recorder.commands]
    steady.seconds += SHARED_SECONDS
    rates.free("mail", RATE, 1)

    assert asked == ["update", "find", "aggregate", "update"]
    assert next(iter(recorder.commands[-1])) == "aggregate"
    assert take(rates, 101) is not None
    assert take(rates, 102) is None


def test_a_clock_that_is_ahead_spins_not(rates: Rates, recorder: Recorder) -> None:
    """X4: where this process takes starts for free that are not, it asks a few times and waits."""
    short = Rate("mail", 1, 1_000)
    assert take(rates, 0, rate=short) is not None
    ahead = rates.now() + 60_000
    rates.now = lambda: ahead
    recorder.commands.clear()

    assert take(rates, 1, rate=short) is None
    assert rates.is_spent("mail")

    assert len(recorder.commands) <= 9


def test_many_buckets_are_looked_at_together(rates: Rates, recorder: Recorder) -> None:
    """X4: what is free of many keys is one question, and their starts are one round trip."""
    buckets = [f"mail:{n}" for n in range(20)]
    take_together(rates, range(30), *buckets[:3])
    rates.look_again()
    recorder.commands.clear()

    rates.look(dict.fromkeys(buckets, RATE), 2)
    free = [rates.free(bucket, RATE, 2) for bucket in buckets]
    starts = take_together(rates, range(100, 120), *buckets[:3], *buckets)

    assert free == [0] * 3 + [2] * 17
    assert set(starts) == {f"job-{n}" for n in range(106, 120)}
    assert [next(iter(command)) for command in recorder.commands] == ["aggregate", "update"]


def test_slots_are_made_as_they_are_needed(rates: Rates) -> None:
    """X4: a bucket of a large rate that begins one job has a few documents, which the server
    deletes some time after the last start."""
    large = Rate("mail", 10_000, 60_000)

    take(rates, 0, "mail:1", large)

    assert rates.rates.count_documents({}) < 50
    row = t.cast("Document", rates.rates.find_one({"job_id": "job-0"}))
    assert row["idle_at"].timestamp() * 1000 > row["taken_at"] + large.window
