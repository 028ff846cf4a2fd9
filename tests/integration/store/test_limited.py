"""Claims of limited jobs: merged by order, ahead of the threads where they are short, and what
becomes of permits whose claims fail."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from claiming import claims_on, turns
from faults import CLOSED, LOST_REPLY, failing, faulty_client
from flask_henri_jobs.errors import StoreUnavailable
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store.claims import Claims
from flask_henri_jobs.store.doubts import CLAIM_SECONDS
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document, Job
    from rows import Now, Stored

SHORT: dict[str, t.Any] = {"ahead": 10, "limited_ahead": 3, "short_groups": {"imports"}}


class Steady:
    """Steady seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def claims(jobs: Collection[Document], now: Now) -> Claims:
    return claims_on(jobs, now)


@pytest.fixture
def faulty(
    mongo_uri: str, jobs: Collection[Document], now: Now
) -> Iterator[tuple[MongoClient[Document], Claims]]:
    with faulty_client(mongo_uri) as client:
        yield client, claims_on(client[jobs.database.name]["henri_jobs"], now, steady=Steady())


Faulty: t.TypeAlias = "tuple[MongoClient[Document], Claims]"


def wish(at_most: int = 4, most: int = 1, **how: t.Any) -> Wish:
    lanes = {"mail": Lane("imports", most, None), "post": Lane("posts", 1, None)}
    given = {"runner": "host:1:me", "queues": turns(["default"]), "lanes": lanes, **how}
    return Wish(at_most=at_most, **given)


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def held(claims: Claims) -> dict[str, str]:
    """Return which job each permit is for."""
    return {row["_id"]: row["job_id"] for row in claims.limited.permits.limits.find()}


def test_limited_and_free_in_one_order(claims: Claims, stored: Stored) -> None:
    """Q2: limited and unlimited jobs are taken in one order, each limited one with a permit."""
    stored("a", concurrency_key="imports:1")
    stored("b", name="free")
    stored("c", concurrency_key="imports:2")
    stored("d", name="free")
    stored("e", concurrency_key="imports:3", priority=-1)

    taken = claims.take(wish(4))

    assert ids(taken) == ["e", "a", "b", "c"]
    assert [job.permit for job in taken] == ["imports:3#0", "imports:1#0", None, "imports:2#0"]
    assert held(claims) == {"imports:3#0": "e", "imports:1#0": "a", "imports:2#0": "c"}


def test_lowered_limit_while_jobs_run(claims: Claims, stored: Stored, now: Now) -> None:
    """L1: after a limit went from 4 to 2 with 4 inside, nothing is taken until 1 is inside, and
    those that run are left alone."""
    for number in range(8):
        stored(str(number), concurrency_key="imports")
    inside = claims.take(wish(8, most=4))
    assert len(inside) == 4

    permits = claims.limited.permits
    permits.steady = itertools.count().__next__
    for job in inside[:3]:
        assert claims.take(wish(8, most=2)) == []
        permits.give_back([job])
    claims.look_again()
    assert len(claims.take(wish(8, most=2))) == 1

    assert claims.take(wish(8, most=2)) == []
    assert claims.jobs.count_documents({"state": "running", "attempts": 1}) == 5


def test_short_ones_are_claimed_ahead(claims: Claims, stored: Stored) -> None:
    """W4: short limited jobs are claimed ahead, as many as can begin soon; nothing overtakes the
    next of them."""
    for number in range(6):
        stored(f"{number}", concurrency_key=f"imports:{number}")
    stored("9", name="free")

    assert ids(claims.take(wish(2, **SHORT))) == ["0", "1", "2", "3", "4"]
    assert ids(claims.take(wish(0, **SHORT))) == ["5", "9"]


@pytest.mark.parametrize(
    "how", [{}, {"short_groups": {"posts"}}, {"short_groups": {"imports"}, "limited_ahead": 0}]
)
def test_long_ones_are_not(claims: Claims, stored: Stored, how: dict[str, t.Any]) -> None:
    """W4: limited jobs that are not known to be short wait for a thread, and end what is claimed
    ahead of them: their permits would keep others out."""
    stored("a", name="free")
    stored("b", concurrency_key="imports:1")
    stored("c", name="free")

    assert ids(claims.take(wish(0, **{"ahead": 10, "limited_ahead": 3, **how}))) == ["a"]
    assert held(claims) == {}


