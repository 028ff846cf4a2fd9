"""What a user writes, with the types that it has. mypy and pyright accept every line."""

from __future__ import annotations

import collections.abc as c
import typing as t
from datetime import UTC, datetime, timedelta

from flask import Flask

from flask_henri_jobs import (
    Batch,
    ConfigError,
    Discard,
    HenriJobs,
    HenriJobsError,
    Job,
    Retry,
    Snooze,
    StoreUnavailable,
    Task,
    current_job,
    signals,
)

jobs = HenriJobs()
reports = HenriJobs(Flask(__name__), client=lambda: None, collection="reports")


@jobs.task
def add(a: int, b: int = 2) -> int:
    return a + b


@jobs.task(
    name="mail",
    queue="mail",
    priority=5,
    max_attempts=3,
    timeout="30s",
    unique=("user_id", "subject"),
    expires="10m",
    rate={"limit": "100/m", "key": "user_id"},
    store_result=True,
    transactional=True,
    keep_logs=50,
    redact=("subject",),
    backoff={"base": "5s", "factor": 4, "max": timedelta(hours=1), "jitter": 0.15},
    retry_on=ConnectionError,
    discard_on=(ValueError, KeyError),
)
def mail(user_id: int, *, subject: str = "Hello") -> None:
    if not current_job:
        return
    t.assert_type(current_job.attempt, int)
    t.assert_type(current_job.due_at, datetime)
    current_job.set_progress(1, total=2.5, message="half")
    with current_job.transaction() as tx:
        jobs.database.orders.insert_one({"_id": 1}, session=tx)
        tx.result = 1
    t.assert_type(current_job.run_in_transaction(lambda tx: len(tx.session_id)), int)
    if current_job.attempt > 2:
        raise Discard("nobody there")
    if user_id < 0:
        raise Snooze("5m")
    raise Retry("not yet", wait=timedelta(seconds=30))


@jobs.task(unique=lambda url: url)
async def fetch(url: str) -> bytes:
    return url.encode()


def calls() -> None:
    """A task is called as the function is."""
    t.assert_type(add(1), int)
    t.assert_type(add(1, b=2), int)
    pending: c.Coroutine[t.Any, t.Any, bytes] = fetch("http://localhost")
    pending.close()
    t.assert_type(add.function(1, 2), int)
    t.assert_type(add.name, str)


def enqueues() -> None:
    """Each way to enqueue takes the function's arguments and returns a job."""
    at = datetime.now(UTC)
    t.assert_type(add.delay(1), Job)
    t.assert_type(add.delay(a=1, b=2), Job)
    t.assert_type(mail.delay(7, subject="Hi"), Job)
    t.assert_type(fetch.delay(url="http://localhost"), Job)
    t.assert_type(add.using(wait="5m", queue="low", priority=-3, max_attempts=1).delay(1, 2), Job)
    t.assert_type(add.using(at=at, expires=at, id="an id").delay(1), Job)
    t.assert_type(add.using(timeout=timedelta(seconds=30)).delay(1), Job)
    t.assert_type(add.using(unique="add:1", on_conflict="replace").delay(1), Job)
    t.assert_type(add.using(tags=("order:42",)).using(tags=["a", "b"]).delay(1), Job)
    t.assert_type(add.using(unique=None).using(wait=1.5).delay(1), Job)
    t.assert_type(add.apply_async((1, 2)), Job)
    t.assert_type(add.apply_async(args=[1], kwargs={"b": 2}, countdown=60, queue="low"), Job)
    t.assert_type(add.apply_async((1,), eta=at), Job)
    t.assert_type(add.delay_many([{"a": 1}, {"a": 2, "b": 3}]), list[Job])
    t.assert_type(add.using(queue="low").delay_many({"a": n} for n in range(3)), list[Job])
    t.assert_type(jobs.enqueue("henri/task", {"id": 7}, queue="low", wait=timedelta(1)), Job)
    t.assert_type(jobs.enqueue("henri/task"), Job)
    jobs.perform_now("mail", {"user_id": 7})


def looks(job: Job) -> None:
    """A job's attributes have types of their own."""
    t.assert_type(job.id, str)
    t.assert_type(job.state, str)
    t.assert_type(job.attempts, int)
    t.assert_type(job.run_at, datetime)
    t.assert_type(job.finished_at, datetime | None)
    t.assert_type(job.duration, timedelta | None)
    t.assert_type(job.tags, tuple[str, ...])
    t.assert_type(job.wait("5m"), t.Any)
    t.assert_type(job.result, t.Any)
    t.assert_type(job.result_error, str | None)
    t.assert_type(job.logs_dropped, int)
    for line in job.logs:
        t.assert_type(line["message"], str)
    if progress := job.progress:
        t.assert_type(progress["done"], float)
        t.assert_type(progress["total"], float | None)
        t.assert_type(progress["at"], datetime)
    t.assert_type(job.dead_reason, str | None)
    t.assert_type(job.created, bool)
    t.assert_type(job.refresh(), Job)
    for attempt in job.history:
        t.assert_type(attempt["at"], datetime)


def operates() -> None:
    """The operator's questions have typed filters and answers."""
    t.assert_type(jobs.get("an id"), Job | None)
    t.assert_type(jobs.count(state="dead", queue="mail", name=None), int)
    for job in jobs.list(state="dead", reason="failed", limit=10, offset=20):
        t.assert_type(jobs.retry(job.id), Job)
        t.assert_type(jobs.delete(job.id), Job)
        t.assert_type(jobs.cancel(job.id), Job)
    t.assert_type(jobs.retry_all(queue="mail"), int)
    t.assert_type(jobs.delete_all(state="done"), int)
    t.assert_type(jobs.install(), list[str])
    t.assert_type(jobs.pause(queue="mail").paused_at, datetime)
    t.assert_type(jobs.pauses()[0].to_dict(), dict[str, str])
    if resumed := jobs.resume(tenant="acme"):
        t.assert_type(resumed.kind, str)
    jobs.run_worker(once=True, queues=["high", "low"], threads=2, grace="5s")


def passes_on(task: Task[[int], object], app: Flask) -> Job:
    """A task may be passed on with its types, and an app set up in a factory."""
    jobs.init_app(app)
    return task.delay(7)


def connects() -> None:
    """Signals are blinker's, and errors are told apart by their classes."""

    def heard(app: Flask, job: Job, **facts: t.Any) -> None:
        app.logger.info("%s", job.id)

    signals.job_died.connect(heard)
    try:
        add.delay(1)
    except StoreUnavailable as error:
        t.assert_type(error.maybe_stored, str | None)
    except (ConfigError, HenriJobsError) as error:
        t.assert_type(error.hint, str)
        t.assert_type(error.code, str)


def import_users(account: int) -> Batch:
    with jobs.batch(
        callback=mail,
        callback_args={"account": account},
        on_success=mail.using(queue="low"),
        on_failure="other/app",
        name="import",
        tenant=None,
    ) as batch:
        t.assert_type(batch.add(add, 1, b=2), Job)
        t.assert_type(batch.add(mail.using(priority=5), 7, subject="Hi"), Job)
        t.assert_type(batch.add_many(add, ({"a": n} for n in range(3))), list[Job])
    t.assert_type(batch.total, int)
    t.assert_type(batch.finished_at, datetime | None)
    t.assert_type(batch.jobs(state="dead"), list[Job])
    t.assert_type(jobs.batches.get("id"), Batch | None)
    t.assert_type(jobs.batches.list(state="open"), list[Batch])
    t.assert_type(jobs.batches.cancel("id"), Batch)
    return jobs.batches.open("id").seal().refresh()
