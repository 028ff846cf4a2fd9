"""What tasks return, kept with their jobs (X3)."""

from __future__ import annotations

import logging
import threading
import typing as t
from datetime import UTC, datetime

import pytest

from flask_henri_jobs import HenriJobs, JobFailed, WaitTimeout, signals

if t.TYPE_CHECKING:
    from flask import Flask

    from flask_henri_jobs import Job

WHEN = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(app: Flask) -> Flask:
    app.config["HENRI_JOBS_POLL_INTERVAL"] = "50ms"
    return app


def done(jobs: HenriJobs, job: Job) -> Job:
    jobs.run_worker(once=True, schedules=False)
    return job.refresh()


def test_result(jobs: HenriJobs) -> None:
    """What a task returns is there as it was, by whatever way the job is read."""

    @jobs.task(store_result=True)
    async def summary(n: int) -> dict[str, t.Any]:
        return {"n": n, "when": WHEN, "pair": (1, 2)}

    job = done(jobs, summary.delay(7))

    assert job.state == "done"
    assert job.result == {"n": 7, "when": WHEN, "pair": (1, 2)}
    assert job.wait(0) == job.result
    [listed] = jobs.list(state="done")
    assert listed.result == job.result
    assert listed.to_dict()["result"]["n"] == 7
    assert job.result_error is None


def test_result_that_is_not_asked_for(jobs: HenriJobs) -> None:
    """Without the option nothing is stored, whatever is returned."""

    @jobs.task
    def look() -> object:
        return object()

    job = done(jobs, look.delay())

    assert (job.state, job.result, job.result_error) == ("done", None, None)
    assert not {"result", "result_error"} & job.row.keys()
    assert job.wait(0) is None


def test_result_that_cannot_be_kept(jobs: HenriJobs, caplog: pytest.LogCaptureFixture) -> None:
    """Such a job is done, once, and says why it has no result; the log says so once a task."""
    calls: list[int] = []

    @jobs.task(store_result=True, name="export")
    def export(n: int) -> object:
        calls.append(n)
        return {"file": object()}

    made = [export.delay(n) for n in range(3)]
    with caplog.at_level(logging.WARNING):
        done(jobs, made[-1])

    assert sorted(calls) == [0, 1, 2]
    for job in made:
        job.refresh()
        assert (job.state, job.attempts, job.error, job.result) == ("done", 1, None, None)
        assert job.result_error == "result.file is an object instance."
        assert job.wait(0) is None
    told = [record.getMessage() for record in caplog.records if "keeps no result" in record.message]
    assert len(told) == 1


def test_result_after_a_retry(jobs: HenriJobs) -> None:
    """A job that is performed again loses its old result, and has the new one at its end."""
    answers: list[t.Any] = [object(), 2]

    @jobs.task(store_result=True)
    def answer() -> t.Any:
        return answers.pop(0)

    job = done(jobs, answer.delay())
    assert job.result_error is not None

    again = jobs.retry(job.id)
    assert (again.result, again.result_error) == (None, None)
    assert done(jobs, job).result == 2
    assert job.result_error is None


def test_wait(jobs: HenriJobs, app: Flask) -> None:
    """``wait`` returns the result once it is there, and raises where there will be none."""

    @jobs.task(store_result=True, max_attempts=1)
    def halve(n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    even, odd = halve.delay(4), halve.delay(3)
    with pytest.raises(WaitTimeout, match=r"had not ended after 0\.01 s"):
        even.wait(0.01)
    waiting = threading.Event()
    found: list[t.Any] = []

    def wait() -> None:
        with app.app_context():
            waiting.set()
            found.append(even.wait("30s"))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(5)
    jobs.run_worker(once=True, schedules=False)
    thread.join(10)

    assert found == [2]
    with pytest.raises(JobFailed, match="ValueError: 3 is odd"):
        odd.wait(5)
    assert odd.state == "dead"


def test_announced(jobs: HenriJobs, app: Flask) -> None:
    """A receiver of ``job_succeeded`` has what was returned, and the job as it is stored."""
    heard: list[tuple[t.Any, t.Any]] = []

    @jobs.task(store_result=True)
    def pair() -> tuple[int, int]:
        return (1, 2)

    def succeeded(_app: Flask, job: Job, result: t.Any, **_facts: t.Any) -> None:
        heard.append((result, job.result))

    with signals.job_succeeded.connected_to(succeeded, app):
        done(jobs, pair.delay())

    assert heard == [((1, 2), (1, 2))]
