"""The last write of every attempt."""

from __future__ import annotations

import json
import typing as t

import pytest

from flask_henri_jobs.job import Job
from flask_henri_jobs.outcome import (
    MOST_MESSAGE_BYTES,
    MOST_STACK_BYTES,
    Again,
    Dead,
    Done,
    Failure,
    Outcome,
    Snoozed,
)
from flask_henri_jobs.result import Result
from flask_henri_jobs.store.documents import MOST_HISTORY, MOST_HISTORY_BYTES
from flask_henri_jobs.store.outcomes import Outcomes

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from plans import Recorder
    from rows import Now, Stored

AT = 1_800_000_000_050
FAILURE = Failure(message="ValueError: no", stack="Traceback …")
DONE = Done(at=AT, duration=20)
AGAIN = Again(at=AT, duration=20, run_at=AT + 5000, failure=FAILURE)
SNOOZED = Snoozed(at=AT, run_at=AT + 5000)
DEAD = Dead(at=AT, duration=20, reason="failed", failure=FAILURE)
ALL: list[Outcome] = [DONE, AGAIN, SNOOZED, DEAD]
NAMES = [type(outcome).__name__ for outcome in ALL]


@pytest.fixture
def outcomes(jobs: Collection[Document]) -> Outcomes:
    return Outcomes(jobs)


def test_done(outcomes: Outcomes, jobs: Collection[Document], stored: Stored) -> None:
    """A done job keeps its token and its history, and no error."""
    row = stored("a", "running", error_message="before", error_stack="before", history='[{"at":1}]')

    job = outcomes.write(Job(row), Done(at=AT, duration=20, result=Result(text="7")))

    assert job is not None
    assert jobs.find_one() == job.row
    assert job.row == row | {
        "state": "done",
        "finished_at": AT,
        "updated_at": AT,
        "duration_ms": 20,
        "error_message": None,
        "error_stack": None,
        "result": "7",
    }


def test_again(outcomes: Outcomes, jobs: Collection[Document], stored: Stored) -> None:
    """Q5: A failed job waits for its next attempt, with message, stack and an entry of history."""
    row = stored("a", "running", unique_key="mail:7")

    job = outcomes.write(Job(row), AGAIN)

    assert job is not None
    assert jobs.find_one() == job.row
    assert job.row == row | {
        "state": "pending",
        "run_at": AT + 5000,
        "updated_at": AT,
        "claimed_at": None,
        "claimed_by": None,
        "heartbeat_at": None,
        "error_message": "ValueError: no",
        "error_stack": "Traceback …",
        "history": job.row["history"],
    }
    assert json.loads(job.row["history"]) == [
        {
            "at": AT,
            "attempt": 1,
            "duration": 20,
            "message": "ValueError: no",
            "runner": "host:1:runner",
        }
    ]


def test_snoozed(outcomes: Outcomes, jobs: Collection[Document], stored: Stored) -> None:
    """Q5: A snoozed job waits, and its attempt is given back; nothing is said to have failed."""
    row = stored("a", "running", attempts=3)

    job = outcomes.write(Job(row), SNOOZED)

    assert job is not None
    assert jobs.find_one() == job.row
    assert (job.state, job.attempts, job.row["run_at"]) == ("pending", 2, AT + 5000)
    assert (job.error, job.history) == (None, [])


def test_dead(outcomes: Outcomes, jobs: Collection[Document], stored: Stored) -> None:
    """Q5: A dead job is kept with its reason, message, stack and history."""
    job = outcomes.write(Job(stored("a", "running")), DEAD)

    assert job is not None
    assert jobs.find_one() == job.row
    assert (job.state, job.dead_reason, job.error) == ("dead", "failed", "ValueError: no")
    assert (job.error_stack, len(job.history)) == ("Traceback …", 1)


