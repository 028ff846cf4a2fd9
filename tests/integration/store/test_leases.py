"""Heartbeats, and what becomes of jobs without them."""

from __future__ import annotations

import math
import typing as t
from datetime import timedelta

import pytest

from claiming import permits_on
from flask_henri_jobs.job import Job
from flask_henri_jobs.store.leases import MOST_RECOVERED, Leases
from server_time import ServerTime

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from rows import Stored

STUCK = timedelta(seconds=60)


@pytest.fixture
def time() -> ServerTime:
    return ServerTime()


@pytest.fixture
def leases(jobs: Collection[Document], time: ServerTime) -> Leases:
    return Leases(jobs, time.clock, permits_on(jobs, time.clock))


@pytest.fixture
def calm(time: ServerTime) -> None:
    """The server's clock has been watched for an hour."""
    time.advance(3600)


def row_of(leases: Leases, id: str) -> Document:
    row = leases.jobs.find_one({"_id": id})
    assert row is not None
    return row


def test_heartbeat(leases: Leases, stored: Stored, time: ServerTime) -> None:
    """W4: A heartbeat stamps the jobs that are held, and nothing else of them or of others."""
    ours = [Job(stored(id, "running")) for id in ("a", "b")]
    other = stored("c", "running", claim_token="another's")
    time.advance(10)

    assert leases.keep(ours) == set()

    assert row_of(leases, "a") == {**ours[0].row, "heartbeat_at": time.now}
    assert row_of(leases, "c") == other


@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"claim_token": "another's"}},
        {"$set": {"state": "done"}},
        {"$set": {"state": "pending"}, "$unset": {"claim_token": ""}},
    ],
    ids=["claimed by another", "ended", "put back"],
)
def test_heartbeat_of_a_lost_job(
    leases: Leases, stored: Stored, time: ServerTime, change: Document
) -> None:
    """Q3: A heartbeat learns which jobs are lost, and changes nothing of them."""
    held = [Job(stored(id, "running")) for id in ("a", "lost")]
    leases.jobs.update_one({"_id": "lost"}, change)
    before = row_of(leases, "lost")
    time.advance(10)

    assert leases.keep(held) == {"lost"}

    assert row_of(leases, "lost") == before
    assert row_of(leases, "a")["heartbeat_at"] == time.now


def test_heartbeat_of_a_deleted_job(leases: Leases, stored: Stored) -> None:
    """A job whose row is gone is lost."""
    job = Job(stored("a", "running"))
    leases.jobs.delete_many({})

    assert leases.keep([job]) == {"a"}


def test_recovered(leases: Leases, stored: Stored, calm: None, time: ServerTime) -> None:
    """Q4: A job whose heartbeat is older than ``stuck_after`` goes back, due now, with its attempt
    and an entry in its history that names the runner."""
    before = stored("a", "running", attempts=2, heartbeat_at=time.now - 60_001, unique_key="k")

    (job,) = leases.recover(STUCK)

    message = "The runner host:1:runner stopped answering while performing this job."
    row = row_of(leases, "a")
    assert row == job.row
    del before["claim_token"]
    assert row == before | {
        "state": "pending",
        "run_at": time.now,
        "updated_at": time.now,
        "claimed_at": None,
        "claimed_by": None,
        "heartbeat_at": None,
        "error_message": message,
        "history": row["history"],
        "suspect": True,
    }
    (entry,) = job.history
    assert (entry["attempt"], entry["runner"]) == (2, "host:1:runner")
    assert (entry["message"], entry["duration"]) == (message, None)


@pytest.mark.parametrize("age", [0, 59_999, 60_000])
def test_not_stuck(leases: Leases, stored: Stored, calm: None, time: ServerTime, age: int) -> None:
    """Q4: A job with a heartbeat that is younger is left alone, and so is one that has ended."""
    stored("a", "running", heartbeat_at=time.now - age)
    stored("b", "done", heartbeat_at=0)

    assert leases.recover(STUCK) == []


@pytest.mark.parametrize(("key", "freed"), [("mail:7", True), ("recurring:a:1", False)])
def test_no_attempt_left(
    leases: Leases, stored: Stored, calm: None, time: ServerTime, key: str, freed: bool
) -> None:
    """Q4: With no attempts left a recovered job is dead as lost, and its unique key is free."""
    stored("a", "running", attempts=5, heartbeat_at=0, unique_key=key)

    (job,) = leases.recover(STUCK)

    assert (job.state, job.dead_reason) == ("dead", "lost")
    assert job.row["finished_at"] == time.now
    assert job.row == row_of(leases, "a")
    assert ("unique_key" not in job.row) is freed
    assert job.claimed_by == "host:1:runner"


def test_nothing_is_recovered_by_a_clock_that_jumped(
    leases: Leases, stored: Stored, calm: None, time: ServerTime
) -> None:
    """B8: After the server's clock jumped, nothing is recovered until every living runner has had
    ``stuck_after`` to stamp anew."""
    stored("a", "running", heartbeat_at=time.now)
    time.jump(600)

    assert leases.recover(STUCK) == []
    time.advance(59)
    assert leases.recover(STUCK) == []
    time.advance(1)
    assert len(leases.recover(STUCK)) == 1


