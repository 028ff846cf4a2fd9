"""What is written of a cancelled job, and that nothing lets it begin again (W8, B12)."""

from __future__ import annotations

import threading
import typing as t
from datetime import timedelta

import pytest

from claiming import claims_on, permits_on
from flask_henri_jobs.errors import UnknownJob
from flask_henri_jobs.job import Job
from flask_henri_jobs.outcome import Again, Dead, Done, Failure, Outcome, Snoozed
from flask_henri_jobs.store.admin import Admin
from flask_henri_jobs.store.cancels import NEVER_BEGUN
from flask_henri_jobs.store.leases import Leases
from flask_henri_jobs.store.outcomes import Outcomes
from flask_henri_jobs.store.wish import Wish
from server_time import ServerTime

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from flask_henri_jobs.store.claims import Claims
    from plans import Recorder
    from rows import Now, Stored

RUNNER = "host:1:runner"
AT = 1_800_000_000_050
FAILURE = Failure(message="ValueError: no", stack="Traceback …")
AGAIN = Again(at=AT, duration=20, run_at=AT + 5000, failure=FAILURE)
SNOOZED = Snoozed(at=AT, run_at=AT + 5000)


@pytest.fixture
def admin(jobs: Collection[Document], batches: Collection[Document], now: Now) -> Admin:
    return Admin(jobs, batches, now)


@pytest.fixture
def claims(jobs: Collection[Document], now: Now) -> Claims:
    return claims_on(jobs, now)


@pytest.fixture
def leases(jobs: Collection[Document]) -> Leases:
    time = ServerTime()
    time.advance(3600)
    return Leases(jobs, time.clock, permits_on(jobs, time.clock))


def row_of(jobs: Collection[Document], job_id: str = "a") -> Document:
    row = jobs.find_one({"_id": job_id})
    assert row is not None
    return row


def ask(jobs: Collection[Document], job_id: str = "a") -> None:
    """Ask for the end of a job, as a cancel does."""
    jobs.update_one({"_id": job_id}, {"$set": {"cancel_requested_at": AT}})


def test_waiting(admin: Admin, jobs: Collection[Document], stored: Stored, now: Now) -> None:
    """A waiting job is dead by one write, with its reason and an entry; its key is free (Q7)."""
    row = stored("a", attempts=2, unique_key="mail:7", claim_token="of its last attempt")
    now.advance(ms=10)

    was, job = admin.cancel("a")

    assert was == "pending"
    assert row_of(jobs) == job.row
    changed = {"state": "dead", "dead_reason": "cancelled", "error_message": NEVER_BEGUN}
    moments = {"finished_at": now(), "updated_at": now(), "history": job.row["history"]}
    expected = row | changed | moments
    del expected["unique_key"], expected["claim_token"]
    assert job.row == expected
    assert [(past["attempt"], past["message"]) for past in job.history] == [(2, NEVER_BEGUN)]


def test_key_of_the_queue_stays(admin: Admin, stored: Stored) -> None:
    """Q7, S1: The slot of a schedule is not free again when its job is cancelled."""
    stored("a", unique_key="recurring:mail:1800000000000")

    _, job = admin.cancel("a")

    assert job.unique_key == "recurring:mail:1800000000000"


def test_running(admin: Admin, jobs: Collection[Document], stored: Stored, now: Now) -> None:
    """A running job has its request, from the first time that somebody asked."""
    row = stored("a", "running")
    first = now.advance(ms=10)

    assert admin.cancel("a")[0] == "running"
    now.advance(ms=10)
    _, job = admin.cancel("a")

    assert job.row == row_of(jobs) == row | {"cancel_requested_at": first}


@pytest.mark.parametrize("state", ["done", "dead"])
def test_ended(admin: Admin, jobs: Collection[Document], stored: Stored, state: str) -> None:
    """A job that has ended stays as it is."""
    row = stored("a", state)

    assert admin.cancel("a") == (state, Job(row))
    assert row_of(jobs) == row


def test_unknown(admin: Admin) -> None:
    """A job that is not there is named."""
    with pytest.raises(UnknownJob, match="There is no job a"):
        admin.cancel("a")