def test_what_is_not_taken_has_no_permit(claims: Claims, stored: Stored) -> None:
    """W4, L6: where a claim ends before a limited job that it chose, its permit goes back."""
    for number in range(4):
        stored(f"{number}", concurrency_key=f"imports:{number}")
    takes = iter([True, True, False]).__next__

    taken = claims.take(wish(1, takes=lambda _: takes(), **SHORT))

    assert ids(taken) == ["0", "1"]
    assert set(held(claims).values()) == {"0", "1"}


def test_hand_back(claims: Claims, stored: Stored) -> None:
    """W4, L6: a job that is handed back has no permit any more, and begins again elsewhere."""
    stored("a", concurrency_key="imports:1")
    taken = claims.take(wish())

    assert claims.hand_back(taken).returned == 1

    assert held(claims) == {}
    claims.look_again()
    assert ids(claims.take(wish())) == ["a"]


def test_rival_has_the_job(claims: Claims, stored: Stored, monkeypatch: t.Any) -> None:
    """L6: a permit whose job another runner claimed first goes back at once."""
    stored("a", concurrency_key="imports:1")
    stored("b", name="free")
    stamp = Claims.stamp

    def too_late(self: Claims, *args: t.Any) -> list[Job]:
        claims.jobs.update_one({"_id": "a"}, {"$set": {"state": "running", "claim_token": "x"}})
        return stamp(self, *args)

    monkeypatch.setattr(Claims, "stamp", too_late)

    assert ids(claims.take(wish())) == ["b"]
    assert held(claims) == {}


def test_claim_whose_reply_was_lost(faulty: Faulty, stored: Stored) -> None:
    """A5: what a claim took whose reply was lost is found with its permit."""
    client, claims = faulty
    stored("a", concurrency_key="imports:1")
    with failing(client, "update", times=1, **LOST_REPLY), pytest.raises(StoreUnavailable):
        claims.take(wish())

    [job] = claims.take(wish())

    assert (job.id, job.permit) == ("a", "imports:1#0")


def test_claim_without_effect(faulty: Faulty, stored: Stored) -> None:
    """A5, L6: the permits of a claim that took no effect go back when it cannot any more."""
    client, claims = faulty
    stored("a", concurrency_key="imports:1")
    with failing(client, "update", times=1, **CLOSED), pytest.raises(StoreUnavailable):
        claims.take(wish())
    assert claims.take(wish()) == []
    assert held(claims) == {"imports:1#0": "a"}

    t.cast(Steady, claims.doubts.steady).seconds += 2 * CLAIM_SECONDS + 1
    claims.look_again()
    claims.doubts.late()
    assert held(claims) == {}
    assert ids(claims.take(wish())) == ["a"]


def test_permits_that_could_not_be_given_back(faulty: Faulty, stored: Stored) -> None:
    """L6: a claim stands that could not give back what it did not use, and that goes back later."""
    client, claims = faulty
    for number in range(3):
        stored(f"{number}", concurrency_key=f"imports:{number}")
    takes = iter([True, False]).__next__
    with failing(client, "delete", times=2, **CLOSED):
        taken = claims.take(wish(1, takes=lambda _: takes(), **SHORT))
    assert ids(taken) == ["0"]
    assert len(held(claims)) == 3

    claims.limited.permits.tidy()

    assert held(claims) == {"imports:0#0": "0"}


def test_permits_of_unknown_fate(faulty: Faulty, stored: Stored) -> None:
    """A11: a claim whose permits may or may not be there takes nothing, and leaves none."""
    client, claims = faulty
    stored("a", concurrency_key="imports:1")
    with failing(client, "insert", times=1, **LOST_REPLY), pytest.raises(StoreUnavailable):
        claims.take(wish())

    claims.look_again()
    assert ids(claims.take(wish())) == ["a"]
    assert held(claims) == {"imports:1#0": "a"}