def test_nothing_is_recovered_right_after_the_start(leases: Leases, stored: Stored) -> None:
    """B8: A runner that just came up has not watched the clock for long enough to judge by it."""
    stored("a", "running", heartbeat_at=0)

    assert leases.recover(STUCK) == []


class Raced(Leases):
    """Leases where something happens between the reading of stuck jobs and the recovery."""

    __slots__ = ("happens",)
    happens: t.Callable[[], object]

    def _put_back(self, rows: list[Document], said: t.Any, suspect: bool = True) -> list[Job]:
        self.happens()
        return super()._put_back(rows, said, suspect)


@pytest.fixture
def raced(jobs: Collection[Document], time: ServerTime) -> t.Callable[..., Raced]:
    def make(happens: t.Callable[[], object]) -> Raced:
        leases = Raced(jobs, time.clock, permits_on(jobs, time.clock))
        object.__setattr__(leases, "happens", happens)
        return leases

    return make


CHANGES: dict[str, Document] = {
    "woke up": {"$set": {"heartbeat_at": 1}},
    "ended": {"$set": {"state": "done"}},
    "claimed by another": {"$set": {"claim_token": "another's"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_not_what_was_read(
    raced: t.Callable[..., Raced], stored: Stored, calm: None, change: str
) -> None:
    """Q4: A job that changed between the read and the recovery is left, and is not reported."""
    for id in ("a", "changed", "z"):
        stored(id, "running", heartbeat_at=0)
    racing: Leases = raced(lambda: racing.jobs.update_one({"_id": "changed"}, CHANGES[change]))

    assert sorted(job.id for job in racing.recover(STUCK)) == ["a", "z"]

    assert row_of(racing, "changed")["history"] == "[]"


def test_two_recover_at_once(
    raced: t.Callable[..., Raced], leases: Leases, stored: Stored, calm: None
) -> None:
    """Q4: Of two that recover the same jobs at the same moment one does, and reports it."""
    for id in ("a", "b"):
        stored(id, "running", heartbeat_at=0)
    first: list[Job] = []
    late = raced(lambda: first.extend(leases.recover(STUCK)))

    assert late.recover(STUCK) == []

    assert len(first) == 2
    assert [len(job.history) for job in map(Job, leases.jobs.find())] == [1, 1]


def test_recovery_in_steps(leases: Leases, stored: Stored, calm: None) -> None:
    """Q4: Very many stuck jobs are recovered a hundred at a time."""
    for number in range(MOST_RECOVERED + 5):
        stored(f"{number:03}", "running", heartbeat_at=0)

    assert len(leases.recover(STUCK)) == MOST_RECOVERED
    assert len(leases.recover(STUCK)) == 5


def test_recovery_from_a_runner_that_is_gone(
    leases: Leases, stored: Stored, time: ServerTime
) -> None:
    """W6: What a runner has that is known to be gone goes back at once, whatever its heartbeat."""
    stored("a", "running", heartbeat_at=time.now)
    stored("b", "running", heartbeat_at=time.now)
    stored("other", "running", claimed_by="host:2:other", heartbeat_at=0)

    assert [job.id for job in leases.recover_from("host:1:runner", "was killed", ["b"])] == ["b"]
    (job,) = leases.recover_from("host:1:runner", "was killed by signal 9")

    assert job.id == "a"
    assert job.error == "The runner host:1:runner was killed by signal 9 while performing this job."
    assert row_of(leases, "other")["state"] == "running"


def test_heartbeats_of_a_henri_runner(
    leases: Leases, stored: Stored, calm: None, time: ServerTime
) -> None:
    """Section 3: A henri runner's job, whose numbers are floats, is recovered when it is stuck."""
    stored("a", "running", heartbeat_at=float(time.now - 60_001), attempts=1.0, max_attempts=5.0)
    stored("b", "running", heartbeat_at=float(time.now), attempts=1.0)
    stored("c", "running", heartbeat_at=float(time.now - 60_001), max_attempts=math.inf)

    assert [job.id for job in leases.recover(STUCK)] == ["a", "c"]


ODD_RUNNING: dict[str, Document] = {
    "history of no JSON": {"history": "{"},
    "history of a number": {"history": "7"},
    "no most attempts": {"max_attempts": None},
    "attempts of text": {"attempts": "1"},
    "attempts of a list": {"attempts": [1]},
    "attempts of no number": {"attempts": math.nan},
    "most attempts of a list": {"max_attempts": [1]},
    "no token": {"claim_token": None},
}


@pytest.mark.parametrize("odd", ODD_RUNNING.values(), ids=list(ODD_RUNNING))
def test_spoilt_running_job(
    leases: Leases,
    stored: t.Callable[..., Document],
    calm: None,
    odd: Document,
) -> None:
    """Q4: A job that cannot be put back keeps no other from it; one without a history has a new."""
    stored("a", "running", heartbeat_at=0, **odd)
    stored("b", "running", heartbeat_at=0)

    recovered = leases.recover(STUCK)

    assert "b" in {job.id for job in recovered}
    assert all(len(job.history) == 1 for job in recovered)
