"""What is logged of jobs, and what jobs keep of it (X3, X6)."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import typing as t

import pytest
from flask import current_app

from flask_henri_jobs import Discard, HenriJobs, Retry, Snooze, current_job, signals
from flask_henri_jobs.logs import FIELDS, JobFields, JsonFormatter

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from flask_henri_jobs import Job

shop = logging.getLogger("tests.shop")


@pytest.fixture
def app(app: Flask) -> Flask:
    app.config["HENRI_JOBS_POLL_INTERVAL"] = "50ms"
    return app


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The factory of records, and the filters of handlers that are there for longer."""
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


def work(jobs: HenriJobs, *made: Job) -> None:
    jobs.run_worker(once=True, schedules=False)
    for job in made:
        job.refresh()


def fields(record: logging.LogRecord) -> dict[str, t.Any]:
    return {name: getattr(record, name) for name in FIELDS}


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == logger]


def test_fields(jobs: HenriJobs, caplog: pytest.LogCaptureFixture) -> None:
    """X6: a line inside a job carries the job; one outside has the same fields, and None."""

    @jobs.task(name="mail", queue="mail")
    async def mail() -> None:
        shop.info("inside", extra={"user": 7})
        current_app.logger.info("by the app's own logger")

    job = mail.using(tenant="acme").delay()
    with caplog.at_level(logging.INFO):
        current_app.logger.setLevel(logging.INFO)
        work(jobs, job)

    [inside] = lines(caplog, "tests.shop")
    of_job = {
        "job_id": job.id,
        "task": "mail",
        "queue": "mail",
        "attempt": 1,
        "runner": job.claimed_by,
        "tenant": "acme",
    }
    assert fields(inside) == of_job
    assert inside.__dict__["user"] == 7
    assert [fields(record) for record in lines(caplog, "shop")] == [of_job]
    known, ended = lines(caplog, "flask_henri_jobs")
    assert known.getMessage().startswith("Runner ")
    assert fields(known) == dict.fromkeys(FIELDS)
    assert fields(ended) == of_job


def test_fields_of_others(jobs: HenriJobs, caplog: pytest.LogCaptureFixture) -> None:
    """X6: ``extra`` may have a field of ours: it is the application's, and raises nothing."""

    @jobs.task
    def mail() -> None:
        shop.warning("inside", extra={"tenant": "theirs", "job_id": 7, "task": None})

    job = mail.delay()
    work(jobs, job)

    assert job.state == "done"
    [inside] = lines(caplog, "tests.shop")
    assert (inside.__dict__["tenant"], inside.__dict__["job_id"]) == ("theirs", 7)
    assert inside.__dict__["task"] is None
    assert inside.__dict__["queue"] == "default"


def test_line_for_each_outcome(jobs: HenriJobs, caplog: pytest.LogCaptureFixture) -> None:
    """X6: at INFO each outcome has one line, about its job; an idle worker says nothing."""

    @jobs.task(name="end", max_attempts=2, backoff={"base": "1h"})
    def end(how: str) -> None:
        match how:
            case "snooze":
                raise Snooze("1h")
            case "discard":
                raise Discard("nobody\nwants it")
            case "retry":
                raise Retry
            case "fail":
                raise ValueError("no such\nshelf")

    made = {how: end.delay(how) for how in ("done", "snooze", "discard", "retry", "fail")}
    expired = end.using(expires="1ms", wait=0).delay("done")
    jobs.database["henri_jobs"].update_one({"_id": expired.id}, {"$set": {"expires_at": 1}})
    with caplog.at_level(logging.INFO):
        work(jobs, *made.values(), expired)
        told = {
            record.__dict__["job_id"]: (record.levelname, record.getMessage())
            for record in lines(caplog, "flask_henri_jobs")[1:]
        }
        count = len(lines(caplog, "flask_henri_jobs"))
        caplog.clear()
        work(jobs)

    assert count == 1 + len(told) == 7
    begins = {
        "done": ("INFO", "end is done after attempt 1 of 2, in "),
        "snooze": ("INFO", "end snoozes for 1h (job "),
        "discard": ("WARNING", "end is dead (discarded) after attempt 1 of 2: nobody"),
        "retry": ("WARNING", "Attempt 1 of 2 at end failed, and the next is due in "),
        "fail": ("WARNING", "Attempt 1 of 2 at end failed, and the next is due in "),
    }
    for how, job in made.items():
        level, message = told[job.id]
        assert level == begins[how][0]
        assert message.startswith(begins[how][1]), message
        assert f"(job {job.id})" in message
    assert "is dead (expired)" in told[expired.id][1]
    assert len(lines(caplog, "flask_henri_jobs")) == 1


