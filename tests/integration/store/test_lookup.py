"""Reading jobs."""

from __future__ import annotations

import typing as t

import pymongo
import pytest

from flask_henri_jobs.errors import (
    InvalidFilter,
    JobFailed,
    StoreUnavailable,
    UnknownJob,
    WaitTimeout,
)
from flask_henri_jobs.store.filters import JobFilter
from flask_henri_jobs.store.lookup import Lookup

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from rows import Now, Stored


@pytest.fixture
def lookup(jobs: Collection[Document]) -> Lookup:
    return Lookup(jobs)


class Pauses:
    """Steady seconds that pass in pauses only; something may happen in a pause."""

    def __init__(self, happens: Callable[[float], object] = lambda _: None) -> None:
        self.seconds = 0.0
        self.taken: list[float] = []
        self._happens = happens

    def steady(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.seconds += seconds
        self._happens(self.seconds)

    def lookup(self, jobs: Collection[Document]) -> Lookup:
        return Lookup(jobs, steady=self.steady, sleep=self.sleep)


def test_find(lookup: Lookup, stored: Stored) -> None:
    """A job is found by its id, and can be read anew."""
    stored("a", queue="low")

    job = lookup.find("a")

    assert job is not None
    assert job.queue == "low"
    lookup.jobs.update_one({"_id": "a"}, {"$set": {"queue": "high"}})
    assert job.refresh().queue == "high"


def test_find_nothing(lookup: Lookup) -> None:
    """None is found under an id that no job has, and a job that is gone cannot be read anew."""
    assert lookup.find("nobody") is None
    with pytest.raises(UnknownJob, match="no job nobody"):
        lookup.row_of("nobody")


@pytest.mark.parametrize("job_id", [{"$ne": ""}, ["a"], None, 7, "", "\ud800"], ids=repr)
def test_find_takes_text_only(lookup: Lookup, stored: Stored, job_id: t.Any) -> None:
    """Q9: an operator in the place of an id is refused, and so is what no id can be."""
    stored("a")
    with pytest.raises(InvalidFilter):
        lookup.find(job_id)


def test_page_is_in_order(lookup: Lookup, stored: Stored, now: Now) -> None:
    """A page has the jobs of every state, those first that changed last, then by id."""
    for state in ("pending", "running", "done", "dead"):
        stored(f"{state}-b", state)
        stored(f"{state}-a", state)
        now.advance(ms=1)

    found = [job.id for job in lookup.page(JobFilter(), limit=5)]

    assert found == ["dead-a", "dead-b", "done-a", "done-b", "running-a"]
    assert [job.id for job in lookup.page(JobFilter(), limit=5, offset=5)] == [
        "running-b",
        "pending-a",
        "pending-b",
    ]


SELECTED = {
    "state": {"state": "dead"},
    "queue": {"queue": "low"},
    "name": {"name": "resize"},
    "tenant": {"tenant": "acme"},
    "batch": {"batch": "b1"},
    "tag": {"tag": "order:42"},
    "reason": {"reason": "lost"},
    "tenant and state": {"tenant": "acme", "state": "dead"},
    "batch and tenant": {"tenant": "acme", "batch": "b1"},
    "everything": {
        "state": "dead",
        "queue": "low",
        "name": "resize",
        "tenant": "acme",
        "batch": "b1",
        "tag": "order:42",
        "reason": "lost",
    },
}


@pytest.mark.parametrize("given", SELECTED.values(), ids=SELECTED)
def test_filters(lookup: Lookup, stored: Stored, given: dict[str, str]) -> None:
    """T2: a page and a count have the jobs that fit everything given, and no other."""
    stored(
        "fits",
        "dead",
        queue="low",
        name="resize",
        tenant="acme",
        batch_id="b1",
        tags=["order:41", "order:42"],
        dead_reason="lost",
    )
    stored("other", "done", tenant="other", batch_id="b2", tags=["order:43"])
    stored("bare")
    which = JobFilter.read(**given)

    assert [job.id for job in lookup.page(which)] == ["fits"]
    assert lookup.count(which) == 1


def test_no_reason_is_failed(lookup: Lookup, stored: Stored) -> None:
    """A dead job without a reason, as henri leaves it, counts as failed; a done job does not."""
    row = stored("henri", "dead")
    lookup.jobs.update_one({"_id": row["_id"]}, {"$unset": {"dead_reason": ""}})
    stored("ours", "dead", dead_reason="failed")
    stored("lost", "dead", dead_reason="lost")
    stored("done", "done")

    assert {job.id for job in lookup.page(JobFilter.read(reason="failed"))} == {"henri", "ours"}
    assert lookup.count(JobFilter.read(reason="lost")) == 1


def test_cut_page(lookup: Lookup, stored: Stored, now: Now) -> None:
    """B5: a page of what is rare ends at its bound, has what it found, and says that it is cut."""
    stored("rare-old", "done", name="rare")
    for number in range(10):
        now.advance(ms=1)
        stored(f"often-{number}", "done")
    now.advance(ms=1)
    stored("rare-new", "done", name="rare")
    rare = JobFilter.read(name="rare")

    cut = lookup.page(rare, limit=5, most_examined=11)
    whole = lookup.page(rare, limit=5, most_examined=12)

    assert ([job.id for job in cut], cut.is_cut) == (["rare-new"], True)
    assert ([job.id for job in whole], whole.is_cut) == (["rare-new", "rare-old"], False)


def test_full_page_is_not_cut(lookup: Lookup, stored: Stored) -> None:
    """A page that is full, or the last of what there is, is not cut."""
    for number in range(3):
        stored(str(number))

    assert not lookup.page(JobFilter(), limit=2, most_examined=2).is_cut
    assert not lookup.page(JobFilter(), limit=2, offset=2, most_examined=2).is_cut


@pytest.mark.parametrize("bounds", [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"limit": True}])
def test_bounds_of_a_page(lookup: Lookup, bounds: dict[str, int]) -> None:
    """A page has 1 to 1,000 jobs from an offset on, and is refused otherwise."""
    with pytest.raises(InvalidFilter, match=next(iter(bounds))):
        lookup.page(JobFilter(), **bounds)


