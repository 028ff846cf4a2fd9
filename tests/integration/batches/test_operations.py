"""What an operator asks of batches: ``jobs.batches``."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs import HenriJobs, StoreUnavailable, UnknownBatch, signals
from flask_henri_jobs.errors import InvalidFilter, JobBusy
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.store.batches import Batches
from flask_henri_jobs.store.mongod import free_port
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from batch_tasks import Tasks
    from flask_henri_jobs import Job
    from flask_henri_jobs.building import OpenBatch

Document: t.TypeAlias = dict[str, t.Any]


def batch_of(jobs: HenriJobs, tasks: Tasks, count: int) -> OpenBatch:
    with jobs.batch(callback=tasks.finished, on_failure="failed") as batch:
        batch.add_many(tasks.work, [{"n": n} for n in range(count)])
    return batch


def claim(jobs: HenriJobs, at_most: int) -> list[Job]:
    return jobs.state.store.claims.take(
        Wish(runner="host:1:r", queues=QueueTurns(), at_most=at_most)
    )


def test_list(jobs: HenriJobs, tasks: Tasks) -> None:
    """Batches are listed by state, the newest first, a page at a time."""
    finished = [batch_of(jobs, tasks, 0).id for _ in range(3)]
    running = batch_of(jobs, tasks, 1)
    opened = jobs.batch()

    def listed(**which: t.Any) -> list[str]:
        return [batch.id for batch in jobs.batches.list(**which)]

    assert listed(state="open") == [opened.id]
    assert listed(state="running") == [running.id]
    assert listed(state="finished") == finished[::-1]
    assert listed(limit=2, offset=1) == [running.id, finished[2]]


@pytest.mark.parametrize(
    "which", [{"state": "done"}, {"state": {"$ne": ""}}, {"tenant": {"$ne": ""}}, {"limit": 0}]
)
def test_bad_filters(jobs: HenriJobs, which: dict[str, t.Any]) -> None:
    """Q9: a filter is text, and one of the words there are."""
    with pytest.raises(InvalidFilter):
        jobs.batches.list(**which)
    with pytest.raises(InvalidFilter):
        jobs.batches.get({"$ne": ""})  # type: ignore[arg-type]


def test_members(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """The jobs of a batch are found by it, and by their state."""
    batch = batch_of(jobs, tasks, 2)
    work_off()
    waiting = tasks.work.delay(9)

    assert len(jobs.batches.jobs(batch.id)) == len(batch.jobs(state="done")) == 2
    assert batch.jobs(state="pending") == []
    assert len(jobs.batches.jobs(batch.id, limit=1, offset=1)) == 1
    assert waiting.id not in {job.id for job in jobs.batches.jobs(batch.id)}


def test_unknown(jobs: HenriJobs) -> None:
    """A batch that is not there is None, or an error that says so."""
    assert jobs.batches.get("nothing") is None
    for use in (jobs.batches.open, jobs.batches.jobs, jobs.batches.cancel, jobs.batches.delete):
        with pytest.raises(UnknownBatch, match="There is no batch nothing"):
            use("nothing")


def test_cancel(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """A cancelled batch ends at once where nothing runs; its jobs are dead, its callbacks run."""
    batch = batch_of(jobs, tasks, 1_200)
    told: list[str] = []

    def hear(app: object, job: Job) -> None:
        told.append(job.dead_reason or "")

    with signals.job_cancelled.connected_to(hear):
        cancelled = jobs.batches.cancel(batch.id)

    assert (cancelled.state, cancelled.done, cancelled.failed) == ("finished", 1_200, 1_200)
    assert cancelled.cancelled_at is not None
    assert told == ["cancelled"] * 1_200
    assert jobs.count(batch=batch.id, reason="cancelled") == 1_200
    work_off()
    assert sorted(name for name, _ in tasks.called) == ["failed", "finished"]


def test_cancel_while_members_run(
    jobs: HenriJobs, tasks: Tasks, stored: Collection[Document]
) -> None:
    """Cancelling asks the running members to end, and the batch ends after the last of them."""
    batch = batch_of(jobs, tasks, 3)
    [running] = claim(jobs, 1)

    cancelled = jobs.batches.cancel(batch.id)

    assert (cancelled.state, cancelled.done) == ("running", 2)
    assert running.refresh().cancel_requested is not None
    assert jobs.count(name="finished") == 0

    [lost] = jobs.state.store.leases.recover_from("host:1:r", "was killed")

    assert (lost.state, lost.dead_reason) == ("dead", "cancelled")


def test_member_of_a_cancelled_batch_that_goes_back(jobs: HenriJobs, tasks: Tasks) -> None:
    """A member that went back to wait after the cancelling is cancelled by the sweep."""
    from flask import current_app

    from flask_henri_jobs.worker.aftermath import QUIET_MS, Aftermath
    from flask_henri_jobs.worker.committer import Announcer
    from flask_henri_jobs.worker.loop import Outages

    app = current_app._get_current_object()  # type: ignore[attr-defined]
    state = jobs.state
    batch = batch_of(jobs, tasks, 1)
    claim(jobs, 1)
    jobs.batches.cancel(batch.id)
    # As a henri runner does, which knows of no request for its end.
    state.store.admin.jobs.update_one({"state": "running"}, {"$set": {"state": "pending"}})
    aftermath = Aftermath(state.store, state.settings, Announcer(app), Outages(), lambda: None)
    state.store.batches.batches.update_many({}, {"$inc": {"updated_at": -2 * QUIET_MS}})

    aftermath.sweep()

    assert batch.refresh().state == "finished"
    assert jobs.count(batch=batch.id, reason="cancelled") == 1


def test_cancel_of_a_batch_whose_builder_died(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]
) -> None:
    """An open batch that is cancelled is sealed by it, and ends as any other."""
    batch = jobs.batch(callback=tasks.finished)
    batch.add(tasks.work, 1)

    assert jobs.batches.cancel(batch.id).state == "finished"

    work_off()
    assert [given["failed"] for _, given in tasks.called] == [1]


def test_cancel_after_the_end(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """A finished batch stays as it is."""
    batch = batch_of(jobs, tasks, 1)
    work_off()

    cancelled = jobs.batches.cancel(batch.id)

    assert (cancelled.cancelled_at, cancelled.failed) == (None, 0)
    assert len(tasks.called) == 1


def test_open_a_batch_that_was_left(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]
) -> None:
    """A batch whose builder died can be filled further, and sealed, by another process."""
    left = jobs.batch(callback=tasks.finished)
    left.add(tasks.work, 1)

    with jobs.batches.open(left.id) as batch:
        batch.add(tasks.work, 2)

    work_off()
    assert [given["total"] for _, given in tasks.called] == [2]


def test_delete(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """Deleting a batch deletes its jobs, and calls nobody back."""
    batch = batch_of(jobs, tasks, 3)
    other = batch_of(jobs, tasks, 1)
    told: list[str] = []

    def hear(app: object, job: Job) -> None:
        told.append(job.batch_id or "")

    with signals.job_deleted.connected_to(hear):
        deleted = jobs.batches.delete(batch.id)

    assert deleted.id == batch.id
    assert told == [batch.id] * 3
    assert jobs.batches.get(batch.id) is None
    work_off()
    assert [given["id"] for _, given in tasks.called] == [other.id]


def test_delete_while_members_run(jobs: HenriJobs, tasks: Tasks) -> None:
    """A batch whose jobs run is not deleted."""
    batch = batch_of(jobs, tasks, 2)
    claim(jobs, 1)

    with pytest.raises(JobBusy, match="are running"):
        jobs.batches.delete(batch.id)
    assert jobs.count(batch=batch.id) == 2


def test_runner_that_is_quicker(jobs: HenriJobs, tasks: Tasks) -> None:
    """What a runner claims between the look and the write of a cancel is not told as cancelled."""
    batch = batch_of(jobs, tasks, 3)
    store = jobs.state.store
    find = store.batches.jobs.find
    claimed: list[Job] = []

    class Quicker:
        """The jobs, with a runner that claims one whenever they were looked at."""

        def __getattr__(self, name: str) -> t.Any:
            return getattr(store.batches.jobs, name)

        def find(self, *args: t.Any, **options: t.Any) -> t.Any:
            rows = list(find(*args, **options))
            claimed.extend(claim(jobs, 1) if not claimed else [])
            return rows

    quicker = Batches(Quicker(), store.batches.batches, store.clock.now, store.admin)  # type: ignore[arg-type]

    cancelled = quicker.cancel_waiting(batch.id)

    assert {job.id for job in cancelled} == {job.id for job in batch.jobs(state="dead")}
    assert [job.id for job in batch.jobs(state="running")] == [claimed[0].id]


def test_database_away(jobs: HenriJobs, app: t.Any) -> None:
    """Q11: with the database out of reach a batch fails in time, and says so."""
    from flask import Flask

    away = Flask("away")
    away.config.update(
        HENRI_JOBS_URI=f"mongodb://127.0.0.1:{free_port()}/db",
        HENRI_JOBS_ENQUEUE_TIMEOUT="200ms",
        HENRI_JOBS_INSTALL=False,
    )
    other = HenriJobs(away)
    with away.app_context():
        with pytest.raises(StoreUnavailable):
            other.batch()
        other.state.close()
