"""How far running jobs are, stored and told (X3)."""

from __future__ import annotations

import threading
import time
import typing as t

import pytest

from faults import failing, faulty_client
from flask_henri_jobs import HenriJobs, Retry, Snooze, StoreUnavailable, current_job, signals
from flask_henri_jobs.progress import Progress, Track
from flask_henri_jobs.worker.committer import Announcer
from flask_henri_jobs.worker.loop import Outages
from flask_henri_jobs.worker.reporting import EVERY_SECONDS, IDLE_SECONDS, Reporter

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask
    from pymongo import MongoClient

    from flask_henri_jobs import Job


OUT_OF_TIME = 50


@pytest.fixture
def app(app: Flask) -> Flask:
    app.config["HENRI_JOBS_POLL_INTERVAL"] = "50ms"
    return app


@pytest.fixture
def heard(app: Flask) -> Iterator[list[t.Any]]:
    """What ``job_progressed`` told of."""
    heard: list[t.Any] = []

    def progressed(_app: Flask, job: Job) -> None:
        assert job.progress is not None
        heard.append(job.progress["done"])

    with signals.job_progressed.connected_to(progressed, app):
        yield heard


def work(jobs: HenriJobs) -> None:
    jobs.run_worker(once=True, schedules=False)


def test_loop_of_a_hundred_thousand(jobs: HenriJobs, heard: list[t.Any]) -> None:
    """A long loop may tell of each turn: that is stored now and then, and at the end."""
    seconds: list[float] = []

    @jobs.task
    def count() -> None:
        began = time.perf_counter()
        for done in range(1, 100_001):
            current_job.set_progress(done, total=100_000, message="counting")
        seconds.append(time.perf_counter() - began)

    job = count.delay()
    work(jobs)

    job.refresh()
    assert job.progress is not None
    at = job.progress["at"]
    assert job.progress == {"done": 100_000, "total": 100_000, "message": "counting", "at": at}
    assert job.finished_at is not None
    assert at <= job.finished_at
    assert len(heard) <= 2 + seconds[0] / EVERY_SECONDS
    assert sorted(heard) == heard


def test_stored_while_it_runs(jobs: HenriJobs, app: Flask) -> None:
    """Progress is there while the job runs, for everybody, and told when it is stored."""
    stored = threading.Event()
    seen: list[t.Any] = []

    def progressed(_app: Flask, job: Job) -> None:
        found = jobs.get(job.id)
        assert found is not None
        seen.append((found.state, found.progress == job.progress, job.progress))
        stored.set()

    @jobs.task
    def halfway() -> bool:
        current_job.set_progress(1, 2)
        return stored.wait(10)

    job = halfway.delay()
    with signals.job_progressed.connected_to(progressed, app):
        work(jobs)

    [(state, same, progress)] = seen
    assert (state, same) == ("running", True)
    assert (progress["done"], progress["total"], progress["message"]) == (1, 2, None)
    # Nothing was said since, so the outcome has left it as it was.
    assert job.refresh().progress == progress
    assert job.updated_at == job.finished_at


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        (Retry("x"), "pending"),
        (Snooze("1h"), "pending"),
        (ValueError("no"), "dead"),
        (None, "done"),
    ],
)
def test_last_value_lands(jobs: HenriJobs, raised: BaseException | None, state: str) -> None:
    """However an attempt ends, what it said last is stored."""

    @jobs.task(discard_on=ValueError, name="steps")
    async def steps() -> None:
        current_job.set_progress(1)
        current_job.set_progress(2, message="last")
        if raised is not None:
            raise raised

    job = steps.delay()
    work(jobs)

    job.refresh()
    assert job.state == state
    assert job.progress is not None
    assert (job.progress["done"], job.progress["message"]) == (2, "last")


