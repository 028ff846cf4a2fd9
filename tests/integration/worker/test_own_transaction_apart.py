"""Nothing of a runner writes the document of a job that is in its transaction."""

from __future__ import annotations

import threading
import time
import typing as t
from datetime import timedelta

import pytest

from flask_henri_jobs import HenriJobs, Job, current_job
from flask_henri_jobs.progress import Progress, Track
from flask_henri_jobs.store.documents import new_row
from flask_henri_jobs.store.job_transactions import JobTransactions
from flask_henri_jobs.store.leases import Leases
from flask_henri_jobs.store.permits import Permits
from flask_henri_jobs.worker.reporting import IDLE_SECONDS, Reporter
from flask_henri_jobs.worker.runner import Runner

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask
    from pymongo.collection import Collection

    from flask_henri_jobs.worker.keeper import Keeper
    from hearing import Heard

Document: t.TypeAlias = dict[str, t.Any]
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def often(app: Flask, jobs: HenriJobs) -> Iterator[None]:
    """Have heartbeats written three times a second."""
    with jobs.with_settings(app, stuck_after=timedelta(seconds=2)):
        yield


class Beats:
    """Waits for heartbeats of a job."""

    def __init__(self, rows: Collection[Document], job_id: str) -> None:
        self._rows = rows
        self._id = job_id

    def wait(self, times: int) -> None:
        """Return after so many more heartbeats."""
        deadline = time.monotonic() + PATIENCE
        last = self._at()
        while times and time.monotonic() < deadline:
            time.sleep(0.01)
            if (now := self._at()) != last:
                last, times = now, times - 1
        assert not times

    def _at(self) -> t.Any:
        row = self._rows.find_one({"_id": self._id})
        assert row is not None
        return row["heartbeat_at"]


def test_heartbeats_of_a_runner(
    jobs: HenriJobs, stored: Collection[Document], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X2: the runner's heartbeats and progress never abort a job's transaction, and go on for the
    other jobs while its document is locked by the outcome."""
    effects = jobs.database["effects"]
    effects.insert_one({"_id": "count", "n": 0})
    ended = threading.Event()
    commit = JobTransactions.commit

    @jobs.task(name="other")
    def other() -> None:
        assert ended.wait(PATIENCE)

    beats = Beats(stored, other.delay().id)

    def commit_late(self: JobTransactions, *args: t.Any) -> None:
        # The outcome is written, and whoever writes the document now waits for the end.
        beats.wait(2)
        commit(self, *args)

    monkeypatch.setattr(JobTransactions, "commit", commit_late)

    @jobs.task(name="pay", max_attempts=1)
    def pay() -> None:
        current_job.set_progress(1)
        with current_job.transaction() as tx:
            effects.update_one({"_id": "count"}, {"$inc": {"n": 1}}, session=tx)
            current_job.set_progress(2)
            beats.wait(2)
        ended.set()

    job = pay.delay()
    jobs.run_worker(once=True, threads=2)

    job.refresh()
    assert (job.state, job.attempts, job.history) == ("done", 1, [])
    assert job.progress is not None
    assert job.progress["done"] == 2
    assert effects.find_one() == {"_id": "count", "n": 1}
    assert heard.of("job_retried") == heard.of("job_lost") == []


@pytest.fixture
def runner(app: Flask, jobs: HenriJobs) -> Runner:
    state = jobs.state
    return Runner(app, jobs.tasks, state.store, state.settings, threads=1)


@pytest.fixture
def keeper(runner: Runner) -> Keeper:
    return runner._keeper


def test_a_beat_in_flight(runner: Runner, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """X2: a heartbeat that is being written is done when the transaction begins."""
    on_its_way, may_end, is_apart = threading.Event(), threading.Event(), threading.Event()
    kept: list[int] = []

    def keep(_self: Leases, jobs: t.Sequence[Job]) -> set[str]:
        kept.append(len(jobs))
        if len(kept) == 1:
            on_its_way.set()
            assert may_end.wait(PATIENCE)
        return set()

    def keep_permits(_self: Permits, jobs: t.Sequence[Job]) -> set[str]:
        with_permits.append(len(jobs))
        return set()

    with_permits: list[int] = []
    monkeypatch.setattr(Leases, "keep", keep)
    monkeypatch.setattr(Permits, "keep", keep_permits)
    job = _a_job()
    runner._holdings.add([job], 0.0)
    beating = threading.Thread(target=keeper.round)
    beating.start()
    assert on_its_way.wait(PATIENCE)

    def begin() -> None:
        assert keeper.set_apart(job)
        is_apart.set()

    begins = threading.Thread(target=begin)
    begins.start()
    assert not is_apart.wait(0.05)
    may_end.set()
    begins.join(PATIENCE)
    beating.join(PATIENCE)

    assert is_apart.is_set()
    assert kept == [1, 1]
    runner._holdings.renew([job], 0.0)
    keeper.round()
    assert kept == [1, 1, 0]
    runner._holdings.set_apart(job, apart=False)
    keeper.round()
    assert kept == [1, 1, 0, 1]
    # Its permit is another document, and is kept all the while.
    assert with_permits == [1, 1, 1]


def test_a_heartbeat_before_the_transaction(
    jobs: HenriJobs, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X2: a job has a heartbeat before its transaction where its claim could run out within it, or
    is in doubt; a claim that is fresh needs none."""
    beaten: list[str] = []

    def keep(_self: Leases, jobs: t.Sequence[Job]) -> set[str]:
        beaten.extend(job.id for job in jobs)
        return set()

    monkeypatch.setattr(Leases, "keep", keep)

    def is_beaten(stuck_after: int, age: float, *, doubt: bool = False) -> bool:
        beaten.clear()
        with jobs.with_settings(app, stuck_after=timedelta(seconds=stuck_after)) as state:
            runner = Runner(app, jobs.tasks, state.store, state.settings, threads=1)
            job, holdings = _a_job(), runner._holdings
            holdings.add([job], holdings.now() - age)
            if doubt:
                holdings.doubt([job])
            assert runner._keeper.set_apart(job)
            assert holdings.is_apart(job)
        return beaten != []

    assert not is_beaten(300, 0)
    assert not is_beaten(300, 90)
    assert is_beaten(300, 101)
    assert is_beaten(300, 0, doubt=True)
    assert not is_beaten(110, 9)
    assert is_beaten(110, 11)
    assert is_beaten(90, 0)
    assert is_beaten(2, 0)


def test_progress_that_is_held_back(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """X2: progress is written before the transaction or after its abort, and not within it."""
    reporter = runner._reporter
    written: list[float] = []

    def report(_self: Leases, progress: t.Sequence[tuple[Job, Document]]) -> list[Job | None]:
        written.extend(far["done"] for _, far in progress)
        return [job for job, _ in progress]

    monkeypatch.setattr(Leases, "report", report)
    held, other = (_track(reporter, name) for name in ("held", "other"))
    reporter.hold_back(held)
    held.set(Progress(1))
    other.set(Progress(2))
    reporter.round()
    assert written == [2]
    held.is_held = False
    reporter._next_at = 0.0
    reporter.round()
    assert written == [2, 1]
    assert reporter.round() == IDLE_SECONDS


def _a_job(name: str = "job") -> Job:
    return Job(
        new_row(
            id=name, name=name, args="{}", now=1, run_at=1, queue="q", priority=0, max_attempts=1
        )
        | {"claim_token": "ours"}
    )


def _track(reporter: Reporter, name: str) -> Track:
    return Track(_a_job(name), reporter.notice)