@pytest.mark.parametrize(
    ("key", "outcome", "kept"),
    [
        ("mail:7", DONE, False),
        ("mail:7", DEAD, False),
        ("mail:7", AGAIN, True),
        ("mail:7", SNOOZED, True),
        ("recurring:daily:1", DONE, True),
        ("batch:b", DEAD, True),
        ("after:a", DONE, True),
    ],
)
def test_unique_key(
    outcomes: Outcomes,
    jobs: Collection[Document],
    stored: Stored,
    key: str,
    outcome: Outcome,
    kept: bool,
) -> None:
    """Q7: A key is freed when its job ends, unless the queue wrote it itself."""
    job = outcomes.write(Job(stored("a", "running", unique_key=key)), outcome)

    assert job is not None
    assert jobs.find_one() == job.row
    assert ("unique_key" in job.row) is kept


def test_key_that_another_job_has_taken(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored
) -> None:
    """Q7: No end of a job raises a duplicate key: it gives its own up in the very write."""
    first = Job(stored("first", "running", unique_key="k"))
    assert outcomes.write(first, DEAD) is not None
    second = Job(stored("second", "running", unique_key="k"))

    assert outcomes.write(second, AGAIN) is not None
    assert jobs.distinct("unique_key") == ["k"]


LOST: dict[str, Document] = {
    "claimed by another": {"$set": {"claim_token": "another's", "attempts": 2}},
    "recovered": {
        "$set": {
            "state": "pending",
            "history": json.dumps(
                [
                    {
                        "at": AT + 60_000,
                        "attempt": 1,
                        "duration": None,
                        "message": "The runner stopped answering while performing this job.",
                        "runner": "host:1:runner",
                    }
                ]
            ),
        },
        "$unset": {"claim_token": ""},
    },
    "handed back": {"$set": {"state": "pending", "attempts": 0}, "$unset": {"claim_token": ""}},
    "done by another": {"$set": {"state": "done", "claim_token": "another's"}},
}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("outcome", ALL, ids=NAMES)
def test_lost(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored, outcome: Outcome, how: str
) -> None:
    """Q3: A runner that was given up on writes nothing, and learns that its outcome is dropped."""
    job = Job(stored("a", "running"))
    jobs.update_one({"_id": "a"}, LOST[how])
    before = jobs.find_one()

    assert outcomes.write(job, outcome) is None

    assert jobs.find_one() == before


@pytest.mark.parametrize("outcome", ALL, ids=NAMES)
def test_deleted(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored, outcome: Outcome
) -> None:
    """Q3: The outcome of a job whose row is gone is dropped."""
    job = Job(stored("a", "running"))
    jobs.delete_many({})

    assert outcomes.write(job, outcome) is None
    assert jobs.count_documents({}) == 0


@pytest.mark.parametrize("outcome", ALL, ids=NAMES)
def test_repeated(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored, outcome: Outcome
) -> None:
    """A10: An outcome may be written twice, as after a lost reply: it stands once."""
    job = Job(stored("a", "running"))
    first = outcomes.write(job, outcome)
    before = jobs.find_one()

    assert outcomes.write(job, outcome) == first
    assert jobs.find_one() == before


def test_repeated_after_the_next_claim(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored
) -> None:
    """A10: An attempt that went back and was claimed again meanwhile recognises its own entry."""
    job = Job(stored("a", "running"))
    outcomes.write(job, AGAIN)
    claim = {"state": "running", "claim_token": "another's", "claimed_by": "other", "attempts": 2}
    jobs.update_one({"_id": "a"}, {"$set": claim})
    before = jobs.find_one()

    assert outcomes.write(job, AGAIN) is not None
    assert jobs.find_one() == before


def test_repeated_after_a_retry_by_hand(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored
) -> None:
    """A10: A dead attempt that an operator retried meanwhile recognises its own entry."""
    job = Job(stored("a", "running"))
    outcomes.write(job, DEAD)
    jobs.update_one({"_id": "a"}, {"$set": {"state": "pending", "claim_token": None}})

    assert outcomes.write(job, DEAD) is not None
    assert jobs.distinct("state") == ["pending"]