def test_race_lost_both_ways(admin: Admin, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """B12: A job that is claimed after it was read as waiting, and goes back after it was read as
    running, is cancelled in the end."""
    stored("a")
    between: list[Document] = [
        {"state": "running", "claim_token": "t", "claimed_by": RUNNER, "attempts": 1},
        {"state": "pending", "claim_token": None, "claimed_by": None},
    ]
    read = Admin.row_of

    def row_of_then(self: Admin, job_id: str) -> Document:
        row = read(self, job_id)
        if between:
            self.jobs.update_one({"_id": job_id}, {"$set": between.pop(0)})
        return row

    monkeypatch.setattr(Admin, "row_of", row_of_then)

    was, job = admin.cancel("a")

    assert (was, job.state, job.dead_reason, job.attempts) == ("pending", "dead", "cancelled", 1)


def test_rivals_of_a_claim(
    admin: Admin, claims: Claims, jobs: Collection[Document], stored: Stored
) -> None:
    """Of a cancel and a claim at once one comes first: what died was not claimed, and what was
    claimed has the request."""
    ids = [f"{number:02}" for number in range(60)]
    for job_id in ids:
        stored(job_id)
    together = threading.Barrier(2)
    claimed: list[Job] = []

    def claim() -> None:
        together.wait(5)
        while jobs.count_documents({"state": "pending"}):
            claimed.extend(claims.take(Wish(runner=RUNNER, at_most=2)))

    claiming = threading.Thread(target=claim)
    claiming.start()
    together.wait(5)
    for job_id in reversed(ids):
        admin.cancel(job_id)
    claiming.join()

    dead = {row["_id"] for row in jobs.find({"state": "dead"})}
    asked = {row["_id"] for row in jobs.find({"state": "running", "cancel_requested_at": AT - 50})}
    assert {job.id for job in claimed} == asked
    assert dead | asked == set(ids)
    assert all(row["attempts"] == 0 for row in jobs.find({"state": "dead"}))


@pytest.mark.parametrize("outcome", [AGAIN, SNOOZED], ids=["Again", "Snoozed"])
@pytest.mark.parametrize("times", [1, 2])
def test_goes_back_cancelled(
    jobs: Collection[Document], stored: Stored, outcome: Outcome, times: int
) -> None:
    """B12: An attempt that would have its job wait again has it dead where it is cancelled; so it
    is told, also where the reply is lost and it is written again."""
    stored("a", "running", unique_key="mail:7", started_at=AT - 30)
    job = Job(row_of(jobs))
    ask(jobs)

    for _ in range(times):
        now = Outcomes(jobs).write(job, outcome)

    row = row_of(jobs)
    assert now is not None
    assert {**now.row, "cancel_requested_at": AT} == row
    assert (row["state"], row["dead_reason"], row["finished_at"]) == ("dead", "cancelled", AT)
    assert "unique_key" not in row
    if outcome is AGAIN:
        assert (now.error, now.error_stack, row["duration_ms"]) == (*FAILURE_TEXTS, 20)
    else:
        assert (now.error, row["duration_ms"]) == ("The job was cancelled.", 30)
    assert len(now.history) == 1


FAILURE_TEXTS = (FAILURE.message, FAILURE.stack)


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        (Done(at=AT, duration=20), "done", None),
        (Dead(at=AT, duration=20, reason="discarded", failure=FAILURE), "dead", "discarded"),
    ],
)
def test_ends_first(
    jobs: Collection[Document], stored: Stored, outcome: Outcome, state: str, reason: str | None
) -> None:
    """W8: A running job that is done first is done, and one that dies by itself says why."""
    stored("a", "running")
    ask(jobs)

    Outcomes(jobs).write(Job(row_of(jobs)), outcome)

    assert (row_of(jobs)["state"], row_of(jobs).get("dead_reason")) == (state, reason)


def test_one_of_a_group(jobs: Collection[Document], stored: Stored) -> None:
    """W2: In a group of outcomes the cancelled job dies, the others go back or are lost."""
    rows = [Job(stored(name, "running")) for name in ("a", "b", "c")]
    ask(jobs, "b")
    jobs.update_one({"_id": "c"}, {"$set": {"claim_token": "another's", "state": "running"}})

    written = Outcomes(jobs).write_many([(job, AGAIN) for job in rows])

    assert [job and job.state for job in written] == ["pending", "dead", None]


