"""The promises that the soak holds its queue to: each is seen to be broken."""

from __future__ import annotations

import typing as t

import pytest

from benchmarks.soak.app import SLOT_SECONDS, SLOTS, create_app, finished, jobs, member, once, short
from benchmarks.soak.invariants import Acknowledged, Queue

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document

LOST = "no acknowledged job is lost"
UNENDED = "each job has ended, or waits for a named reason"
HISTORIES = "attempts and history agree"
PERMITS = "no permit is held without a running job"
BATCHES = "batches count their members, and call back once"
KEYS = "unique keys are held by live jobs only"
SLOTS_ONCE = "each slot of a schedule has one job"


@pytest.fixture
def acknowledged(mongo_uri: str, database_name: str) -> Iterator[Acknowledged]:
    """What is stored, when some jobs of several kinds were performed."""
    app = create_app(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    app.config["HENRI_JOBS_ENQUEUE_TIMEOUT"] = "20s"
    with app.app_context():
        stored = [short.delay(1), once.delay(1)]
        with jobs.batch(callback=finished) as batch:
            stored += batch.add_many(member, [{"number": n} for n in range(5)])
        jobs.run_worker(once=True, schedules=False)
        yield Acknowledged(stored={job.id for job in stored})
        jobs.state.close()


def rows() -> Collection[Document]:
    return jobs.database["henri_jobs"]


def forget() -> None:
    rows().delete_one({"name": "short"})


def leave_running() -> None:
    rows().update_one({"name": "short"}, {"$set": {"state": "running"}})


def leave_waiting() -> None:
    short.delay(2)


def count_an_attempt() -> None:
    rows().update_one({"name": "short"}, {"$inc": {"attempts": 1}})


def hold_a_permit() -> None:
    jobs.database["henri_jobs_limits"].insert_one({"_id": "limited:1#0", "job_id": "gone"})


def miscount() -> None:
    jobs.database["henri_jobs_batches"].update_one({}, {"$inc": {"failed": 1}})


def call_back_again() -> None:
    row = rows().find_one({"name": "finished"})
    assert row is not None
    # Of a key that is held a second time the server would say so.
    rows().drop_indexes()
    rows().insert_one({**row, "_id": "again"})


def keep_the_key() -> None:
    rows().update_one({"name": "once"}, {"$set": {"unique_key": "once:1"}})


def leave_out_a_slot() -> None:
    for slot in (1, 3):
        job = short.delay(slot)
        key = f"recurring:{SLOTS}:{slot * SLOT_SECONDS * 1000}"
        ended = {"state": "done", "attempts": 1, "unique_key": key}
        rows().update_one({"_id": job.id}, {"$set": ended})


def test_all_is_well(acknowledged: Acknowledged) -> None:
    """A queue whose jobs have all ended breaks no promise."""
    queue = Queue(acknowledged)

    assert not any(queue.violations().values())
    assert queue.figures()["jobs done"] == len(acknowledged.stored)
    assert queue.figures()["jobs dead"] == 1


@pytest.mark.parametrize(
    ("harm", "promise"),
    [
        (forget, LOST),
        (leave_running, UNENDED),
        (leave_waiting, UNENDED),
        (count_an_attempt, HISTORIES),
        (hold_a_permit, PERMITS),
        (miscount, BATCHES),
        (call_back_again, BATCHES),
        (keep_the_key, KEYS),
        (leave_out_a_slot, SLOTS_ONCE),
    ],
)
def test_harm(acknowledged: Acknowledged, harm: Callable[[], None], promise: str) -> None:
    """What harms one of them is found, with the jobs that it is about."""
    harm()

    broken = {promise for promise, lines in Queue(acknowledged).violations().items() if lines}

    assert broken == {promise}
