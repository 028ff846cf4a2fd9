"""What a process holds, and how long ago it was known to."""

from __future__ import annotations

import pytest

from flask_henri_jobs.job import Job
from flask_henri_jobs.worker.holdings import Holdings


class Seconds:
    """Steady seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def holdings(seconds: Seconds) -> Holdings:
    return Holdings(seconds)


def job(job_id: str = "a", token: str = "ours") -> Job:
    return Job({"_id": job_id, "claim_token": token})


def test_age(holdings: Holdings, seconds: Seconds) -> None:
    """W4: How old a claim is counts from before it was asked for, and from each heartbeat."""
    holdings.add([job("a"), job("b")], holdings.now())
    seconds.now += 10
    holdings.renew([job("b")], holdings.now())

    assert holdings.older_than(10) == [job("a")]
    assert holdings.older_than(10.1) == []
    assert holdings.is_fresh(job("a"), 10.1)
    assert not holdings.is_fresh(job("a"), 10)
    assert holdings.is_fresh(job("b"), 0.1)
    assert holdings.not_cancelled() == [job("a"), job("b")]


def test_dropped(holdings: Holdings) -> None:
    """W4: What is dropped is held no more, and a late heartbeat does not bring it back."""
    holdings.add([job()], holdings.now())
    holdings.drop([job(), job("unknown")])
    holdings.renew([job()], holdings.now())

    assert len(holdings) == 0
    assert not holdings.is_fresh(job(), 3600)


def test_a_claim_under_another_token(holdings: Holdings, seconds: Seconds) -> None:
    """A9: A job that was recovered and claimed again, by the same process, is another claim: what
    is known of the one says nothing of the other."""
    holdings.add([job(token="old")], holdings.now())
    seconds.now += 100
    holdings.add([job(token="new")], holdings.now())

    assert not holdings.is_fresh(job(token="old"), 3600)
    assert holdings.is_fresh(job(token="new"), 1)

    seconds.now += 100
    holdings.renew([job(token="old")], holdings.now())
    holdings.drop([job(token="old")])
    assert [one.row["claim_token"] for one in holdings.older_than(100)] == ["new"]


def test_doubt(holdings: Holdings) -> None:
    """W4: What may have been handed back is held, and not fresh before its next heartbeat."""
    holdings.add([job()], holdings.now())
    holdings.doubt([job()])

    assert not holdings.is_fresh(job(), 1e9)
    assert holdings.older_than(1e9) == [job()]
    holdings.renew([job()], holdings.now())
    assert holdings.is_fresh(job(), 1)
