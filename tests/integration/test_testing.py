"""The testing kit, as an application's tests use it."""

from __future__ import annotations

import typing as t
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flask import g

import flask_henri_jobs
from flask_henri_jobs import Discard, Snooze, current_job, testing

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from flask_henri_jobs import HenriJobs, Task
    from flask_henri_jobs.testing import ManualJobs


@pytest.fixture
def kept(jobs: HenriJobs, app: Flask) -> Iterator[ManualJobs]:
    with testing.manual(jobs, app) as kept:
        yield kept


@pytest.fixture
def sent() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def mail(jobs: HenriJobs, sent: list[tuple[int, str]]) -> Task[[int, str], None]:
    @jobs.task(name="mail", max_attempts=2, backoff={"base": "1m", "jitter": 0})
    def mail(user_id: int, subject: str = "Hello") -> None:
        if subject == "fail":
            raise ValueError(subject)
        if subject == "discard":
            raise Discard(subject)
        if subject == "snooze" and current_job.run_at == current_job.created_at:
            raise Snooze("1h")
        sent.append((user_id, subject))

    return mail


def test_inline(
    jobs: HenriJobs, app: Flask, mail: Task[[int, str], None], sent: list[tuple[int, str]]
) -> None:
    """X7: an inline job is performed where it is enqueued, and the caller's context stays."""
    g.caller = "here"

    @jobs.task(name="look")
    def look() -> None:
        assert not hasattr(g, "caller")
        g.caller = "there"

    with testing.inline(jobs, app):
        assert mail.delay(7, "Hi").state == "done"
        look.delay()
        with pytest.raises(ValueError, match="fail"):
            mail.delay(7, "fail")

    assert sent == [(7, "Hi")]
    assert g.caller == "here"
    assert jobs.count() == 0


def test_manual_jobs_wait_apart(
    jobs: HenriJobs, app: Flask, mail: Task[[int, str], None], sent: list[tuple[int, str]]
) -> None:
    """X7: a test's jobs are kept apart from the app's, until they are drained, and then gone."""
    real = mail.delay(1, "real")
    with testing.manual(jobs, app) as kept:
        mail.delay(7, "Hi")
        assert [job.args["user_id"] for job in kept.enqueued()] == [7]
        assert sent == []

        assert kept.drain() == testing.Drained(succeeded=1)
        assert sent == [(7, "Hi")]
        database, name = jobs.database, jobs.state.settings.collection
        assert name in database.list_collection_names()

    assert name not in jobs.database.list_collection_names()
    assert jobs.get(real.id) == real


def test_assert_enqueued(kept: ManualJobs, mail: Task[[int, str], None]) -> None:
    """X7: jobs are found by task, arguments, queue and number."""
    mail.delay(7, "Hi")
    mail.using(queue="low").delay(8, "Ho")

    (job,) = kept.assert_enqueued(mail, {"user_id": 7})
    assert job.args == {"user_id": 7, "subject": "Hi"}
    kept.assert_enqueued("mail", count=2)
    kept.assert_enqueued(mail, queue="low", count=1)
    kept.refute_enqueued(mail, {"user_id": 9})


def test_failed_assertions_show_what_waits(kept: ManualJobs, mail: Task[[int, str], None]) -> None:
    """X7: a failing assertion tells what was asked for, and what there is instead."""
    with pytest.raises(AssertionError, match=r"No job fits mail, user_id=9\. Nothing waits\."):
        kept.assert_enqueued(mail, {"user_id": 9})
    mail.delay(7, "Hi")
    with pytest.raises(AssertionError, match=r"Waiting:\n  mail \{'user_id': 7, 'subject': 'Hi'\}"):
        kept.assert_enqueued(mail, {"user_id": 9})
    with pytest.raises(AssertionError, match=r"1 jobs fit mail, not 2\."):
        kept.assert_enqueued(mail, count=2)
    with pytest.raises(AssertionError, match=r"1 jobs fit mail, user_id=7, not 0\."):
        kept.refute_enqueued(mail, {"user_id": 7})


def test_drain_tells_how_it_went(kept: ManualJobs, mail: Task[[int, str], None]) -> None:
    """X7: draining counts how each attempt ended."""
    for subject in ("Hi", "fail", "discard", "snooze"):
        mail.delay(7, subject)

    drained = kept.drain()

    assert drained == testing.Drained(succeeded=1, retried=1, snoozed=1, died=1)
    assert drained.performed == 4


