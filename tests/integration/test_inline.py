"""``HENRI_JOBS_INLINE``: jobs are performed where they are enqueued, and no database is there."""

from __future__ import annotations

import logging
import typing as t
from datetime import UTC, datetime

import pytest
from flask import Flask, current_app, g, has_request_context

from flask_henri_jobs import (
    Discard,
    HenriJobs,
    InvalidArguments,
    Job,
    JobFailed,
    Retry,
    Snooze,
    UnknownTask,
    current_job,
    signals,
)
from flask_henri_jobs.store.mongod import free_port


@pytest.fixture
def app() -> Flask:
    app = Flask("shop")
    app.config.from_mapping(
        HENRI_JOBS_INLINE=True, HENRI_JOBS_URI=f"mongodb://127.0.0.1:{free_port()}/"
    )
    return app


@pytest.fixture
def jobs(app: Flask) -> t.Iterator[HenriJobs]:
    jobs = HenriJobs(app)
    with app.app_context():
        yield jobs


def test_delay_performs(jobs: HenriJobs) -> None:
    """``delay`` performs the job, with arguments that went through the codec, and returns it."""
    performed: list[t.Any] = []

    @jobs.task(name="note", queue="notes", unique="what")
    def note(what: t.Any, *, at: datetime | None = None) -> None:
        performed.append((what, at, current_job.id, current_job.attempt))

    given = {"items": [1, (2, 3)]}
    at = datetime(2030, 1, 1, tzinfo=UTC)
    job = note.using(priority=3, wait="1h").delay(given, at=at)

    assert performed == [(given, at, job.id, 1)]
    assert performed[0][0] is not given
    assert (job.state, job.queue, job.priority, job.attempts) == ("done", "notes", 3, 1)
    assert job.created
    assert job.finished_at is not None
    assert job.duration is not None
    assert job.refresh() is job
    assert job.wait() is None
    assert not current_job


def test_context(jobs: HenriJobs, app: Flask) -> None:
    """The job has an app context of its own and no request, as in a worker."""
    seen: list[t.Any] = []

    @jobs.task
    def look() -> None:
        seen.append((current_app.name, "user" in g, has_request_context()))
        g.left = True

    with app.test_request_context():
        g.user = "ann"
        look.delay()
        assert "left" not in g
    assert seen == [("shop", False, False)]


def test_result(jobs: HenriJobs) -> None:
    """X3: a result is kept with the job, as it comes back from the codec; or it says why not."""

    @jobs.task(store_result=True)
    def give(what: str) -> t.Any:
        return {"pair": (1, 2)} if what == "pair" else object()

    kept, refused = give.delay("pair"), give.delay("object")

    assert kept.result == kept.wait(1) == {"pair": (1, 2)}
    assert (refused.state, refused.result) == ("done", None)
    assert refused.result_error == "result is an object instance."


def test_progress(jobs: HenriJobs, app: Flask) -> None:
    """X3: each word of progress is told at once, and the last one stays with the job."""
    heard: list[t.Any] = []

    @jobs.task
    def count() -> None:
        for done in (1, 2):
            current_job.set_progress(done, 2, "counting")

    def progressed(_app: Flask, job: Job) -> None:
        assert job.progress is not None
        heard.append(job.progress["done"])

    with signals.job_progressed.connected_to(progressed, app):
        job = count.delay()

    assert heard == [1, 2]
    assert job.progress is not None
    assert (job.progress["done"], job.progress["message"]) == (2, "counting")


def test_logs(jobs: HenriJobs) -> None:
    """X3: a job performed inline keeps its log lines, as a runner's does."""

    @jobs.task(keep_logs=True)
    def say() -> None:
        logging.getLogger("shop").warning("said")

    before = logging.getLogRecordFactory()
    try:
        job = say.delay()
    finally:
        logging.setLogRecordFactory(before)

    assert [line["message"] for line in job.logs] == ["said"]