def test_handler_that_raises(jobs: HenriJobs, app: Flask) -> None:
    """W12: a handler that raises changes no outcome."""

    class Broken(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            raise OSError("disk full")

    heard: list[Job] = []

    def succeeded(_app: Flask, job: Job, **_facts: t.Any) -> None:
        heard.append(job)

    @jobs.task
    def mail() -> None: ...

    job = mail.delay()
    logger = logging.getLogger("flask_henri_jobs")
    broken = Broken()
    logger.addHandler(broken)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with signals.job_succeeded.connected_to(succeeded, app):
            work(jobs, job)
    finally:
        logger.removeHandler(broken)
        logger.setLevel(level)

    assert job.state == "done"
    assert heard == [job]


@contextlib.contextmanager
def written(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def test_json(jobs: HenriJobs) -> None:
    """X6: ``JsonFormatter`` writes a line of JSON a record, with the job and what ``extra`` has."""

    @jobs.task(name="mail")
    def mail() -> None:
        try:
            json.loads("line\nbreak")
        except ValueError:
            shop.exception("failed for %s", "ann", extra={"order": 42, "when": jobs})

    job = mail.delay()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    with written(shop, handler):
        shop.warning("outside")
        work(jobs, job)

    outside, inside = map(json.loads, stream.getvalue().splitlines())
    assert outside.keys() == {"time", "level", "logger", "message"}
    time, exception = inside.pop("time"), inside.pop("exception")
    assert time.endswith("+00:00")
    assert exception.startswith("Traceback (most recent call last):\n")
    assert inside == {
        "level": "ERROR",
        "logger": "tests.shop",
        "message": "failed for ann",
        "job_id": job.id,
        "task": "mail",
        "queue": "default",
        "attempt": 1,
        "runner": job.claimed_by,
        "order": 42,
        "when": str(jobs),
    }


def test_filter_in_a_configuration(jobs: HenriJobs) -> None:
    """A handler with the filter may name the fields in its format, inside a job and outside."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobFields())
    handler.setFormatter(logging.Formatter("%(job_id)s %(task)s %(message)s"))

    @jobs.task(name="mail")
    def mail() -> None:
        shop.warning("inside")

    job = mail.delay()
    with written(shop, handler):
        shop.warning("outside")
        work(jobs, job)
        assert len(handler.filters) == 1

    assert stream.getvalue() == f"None None outside\n{job.id} mail inside\n"


def test_kept(jobs: HenriJobs) -> None:
    """X3: a task that keeps its logs has the lines of all its attempts, however each ended."""

    @jobs.task(keep_logs=True, backoff={"base": "0s"})
    def steps() -> None:
        shop.warning("attempt %d begins", current_job.attempt)
        if current_job.attempt == 1:
            raise ValueError("no")
        shop.warning("bad arguments %d", "x")
        logging.getLogger("tests.mute").warning("not propagated")

    mute = logging.getLogger("tests.mute")
    mute.propagate = False
    job = steps.delay()
    handled, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        work(jobs, job)
    finally:
        logging.raiseExceptions = handled
        mute.propagate = True

    assert job.state == "done"
    assert [(line["attempt"], line["message"]) for line in job.logs] == [
        (1, "attempt 1 begins"),
        (2, "attempt 2 begins"),
        (2, "not propagated"),
    ]
    assert (job.logs[0]["level"], job.logs[0]["logger"]) == ("WARNING", "tests.shop")
    assert job.created_at <= job.logs[0]["at"] <= job.logs[-1]["at"]
    assert job.to_dict()["logs"][0]["message"] == "attempt 1 begins"


def test_kept_by_nobody_else(jobs: HenriJobs) -> None:
    """Another task's lines are its own, and its job has no field for them."""

    @jobs.task(keep_logs=2)
    def keeps() -> None:
        for number in range(5):
            shop.warning("line %d", number)

    @jobs.task
    def keeps_none() -> None:
        shop.warning("gone")

    one, other = keeps.delay(), keeps_none.delay()
    shop.warning("outside")
    work(jobs, one, other)

    assert [line["message"] for line in one.logs] == ["line 3", "line 4"]
    assert one.logs_dropped == 3
    assert "logs" not in other.row
    assert (other.logs, other.logs_dropped) == ([], 0)


def test_factory_of_others(jobs: HenriJobs) -> None:
    """A factory of records that the application has set makes them still, and none is doubled."""

    class Record(logging.LogRecord):
        pass

    logging.setLogRecordFactory(Record)

    @jobs.task(keep_logs=True)
    def steps() -> None:
        # As a library does that wraps whatever factory there is.
        inner = logging.getLogRecordFactory()
        logging.setLogRecordFactory(functools.partial(inner))
        shop.warning("once")

    first, second = steps.delay(), steps.delay()
    work(jobs, first)
    work(jobs, second)

    assert [line["message"] for line in second.logs] == ["once"]
    made = logging.getLogRecordFactory()("a", 10, "f", 1, "m", (), None)
    assert isinstance(made, Record)