def test_drain_of_one_queue(
    kept: ManualJobs, mail: Task[[int, str], None], sent: list[tuple[int, str]]
) -> None:
    """X7: draining a queue leaves the others."""
    mail.delay(7, "Hi")
    mail.using(queue="low").delay(8, "Ho")

    kept.drain(queue="low")

    assert sent == [(8, "Ho")]
    assert len(kept.enqueued()) == 1


def test_drain_fires_no_schedule(
    jobs: HenriJobs, kept: ManualJobs, mail: Task[[int, str], None]
) -> None:
    """X7: what a test has not enqueued is not performed and counted, whatever the time of day."""

    @jobs.task(name="often", every="1s")
    def often() -> None: ...

    with kept.frozen_clock() as clock:
        for _ in range(3):
            assert kept.drain() == testing.Drained()
            clock.advance("2s")
        mail.delay(7, "Hi")
        assert kept.drain() == testing.Drained(succeeded=1)


def test_clock(kept: ManualJobs, mail: Task[[int, str], None]) -> None:
    """X7: a moved clock makes retries due, and buries what is out of attempts."""
    with kept.frozen_clock(datetime(2030, 1, 1, tzinfo=UTC)) as clock:
        job = mail.delay(7, "fail")
        assert job.created_at == clock.now == datetime(2030, 1, 1, tzinfo=UTC)
        assert kept.drain() == testing.Drained(retried=1)
        assert kept.drain() == testing.Drained()
        clock.advance("59s")
        assert kept.drain() == testing.Drained()
        clock.advance(timedelta(seconds=1))
        assert kept.drain() == testing.Drained(died=1)

    assert job.refresh().dead_reason == "failed"


def test_clock_goes_on(kept: ManualJobs, jobs: HenriJobs) -> None:
    """X7: after the block the queue's time is the server's again, be it earlier."""
    before = jobs.state.store.clock.now()
    with kept.frozen_clock(datetime(2040, 1, 1, tzinfo=UTC)):
        assert jobs.state.store.clock.now() > before + 10**10

    assert before <= jobs.state.store.clock.now() < before + 60_000


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own finds this package, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(Path(flask_henri_jobs.__file__).parent.parent))


PLUGIN_TEST = """
pytest_plugins = ["flask_henri_jobs.pytest_plugin"]

import pytest
from flask import Flask
from flask_henri_jobs import HenriJobs

jobs = HenriJobs()

@jobs.task(name="mail", max_attempts=2, backoff={{"base": "1m", "jitter": 0}})
def mail(user_id: int) -> None:
    if user_id < 0:
        raise ValueError(user_id)

@pytest.fixture
def app():
    app = Flask("shop")
    app.config.from_mapping(HENRI_JOBS_URI={uri!r}, HENRI_JOBS_DATABASE={database!r})
    jobs.init_app(app)
    with app.app_context():
        yield app

def test_inline(jobs_inline):
    assert mail.delay(7).state == "done"

def test_manual(jobs_manual):
    mail.delay(7)
    jobs_manual.assert_enqueued(mail, {{"user_id": 7}})
    assert jobs_manual.drain().succeeded == 1

def test_clock(jobs_manual, jobs_clock):
    mail.delay(-1)
    assert jobs_manual.drain().retried == 1
    jobs_clock.advance("1m")
    assert jobs_manual.drain().died == 1
"""


@pytest.mark.usefixtures("importable")
def test_plugin(pytester: pytest.Pytester, mongo_uri: str, database_name: str) -> None:
    """X7: the fixtures find the app by its fixture, and do the same."""
    pytester.makepyfile(PLUGIN_TEST.format(uri=mongo_uri, database=database_name))

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


@pytest.mark.usefixtures("importable")
def test_plugin_without_the_extension(pytester: pytest.Pytester) -> None:
    """X7: an app without the extension is told so."""
    pytester.makepyfile("""
        pytest_plugins = ["flask_henri_jobs.pytest_plugin"]
        import flask, pytest

        @pytest.fixture
        def app():
            return flask.Flask("shop")

        def test_inline(jobs_inline): ...
    """)

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*The app 'shop' has no HenriJobs: call jobs.init_app(app).*"])