def test_performed_now(jobs: HenriJobs) -> None:
    """``perform_now`` has no job: ``set_progress`` does nothing, and a result is what it is."""

    @jobs.task(name="count", store_result=True)
    def count() -> tuple[bool, object]:
        current_job.set_progress(1)
        return bool(current_job), count

    assert jobs.perform_now("count") == (False, count)


def test_every_way_to_enqueue(jobs: HenriJobs) -> None:
    """Every way to enqueue performs; a task that is not known here cannot be."""
    added: list[int] = []

    @jobs.task(name="add")
    async def add(a: int, b: int = 2) -> None:
        added.append(a + b)

    many = add.delay_many([{"a": 1}, {"a": 2}])
    add.apply_async((3,), countdown=60)
    jobs.enqueue("add", {"a": 4})
    jobs.enqueue("add", 5)

    assert added == [3, 4, 5, 6, 7]
    assert [job.state for job in many] == ["done", "done"]
    with pytest.raises(UnknownTask, match="No task is named 'henri/task'"):
        jobs.enqueue("henri/task", {"id": 7})


@pytest.mark.parametrize(
    "raised", [ValueError("x"), Retry("later"), Snooze("5m"), Discard("nobody"), SystemExit(3)]
)
def test_what_is_raised(jobs: HenriJobs, raised: BaseException) -> None:
    """What the task raises is raised to the caller, once: nothing is tried again."""
    attempts: list[int] = []

    @jobs.task
    def fail() -> None:
        attempts.append(current_job.attempt)
        raise raised

    with pytest.raises(type(raised)) as caught:
        fail.delay()
    assert caught.value is raised
    assert attempts == [1]


def test_refused_arguments(jobs: HenriJobs) -> None:
    """Q8: What a worker could not be sent is refused here too."""

    @jobs.task
    def note(what: t.Any) -> None:
        raise AssertionError

    with pytest.raises(InvalidArguments, match=r"args\.what is a function"):
        note.delay(print)


def test_an_expired_job(jobs: HenriJobs) -> None:
    """A job that expired before it was begun is not begun."""

    @jobs.task(name="late")
    def late() -> None:
        raise AssertionError

    with pytest.raises(JobFailed, match=r"\(late\) expired before it was begun"):
        late.using(expires=datetime(2020, 1, 1, tzinfo=UTC)).delay()


def test_signals(jobs: HenriJobs, app: Flask) -> None:
    """What is performed is announced; nothing was stored, and so nothing was enqueued."""
    heard: list[t.Any] = []

    def started(app: Flask, job: Job) -> None:
        heard.append(("started", job.id))

    def succeeded(app: Flask, job: Job, result: t.Any, **facts: t.Any) -> None:
        heard.append(("succeeded", job.id, result))

    def failed(app: Flask, job: Job, error: BaseException, attempt: int) -> None:
        heard.append(("failed", type(error).__name__, attempt))

    def enqueued(app: Flask, job: Job) -> None:
        raise AssertionError

    @jobs.task
    def half(of: int) -> float:
        return 1 / of

    with (
        signals.job_enqueued.connected_to(enqueued, app),
        signals.job_started.connected_to(started, app),
        signals.job_succeeded.connected_to(succeeded, app),
        signals.job_failed.connected_to(failed, app),
    ):
        job = half.delay(2)
        with pytest.raises(ZeroDivisionError):
            half.delay(0)

    assert heard[:2] == [("started", job.id), ("succeeded", job.id, 0.5)]
    assert [fact[0] for fact in heard[2:]] == ["started", "failed"]
    assert heard[3] == ("failed", "ZeroDivisionError", 1)


def test_testing_alone_changes_nothing() -> None:
    """Flask's ``TESTING`` does not make jobs inline."""
    app = Flask("shop")
    app.config["TESTING"] = True

    assert not HenriJobs(app).state_of(app).settings.inline