def test_wait(jobs: Collection[Document], stored: Stored) -> None:
    """A wait ends with the job, and returns its row."""
    stored("a", "running")
    pauses = Pauses(
        lambda passed: passed > 3 and jobs.update_one({"_id": "a"}, {"$set": {"state": "done"}})
    )

    assert pauses.lookup(jobs).wait_for_end("a", timeout=None)["state"] == "done"
    assert pauses.taken[:3] == [0.005, 0.01, 0.02]
    assert max(pauses.taken) == 1.0


def test_wait_too_short(jobs: Collection[Document], stored: Stored) -> None:
    """A wait gives up when its time has passed, and not before."""
    stored("a")
    pauses = Pauses()

    with pytest.raises(WaitTimeout, match=r"not ended after 0\.4 s"):
        pauses.lookup(jobs).wait_for_end("a", timeout=0.4)

    assert sum(pauses.taken) == pytest.approx(0.4)


def test_wait_for_what_has_ended(jobs: Collection[Document], stored: Stored) -> None:
    """A wait without any time returns what has ended already."""
    stored("a", "dead")
    pauses = Pauses()
    job = pauses.lookup(jobs).find("a")

    assert job is not None
    with pytest.raises(JobFailed, match="ValueError: no"):
        job.wait(0)
    assert pauses.taken == []


def test_wait_for_what_is_deleted(jobs: Collection[Document], stored: Stored) -> None:
    """A wait for a job that is deleted meanwhile ends, and says so."""
    stored("a")
    pauses = Pauses(lambda _: jobs.delete_one({"_id": "a"}))

    with pytest.raises(UnknownJob):
        pauses.lookup(jobs).wait_for_end("a", timeout=5)


@pytest.mark.parametrize(
    "ask",
    [
        lambda lookup: lookup.find("a"),
        lambda lookup: lookup.page(JobFilter()),
        lambda lookup: lookup.count(JobFilter()),
        lambda lookup: lookup.wait_for_end("a", 5),
    ],
    ids=["find", "page", "count", "wait_for_end"],
)
def test_outage(unreachable: MongoClient[Document], ask: Callable[[Lookup], object]) -> None:
    """Every question is answered or fails as StoreUnavailable."""
    # The shorter of two limits holds: the test's own, so as not to wait for the store's.
    with pytest.raises(StoreUnavailable, match="did not answer"), pymongo.timeout(0.1):
        ask(Lookup(unreachable["any"]["henri_jobs"]))
