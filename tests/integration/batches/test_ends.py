"""How batches end: once, after the last job, whatever dies in between."""

from __future__ import annotations

import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import current_app

from flask_henri_jobs import HenriJobs, StoreUnavailable, signals
from flask_henri_jobs.finishing import Finisher
from flask_henri_jobs.outcome import Again, Dead, Done, Failure, Outcome
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.store.tallies import Ended, Tallies
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.aftermath import Aftermath
from flask_henri_jobs.worker.committer import Announcer, Settled
from flask_henri_jobs.worker.execution import Ending
from flask_henri_jobs.worker.loop import Outages

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from batch_tasks import Tasks
    from flask_henri_jobs import Job
    from flask_henri_jobs.batch import Batch
    from flask_henri_jobs.building import OpenBatch
    from flask_henri_jobs.store import Store

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def store(jobs: HenriJobs) -> Store:
    return jobs.state.store


class Half:
    """A runner in parts: what it does is called step by step, and may be left out."""

    def __init__(self, jobs: HenriJobs) -> None:
        app = current_app._get_current_object()  # type: ignore[attr-defined]
        state = jobs.state
        self.store = state.store
        self.rung = 0
        self.announcer = Announcer(app)
        self.aftermath = Aftermath(
            state.store, state.settings, self.announcer, Outages(), self._ring
        )

    def claim(self, at_most: int = 100) -> list[Job]:
        """Take what is due."""
        return self.store.claims.take(
            Wish(runner="host:1:half", queues=QueueTurns(), at_most=at_most)
        )

    def write(self, *jobs: Job, outcome: Callable[[int], Outcome] | None = None) -> list[Settled]:
        """Write outcomes, and do nothing that follows from them."""
        now = self.store.clock.now()
        outcomes = [(outcome or done)(now) for _ in jobs]
        written = self.store.outcomes.write_many(list(zip(jobs, outcomes, strict=True)))
        return [
            Settled(Ending(job, outcome), stored)
            for job, outcome, stored in zip(jobs, outcomes, written, strict=True)
        ]

    def sweep(self) -> None:
        """Do the duty that repairs, as if the batches had been left alone for long."""
        now = self.store.clock.now() + 60_000
        self.aftermath._finish(self.store.tallies.unfinished(now))

    def _ring(self) -> None:
        self.rung += 1


@pytest.fixture
def half(jobs: HenriJobs) -> Half:
    return Half(jobs)


def done(now: int) -> Outcome:
    return Done(at=now, duration=1)


def dead(now: int) -> Outcome:
    return Dead(at=now, duration=1, reason="failed", failure=Failure(message="no"))


def again(now: int) -> Outcome:
    return Again(at=now, duration=1, run_at=now, failure=Failure(message="no"))


def batch_of(jobs: HenriJobs, tasks: Tasks, count: int) -> OpenBatch:
    with jobs.batch(callback=tasks.finished) as batch:
        batch.add_many(tasks.work, [{"n": n} for n in range(count)])
    return batch


def counted(batch: Batch) -> tuple[int, int, str]:
    batch.refresh()
    return batch.done, batch.failed, batch.state


def callbacks(jobs: HenriJobs) -> int:
    return jobs.count(name="finished")