def test_handed_back(claims: Claims, jobs: Collection[Document], stored: Stored, now: Now) -> None:
    """B12: What was claimed and not begun is dead at a hand-back, as if it had not been claimed."""
    for job_id in ("a", "b"):
        stored(job_id, unique_key=job_id)
    taken = claims.take(Wish(runner=RUNNER, at_most=2))
    ask(jobs)

    back = claims.hand_back(taken)

    assert (back.returned, [job.id for job in back.cancelled]) == (1, ["a"])
    assert row_of(jobs, "b")["state"] == "pending"
    assert row_of(jobs) == back.cancelled[0].row
    row = row_of(jobs)
    assert (row["state"], row["attempts"], row["claimed_by"]) == ("dead", 0, None)
    assert row["dead_reason"] == "cancelled"
    assert not row.keys() & {"unique_key", "claim_token"}
    assert claims.hand_back(taken) == (0, [])


def test_handed_back_from_a_dead_runner(
    leases: Leases, jobs: Collection[Document], stored: Stored
) -> None:
    """W6: The same, where a supervisor hands back what its process had not begun."""
    for job_id in ("a", "b", "begun"):
        stored(job_id, "running")
    ask(jobs)
    ask(jobs, "begun")

    back = leases.hand_back_from(RUNNER, ["begun"])

    assert (back.returned, [job.id for job in back.cancelled]) == (1, ["a"])
    assert row_of(jobs, "begun")["state"] == "running"


Recover = t.Callable[[Leases], list[Job]]
RECOVERIES: dict[str, Recover] = {
    "silent": lambda leases: leases.recover(timedelta(seconds=60)),
    "killed": lambda leases: leases.recover_from(RUNNER, "was killed by signal 9"),
}


@pytest.mark.parametrize("recover", RECOVERIES.values(), ids=RECOVERIES)
def test_recovered(
    leases: Leases, jobs: Collection[Document], stored: Stored, recover: Recover
) -> None:
    """B12: A cancelled job whose runner is gone is dead as cancelled, not put back nor lost."""
    for job_id in ("a", "b"):
        stored(job_id, "running", heartbeat_at=0)
    ask(jobs)

    found = {job.id: job for job in recover(leases)}

    assert [(found[one].state, found[one].dead_reason) for one in "ab"] == [
        ("dead", "cancelled"),
        ("pending", None),
    ]
    assert row_of(jobs) == found["a"].row


def test_asked_between_the_look_and_the_recovery(
    leases: Leases, jobs: Collection[Document], stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B12: A job that is cancelled while it is being recovered is dead by the same call."""
    stored("a", "running")
    stored("b", "running")
    put_back = Leases._put_back
    asked: list[str] = []

    def late(self: Leases, *args: t.Any) -> list[Job]:
        if not asked:
            asked.append("a")
            ask(jobs)
        return put_back(self, *args)

    monkeypatch.setattr(Leases, "_put_back", late)

    found = leases.recover_from(RUNNER, "was killed by signal 9")

    assert {job.id: job.state for job in found} == {"a": "dead", "b": "pending"}
    assert row_of(jobs)["dead_reason"] == "cancelled"


@pytest.mark.parametrize("state", ["dead", "pending"])
def test_retried(admin: Admin, jobs: Collection[Document], stored: Stored, state: str) -> None:
    """W8: A retry by hand takes the request away, also of a job that a henri runner put back."""
    stored("a", state, cancel_requested_at=AT)

    admin.retry("a")

    assert "cancel_requested_at" not in row_of(jobs)


def test_put_back_by_a_henri_runner(admin: Admin, stored: Stored) -> None:
    """A waiting job that still has a request, which henri does not know, is cancelled anew."""
    stored("a", cancel_requested_at=AT)

    assert admin.cancel("a")[1].state == "dead"


def test_look(leases: Leases, jobs: Collection[Document], stored: Stored) -> None:
    """The cancelled ones are found among the jobs in hand, under their very claims."""
    held = [Job(stored(name, "running")) for name in ("a", "b", "c", "d")]
    for name in ("a", "b", "d"):
        ask(jobs, name)
    jobs.update_one({"_id": "b"}, {"$set": {"claim_token": "another's"}})

    assert [job.id for job in leases.cancelled(held[:3])] == ["a"]
    assert leases.cancelled([]) == []


def test_look_reads_what_it_names(
    leases: Leases, stored: Stored, recorder: Recorder, database: Database[Document]
) -> None:
    """The look goes by the ids: its cost does not grow with what else runs."""
    held = [Job(stored(f"{number:03}", "running")) for number in range(100)][:3]
    recorder.commands.clear()

    leases.cancelled(held)

    [plan] = recorder.plans(database)
    assert plan.documents == 3
