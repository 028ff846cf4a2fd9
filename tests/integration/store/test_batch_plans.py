"""What is asked of batches costs by what it finds, and not by the members or the batches."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.store import indexes
from flask_henri_jobs.store.batches import STEP, Batches, open_index
from flask_henri_jobs.store.lookup import Lookup
from flask_henri_jobs.store.tallies import MOST_AT_A_LOOK, Ended, Tallies
from rows import row_of_state

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from plans import Recorder
    from rows import Now

MEMBERS, FINISHED = 3_000, 2_000


@pytest.fixture
def large(
    jobs: Collection[Document], batches: Collection[Document], now: Now
) -> Collection[Document]:
    """A batch with 3,000 members, of which all but one have ended, among 2,000 finished batches."""
    states = {0: "pending"} | dict.fromkeys(range(1, MEMBERS, 2), "dead")
    jobs.insert_many(
        row_of_state(f"{n:05}", states.get(n, "done"), now(), batch_id="large")
        for n in range(MEMBERS)
    )
    indexes.create(batches, [open_index(batches.name)])
    finished = {"sealed_at": 1, "finished_at": 1, "created_at": 1, "updated_at": 1}
    batches.insert_many({"_id": f"{n:05}", **finished} for n in range(FINISHED))
    unfinished = {"total": MEMBERS, "done": 0, "failed": 0, "finished_at": None}
    batches.insert_one({"_id": "large", **finished, **unfinished})
    return jobs


@pytest.fixture
def tallies(large: Collection[Document], batches: Collection[Document], now: Now) -> Tallies:
    return Tallies(large, batches, now, Batches(large, batches, now, Lookup(large)))


def test_question(tallies: Tallies, recorder: Recorder, database: Database[Document]) -> None:
    """A2: whether a batch is over is seen at the first member that is not."""
    recorder.commands.clear()

    assert not tallies.is_over("large")

    [plan] = recorder.plans(database)
    assert plan.keys <= 3
    assert plan.documents <= 1


def test_recount(tallies: Tallies, recorder: Recorder, database: Database[Document]) -> None:
    """The members are counted by their index alone."""
    recorder.commands.clear()

    assert tallies.found("large") == {"pending": 1, "dead": 1_500, "done": 1_499}

    [plan] = recorder.plans(database)
    assert plan.keys <= MEMBERS + 1
    assert plan.documents == 0


def test_count(tallies: Tallies, recorder: Recorder, database: Database[Document]) -> None:
    """A count reads the batch, and no member."""
    recorder.commands.clear()

    assert tallies.add({"large": Ended(done=1, failed=0)}) == []

    assert [plan.documents for plan in recorder.plans(database)] == [1, 1]


def test_sweep(
    tallies: Tallies, recorder: Recorder, database: Database[Document], now: Now
) -> None:
    """B3: the sweep reads unfinished batches only."""
    recorder.commands.clear()

    assert [batch.id for batch in tallies.unfinished(now())] == ["large"]

    [plan] = recorder.plans(database)
    assert plan.documents <= MOST_AT_A_LOOK


def test_cancel(tallies: Tallies, recorder: Recorder, database: Database[Document]) -> None:
    """Cancelling reads the members that wait, and none that have ended."""
    recorder.commands.clear()

    assert [job.id for job in tallies.rows.cancel_waiting("large")] == ["00000"]
    assert tallies.rows.cancel_waiting("large") == []

    assert sum(plan.documents for plan in recorder.plans(database)) <= 2 + STEP // 100