def test_counted_in_groups(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """B1: the counters move with the outcomes; what went back does not count."""
    batch = batch_of(jobs, tasks, 4)
    first, second, third, fourth = half.claim()

    half.aftermath.follow(half.write(first, second))
    half.aftermath.follow(half.write(third, outcome=dead))
    half.aftermath.follow(half.write(fourth, outcome=again))

    assert counted(batch) == (3, 1, "running")
    assert (callbacks(jobs), half.rung) == (0, 0)
    half.aftermath.follow(half.write(*half.claim()))
    assert counted(batch) == (4, 1, "finished")
    assert (callbacks(jobs), half.rung) == (1, 1)


def test_lost_claim_counts_nothing(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """B1: an attempt whose claim was lost moves no counter."""
    batch = batch_of(jobs, tasks, 1)
    [job] = half.claim()
    half.store.leases.recover_from("host:1:half", "is gone")
    [again] = half.claim()

    half.aftermath.follow(half.write(job))

    assert counted(batch) == (0, 0, "running")
    half.aftermath.follow(half.write(again))
    assert counted(batch) == (1, 0, "finished")


def test_group_that_is_followed_up_twice(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """B1: a follow-up that is repeated, as after an outage, counts once."""
    batch = batch_of(jobs, tasks, 2)
    [first, _] = half.claim()
    group = half.write(first)

    half.aftermath.follow(group)
    half.aftermath.follow(group)

    assert counted(batch) == (1, 0, "running")


def test_killed_between_outcome_and_count(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """B3: a batch whose last outcomes were never counted is ended by the sweep, exactly."""
    batch = batch_of(jobs, tasks, 3)
    first, second, third = half.claim()
    half.aftermath.follow(half.write(first))
    half.write(second, outcome=dead)
    half.write(third)
    assert counted(batch) == (1, 0, "running")

    half.sweep()

    assert counted(batch) == (3, 1, "finished")
    assert callbacks(jobs) == 1


@pytest.mark.parametrize("arrives", [True, False])
def test_lost_reply_of_a_count(
    jobs: HenriJobs, tasks: Tasks, half: Half, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """B1: a count whose reply is lost is not sent again, and the batch ends exact all the same."""
    batch = batch_of(jobs, tasks, 3)
    first, second, third = half.claim()
    add = Tallies.add

    def lose(tallies: Tallies, ended: t.Any) -> t.NoReturn:
        if arrives:
            add(tallies, ended)
        raise StoreUnavailable("The reply was lost.")

    with monkeypatch.context() as patched:
        patched.setattr(Tallies, "add", lose)
        group = half.write(first)
        half.aftermath.follow(group)
        half.aftermath.follow(group)
    assert counted(batch) == (1 if arrives else 0, 0, "running")

    half.aftermath.follow(half.write(second))
    half.sweep()
    assert (callbacks(jobs), batch.refresh().state) == (0, "running")

    half.aftermath.follow(half.write(third, outcome=dead))
    half.sweep()
    assert counted(batch) == (3, 1, "finished")
    assert callbacks(jobs) == 1


def test_counter_that_runs_ahead(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """A2: counts that came twice bring no callback early, and are put right at the end."""
    batch = batch_of(jobs, tasks, 3)
    first, second, third = half.claim()
    half.aftermath.follow(half.write(first))
    half.store.tallies.add({batch.id: Ended(done=2, failed=2)})
    assert counted(batch) == (3, 2, "running")

    half.aftermath.follow(half.write(second))
    half.sweep()
    assert (callbacks(jobs), batch.refresh().state) == (0, "running")

    half.aftermath.follow(half.write(third))
    assert counted(batch) == (3, 0, "finished")


def test_sweep_leaves_counters_alone(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """B3: the sweep does not recount an unfinished batch: a late count would come on top."""
    batch = batch_of(jobs, tasks, 2)
    first, second = half.claim()
    late = half.write(first)

    half.sweep()
    assert counted(batch) == (0, 0, "running")
    half.aftermath.follow(late)
    assert counted(batch) == (1, 0, "running")

    half.aftermath.follow(half.write(second))
    assert counted(batch) == (2, 0, "finished")


def test_two_finishers(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """B2: of many that find a batch over at the same moment one ends it, with one callback."""
    batch = batch_of(jobs, tasks, 1)
    half.write(*half.claim())
    seen = batch.refresh()
    start = threading.Barrier(8)

    finisher = Finisher(jobs.state.settings, half.store)

    def finish(_: int) -> tuple[bool, int]:
        start.wait()
        ending = finisher.finish(seen)
        return ending.batch is not None, len(ending.enqueued)

    with ThreadPoolExecutor(8) as pool:
        raced = list(pool.map(finish, range(8)))

    assert [ended for ended, _ in raced].count(True) == 1
    assert sum(enqueued for _, enqueued in raced) == callbacks(jobs) == 1


def test_finisher_that_dies_after_the_callback(
    jobs: HenriJobs,
    tasks: Tasks,
    half: Half,
    work_off: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B2: a process that dies between the callback and the end leaves one callback."""
    batch = batch_of(jobs, tasks, 1)
    group = half.write(*half.claim())

    def die(*_: object) -> t.NoReturn:
        raise StoreUnavailable("It was killed here.")

    with monkeypatch.context() as patched:
        patched.setattr(Tallies, "finish", die)
        half.aftermath.follow(group)
    work_off()
    assert len(tasks.called) == 1
    assert batch.refresh().state == "running"
    half.store.pruning.prune("done", half.store.clock.now() + 86_400_000)

    half.sweep()
    work_off()

    assert batch.refresh().state == "finished"
    assert len(tasks.called) == 1
    assert jobs.get(batch.callback_id or "") is not None


def test_expired_members(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None], stored: Collection[Document]
) -> None:
    """Q5: a member that expires counts as failed."""
    with jobs.batch(callback=tasks.finished) as batch:
        batch.add(tasks.work.using(expires="1h"), 1)
        batch.add(tasks.work, 2)
    stored.update_many({"expires_at": {"$exists": True}}, {"$set": {"expires_at": 1}})

    work_off()

    assert counted(batch) == (2, 1, "finished")


def test_members_that_died_with_their_runner(
    jobs: HenriJobs, tasks: Tasks, half: Half, stored: Collection[Document]
) -> None:
    """A member that a recovery buries is counted; one that it puts back is not."""
    batch = batch_of(jobs, tasks, 2)
    half.claim()
    stored.update_one({"args": '{"n":0}'}, {"$set": {"max_attempts": 1}})

    recovered = half.store.leases.recover_from("host:1:half", "was killed")
    half.aftermath.count(recovered)

    assert counted(batch) == (1, 1, "running")
    half.aftermath.follow(half.write(*half.claim()))
    assert counted(batch) == (2, 1, "finished")


def test_retry_of_a_member(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """Q10: a member that is retried by hand gives its count back, and the batch waits for it."""
    batch = batch_of(jobs, tasks, 2)
    first, second = half.claim()
    half.aftermath.follow(half.write(first, outcome=dead))
    assert counted(batch) == (1, 1, "running")

    jobs.retry(first.id)
    assert counted(batch) == (0, 0, "running")
    half.aftermath.follow(half.write(second))
    half.sweep()
    assert (callbacks(jobs), batch.refresh().state) == (0, "running")

    half.aftermath.follow(half.write(*half.claim()))
    assert counted(batch) == (2, 0, "finished")


def test_retry_after_the_end(
    jobs: HenriJobs, tasks: Tasks, half: Half, work_off: Callable[[], None]
) -> None:
    """A member that is retried after its batch has ended changes nothing of the batch."""
    batch = batch_of(jobs, tasks, 1)
    [job] = half.claim()
    half.aftermath.follow(half.write(job, outcome=dead))
    work_off()

    jobs.retry(job.id)
    work_off()
    half.sweep()

    assert counted(batch) == (1, 1, "finished")
    assert len(tasks.called) == 1


def test_deleted_members(jobs: HenriJobs, tasks: Tasks, half: Half) -> None:
    """A deleted member has ended: as what it was counted as, and as failed if it never ended."""
    batch = batch_of(jobs, tasks, 4)
    first, second = half.claim(2)
    half.aftermath.follow(half.write(first, second))
    waiting = [job.id for job in batch.jobs(state="pending")]

    jobs.delete(first.id)
    jobs.delete(waiting[0])
    half.sweep()
    assert batch.refresh().state == "running"
    jobs.delete(waiting[1])
    half.sweep()

    assert counted(batch) == (4, 2, "finished")
    assert callbacks(jobs) == 1


def test_members_of_a_running_batch_are_not_pruned(
    jobs: HenriJobs, tasks: Tasks, half: Half
) -> None:
    """Q12: a member is kept until its batch is finished, however short the retention."""
    batch = batch_of(jobs, tasks, 2)
    first, second = half.claim()
    half.aftermath.follow(half.write(first))
    tomorrow = half.store.clock.now() + 86_400_000

    assert half.store.pruning.prune("done", tomorrow) == 0
    half.aftermath.follow(half.write(second))
    assert half.store.pruning.prune("done", tomorrow) == 2
    assert half.store.batches.prune(tomorrow) == 1
    assert jobs.batches.get(batch.id) is None


def test_unfinished_batches_are_not_pruned(jobs: HenriJobs, store: Store) -> None:
    """A batch is kept until it is finished."""
    batch = jobs.batch()
    assert store.batches.prune(store.clock.now() + 86_400_000) == 0
    assert jobs.batches.get(batch.id) == batch


def test_sweep_goes_on(
    jobs: HenriJobs, tasks: Tasks, half: Half, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: batches that take long do not stand in front of those that are over."""
    monkeypatch.setattr("flask_henri_jobs.store.tallies.MOST_AT_A_LOOK", 2)
    for _ in range(3):
        batch_of(jobs, tasks, 1)
    over = batch_of(jobs, tasks, 1)
    half.write(*[job for job in half.claim() if job.batch_id == over.id])

    half.sweep()
    assert over.refresh().state == "running"
    half.sweep()
    assert over.refresh().state == "finished"
    half.sweep()
    assert len(half.store.tallies.unfinished(half.store.clock.now() + 60_000)) == 2


def test_callback_that_cannot_be_enqueued(
    jobs: HenriJobs, tasks: Tasks, half: Half, stored: Collection[Document]
) -> None:
    """One batch that cannot be ended holds up no other."""
    broken, sound = batch_of(jobs, tasks, 1), batch_of(jobs, tasks, 1)
    stored.database["henri_jobs_batches"].update_one(
        {"_id": broken.id}, {"$set": {"callback_args": "{"}}
    )

    half.aftermath.follow(half.write(*half.claim()))

    assert broken.refresh().state == "running"
    assert sound.refresh().state == "finished"


def test_told_once(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """The end of a batch is told once, after the successes of its jobs were written."""
    told: list[str] = []

    def hear(app: object, batch: Batch) -> None:
        told.append(batch.state)

    with signals.batch_finished.connected_to(hear):
        batch_of(jobs, tasks, 20)
        work_off()
        work_off()

    assert told == ["finished"]