def test_an_attempt_sees_how_far_the_last_one_was(jobs: HenriJobs) -> None:
    """A task that is tried again may go on where it stopped; a retry by hand begins anew."""
    began_at: list[t.Any] = []

    @jobs.task(backoff={"base": "0s"})
    def resume() -> None:
        before = current_job.progress
        began_at.append(before and before["done"])
        if before is None:
            current_job.set_progress(5)
            raise Retry

    job = resume.delay()
    work(jobs)
    assert began_at == [None, 5]

    jobs.retry(job.id)
    work(jobs)
    assert began_at == [None, 5, None, 5]


class Board:
    """A reporter whose rounds and time are the test's."""

    def __init__(self, jobs: HenriJobs, app: Flask) -> None:
        self.seconds = 100.0
        store = jobs.state.store
        self._announcer = Announcer(app)
        self._jobs = jobs
        self.reporter = Reporter(
            store.leases, self._announcer, Outages(), store.clock.now, lambda: self.seconds
        )

    def track(self, **fields: t.Any) -> Track:
        """Return the track of a job that runs."""
        job = self._jobs.enqueue("any")
        claim = {"state": "running", "claim_token": "token", "attempts": 1, **fields}
        self._jobs.database["henri_jobs"].update_one({"_id": job.id}, {"$set": claim})
        return Track(job.refresh(), self.reporter.notice)

    def stored(self, track: Track) -> t.Any:
        progress = track.job.refresh().progress
        return progress and progress["done"]


@pytest.fixture
def board(jobs: HenriJobs, app: Flask) -> Board:
    return Board(jobs, app)


def test_rounds(board: Board) -> None:
    """All jobs go into one write, at most about two a second; with nothing to do it sleeps."""
    one, other = board.track(), board.track()
    assert board.reporter.round() == IDLE_SECONDS

    one.set(Progress(1))
    other.set(Progress(10))
    assert board.reporter.round() == 0
    assert (board.stored(one), board.stored(other)) == (1, 10)
    assert board.reporter.round() == IDLE_SECONDS

    board.seconds += 0.1
    one.set(Progress(2))
    assert board.reporter.round() == pytest.approx(EVERY_SECONDS - 0.1)
    one.set(Progress(3))
    assert board.stored(one) == 1
    board.seconds += EVERY_SECONDS
    assert board.reporter.round() == 0
    assert (board.stored(one), board.stored(other)) == (3, 10)


def test_claim_that_is_gone(board: Board) -> None:
    """Q3: what a runner that was given up on says is not stored; what the others say is."""
    lost, kept = board.track(), board.track()
    lost.job.row = {**lost.job.row, "claim_token": "an older one"}
    lost.set(Progress(1))
    kept.set(Progress(2))

    board.reporter.round()

    assert board.stored(lost) is None
    assert board.stored(kept) == 2
    assert kept.left(0) == {}


def test_ended_attempt(board: Board) -> None:
    """A job that ends before it is its turn costs no write of its own."""
    track = board.track()
    track.set(Progress(1))
    assert track.left(7) == {"progress": {"done": 1, "total": None, "message": None, "at": 7}}

    assert board.reporter.round() == 0
    assert board.stored(track) is None


class TestOutage:
    """W10: the database is away for a while."""

    @pytest.fixture
    def client(self, mongo_uri: str) -> Iterator[MongoClient[dict[str, t.Any]]]:
        with faulty_client(mongo_uri) as client:
            yield client

    @pytest.fixture
    def jobs(self, app: Flask, client: MongoClient[dict[str, t.Any]]) -> Iterator[HenriJobs]:
        jobs = HenriJobs(app, client=lambda: client)
        with app.app_context():
            yield jobs

    def test_said_meanwhile(self, board: Board, client: MongoClient[dict[str, t.Any]]) -> None:
        """Nothing that is said meanwhile is lost: a later round has what was said last."""
        quiet, chatty = board.track(), board.track()
        quiet.set(Progress(1))
        chatty.set(Progress(1))

        # Of what the driver does not try again by itself.
        with (
            failing(client, "update", times=1, errorCode=OUT_OF_TIME),
            pytest.raises(StoreUnavailable),
        ):
            board.reporter.round()
        chatty.set(Progress(2))
        assert board.reporter.round() == 0

        assert (board.stored(quiet), board.stored(chatty)) == (1, 2)