def test_group(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored, recorder: Recorder
) -> None:
    """W2: Outcomes go in one write, and no look follows where all of them stand."""
    endings = [(Job(stored(f"{n}", "running")), ALL[n % 4]) for n in range(8)]
    recorder.commands.clear()

    written = outcomes.write_many(endings)

    assert [next(iter(command)) for command in recorder.commands] == ["update"]
    assert {row["_id"]: row for row in jobs.find()} == {job.id: job.row for job in written if job}


def test_group_with_one_that_is_lost(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored
) -> None:
    """W2: In a group each outcome stands or falls by itself, in the order given."""
    endings = [(Job(stored(id, "running")), DONE) for id in ("a", "lost", "repeated", "z")]
    outcomes.write(*endings[2])
    jobs.update_one({"_id": "lost"}, LOST["recovered"])

    written = outcomes.write_many(endings)

    assert [job.id if job else None for job in written] == ["a", None, "repeated", "z"]
    states = {row["_id"]: row["state"] for row in jobs.find()}
    assert states == {"a": "done", "lost": "pending", "repeated": "done", "z": "done"}


def test_history_is_the_newest_twenty(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored
) -> None:
    """Section 3: A history keeps the newest 20 entries, the newest last."""
    job: Job | None = Job(stored("a", "running"))
    for attempt in range(1, 26):
        assert job is not None
        jobs.update_one({"_id": "a"}, {"$set": {"state": "running", "attempts": attempt}})
        row = jobs.find_one()
        assert row is not None
        failure = Failure(message=f"failure {attempt}")
        job = outcomes.write(
            Job(row), Again(at=AT + attempt, duration=1, run_at=AT, failure=failure)
        )

    assert job is not None
    assert [entry["attempt"] for entry in job.history] == list(range(6, 26))
    assert len(job.history) == MOST_HISTORY
    assert job.history[-1]["message"] == "failure 25"


@pytest.mark.parametrize("stored_history", [None, "", "[]"])
def test_history_that_is_missing(outcomes: Outcomes, stored: Stored, stored_history: t.Any) -> None:
    """Section 3: A job of another queue's version may have no history yet."""
    job = outcomes.write(Job(stored("a", "running", history=stored_history)), AGAIN)

    assert job is not None
    assert len(job.history) == 1


def test_sizes(outcomes: Outcomes, jobs: Collection[Document], stored: Stored) -> None:
    """C: What is stored of an error is bounded: message, stack, and the message in the history."""
    failure = Failure.of(ValueError("é" * 5_000_000))

    outcomes.write(
        Job(stored("a", "running")), Again(at=AT, duration=1, run_at=AT, failure=failure)
    )

    row = jobs.find_one()
    assert row is not None
    assert len(row["error_message"].encode()) <= MOST_MESSAGE_BYTES
    assert len(row["error_stack"].encode()) <= MOST_STACK_BYTES
    (entry,) = json.loads(row["history"])
    assert len(entry["message"].encode()) <= MOST_HISTORY_BYTES


def test_text_that_is_no_utf8(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored
) -> None:
    """An error whose text is no valid Unicode is stored all the same."""
    failure = Failure.of(ValueError("file \udcff not found"))

    assert outcomes.write(
        Job(stored("a", "running")), Again(at=AT, duration=1, run_at=AT, failure=failure)
    )
    assert jobs.distinct("error_message") == ["ValueError: file \\udcff not found"]


def test_outcome_without_an_answer(
    outcomes: Outcomes, jobs: Collection[Document], stored: Stored, now: Now
) -> None:
    """An outcome writes the moments that it was decided with, and reads no clock."""
    now.advance(ms=10_000)
    job = outcomes.write(Job(stored("a", "running")), DONE)

    assert job is not None
    assert job.row["finished_at"] == AT
