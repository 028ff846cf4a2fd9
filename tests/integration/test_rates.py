"""Rates in a whole worker (X4)."""

from __future__ import annotations

import threading
import time
import typing as t

import pytest
from pymongo import MongoClient

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until
from plans import Recorder

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from flask_henri_jobs.job import Job
    from flask_henri_jobs.store.wish import Wish
    from integration.conftest import MakeApp

WINDOW = 1.0


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    """An app whose worker would not look again by itself within the test."""
    return make_app(HENRI_JOBS_POLL_INTERVAL="5m", HENRI_JOBS_STUCK_AFTER="1h")


def test_the_next_begins_when_its_time_has_come(
    jobs: HenriJobs, start: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """X4: what the rate leaves no room for waits, begins a window later without a poll, and costs
    neither an attempt nor a look after the other; unrated jobs behind it do not wait."""
    claims = type(jobs.state.store.claims)
    take, looks = claims.take, []
    starts: list[float] = []

    def counted(self: t.Any, wish: Wish) -> list[Job]:
        looks.append(time.monotonic())
        return take(self, wish)

    @jobs.task(name="rated", max_attempts=1, rate="3/s")
    def rated() -> None:
        starts.append(time.monotonic())

    @jobs.task(name="other", priority=1)
    def other() -> None: ...

    monkeypatch.setattr(claims, "take", counted)
    stored = rated.delay_many([{}] * 7)
    unrated = other.delay()
    start()
    wait_until(lambda: unrated.refresh().state == "done", "the job without a rate")
    assert len(starts) <= 3
    wait_until(lambda: jobs.count(state="done") >= 4, "the first three, and that one")
    are_done = time.monotonic()
    wait_until(lambda: jobs.count(state="done") == 8, "all of them")

    assert min(later - one for one, later in zip(starts, starts[3:], strict=False)) >= WINDOW
    assert starts[-1] - starts[0] < 4 * WINDOW
    # What follows from the end of the first ones is over soon after it.
    in_between = [one for one in looks if are_done + 0.2 < one < starts[3] - 0.1]
    assert len(in_between) <= 3
    after = [job.refresh() for job in stored]
    assert {(job.attempts, len(job.history)) for job in after} == {(1, 0)}


def test_a_start_is_one_round_trip_more(
    make_app: MakeApp, mongo_uri: str, recorder: Recorder
) -> None:
    """X4: a run of rated starts sends one question more for each at most, its first use of the
    bucket and the moments when the rate is spent included."""
    app = make_app()
    jobs = HenriJobs(app, client=lambda: MongoClient(mongo_uri, event_listeners=[recorder]))

    @jobs.task(name="rated", rate="50/2s")
    def rated() -> None: ...

    with app.app_context():
        rated.delay_many([{}] * 100)
        state = jobs.state
        runner = Runner(app, jobs.tasks, state.store, state.settings, threads=4)
        worker = threading.Thread(target=runner.run)
        worker.start()
        wait_until(lambda: jobs.count(state="done") == 100, "all of them")
        runner.stop()
        worker.join(20)
        history = [job.attempts for job in jobs.list(state="done", limit=100)]
        state.client.close()

    asked = [one for one in recorder.commands if "henri_jobs_rates" in one.values()]
    looks = [one for one in asked if "update" not in one]
    assert history == [1] * 100
    assert len(asked) <= 100
    # One at the first use, and few where the rate was spent: more on a machine that is slow just
    # then, and never one for each start.
    assert len(looks) <= 20


def test_each_key_has_its_own(jobs: HenriJobs) -> None:
    """X4: a key whose rate is spent holds back its own jobs, and no others; tasks of one group
    are counted together."""
    performed: list[tuple[str, int]] = []
    rate: t.Any = {"limit": "1/h", "key": "account", "group": "mails"}

    @jobs.task(name="mail", rate=rate)
    def mail(account: int) -> None:
        performed.append(("mail", account))

    @jobs.task(name="post", rate=rate, priority=1)
    def post(account: int) -> None:
        performed.append(("post", account))

    mail.delay_many([{"account": n} for n in (1, 1, 2)])
    post.delay_many([{"account": n} for n in (1, 3)])

    jobs.run_worker(once=True)

    assert sorted(performed) == [("mail", 1), ("mail", 2), ("post", 3)]
    waiting = jobs.list(state="pending")
    assert {(job.name, job.args["account"]) for job in waiting} == {("mail", 1), ("post", 1)}
    assert {(job.attempts, job.concurrency_key) for job in waiting} == {(0, "mails:1")}


def test_beside_a_limit(jobs: HenriJobs) -> None:
    """X4, L1: a task with a limit as well has both: its permits are not held by those that wait
    for a start."""

    @jobs.task(name="call", concurrency={"limit": 2, "key": "host"}, rate="3/h")
    def call(host: str) -> None: ...

    call.delay_many([{"host": host} for host in "aabbcc"])

    jobs.run_worker(once=True)

    assert jobs.count(state="done") == 3
    assert jobs.count(state="pending") == 3
    assert all(status.held == () for status in jobs.limits())


def test_jobs_from_before_the_rate(jobs: HenriJobs) -> None:
    """X4, L5: jobs that were stored without a key are counted to the group as a whole."""
    jobs.database["henri_jobs"].insert_many([job_without_a_key(jobs, "old") for _ in range(3)])

    @jobs.task(name="old", rate="2/h")
    def old() -> None: ...

    jobs.run_worker(once=True)

    assert jobs.count(state="done") == 2
    [waiting] = jobs.list(state="pending")
    assert (waiting.concurrency_key, waiting.attempts) == ("old", 0)


def test_a_suspect_is_counted_too(jobs: HenriJobs) -> None:
    """X4, W6: a job that is performed alone needs a start as any other."""

    @jobs.task(name="rated", rate="1/h")
    def rated() -> None: ...

    rated.delay()
    jobs.run_worker(once=True)
    suspect = rated.delay()
    jobs.database["henri_jobs"].update_one({"_id": suspect.id}, {"$set": {"suspect": True}})

    jobs.run_worker(once=True)

    assert suspect.refresh().state == "pending"
    jobs.database["henri_jobs_rates"].update_many({}, {"$set": {"taken_at": 0}})
    jobs.run_worker(once=True)
    assert suspect.refresh().state == "done"


def test_a_paused_task_spends_nothing(jobs: HenriJobs) -> None:
    """X4: what is paused takes no start from others of its group."""
    rate: t.Any = {"limit": "1/h", "group": "mails"}

    @jobs.task(name="held", rate=rate, priority=-1)
    def held() -> None: ...

    @jobs.task(name="other", rate=rate)
    def other() -> None: ...

    first, second = held.delay(), other.delay()
    jobs.pause(name="held")

    jobs.run_worker(once=True)

    assert (first.refresh().state, second.refresh().state) == ("pending", "done")


@pytest.mark.parametrize("which", [{"queue": "default"}, {"name": "held"}, {"tenant": "acme"}])
def test_a_resume_is_heard_of_at_once(
    jobs: HenriJobs, start: Callable[[], None], which: t.Any
) -> None:
    """X4, W3: a runner that sleeps for minutes begins what was paused as soon as it is resumed."""

    @jobs.task(name="held", rate="100/s")
    def held() -> None: ...

    jobs.pause(**which)
    job = held.using(tenant="acme").delay()
    start()
    wait_until(lambda: bool(jobs.runners()), "the runner")
    assert job.refresh().state == "pending"

    jobs.resume(**which)

    wait_until(lambda: job.refresh().state == "done", "the job")


def test_tasks_of_a_group_agree(jobs: HenriJobs) -> None:
    """X4: two opinions on one group's rate are refused at the second task's declaration."""
    jobs.task(name="one", rate={"limit": "1/h", "group": "mails"})(print)

    with pytest.raises(ConfigError, match="disagree on its rate: 1/1h, 2/1h"):
        jobs.task(name="two", rate={"limit": "2/h", "group": "mails"})(print)


def job_without_a_key(jobs: HenriJobs, name: str) -> dict[str, t.Any]:
    job = jobs.enqueue(name)
    row = jobs.database["henri_jobs"].find_one_and_delete({"_id": job.id})
    assert row is not None
    assert "concurrency_key" not in row
    return row
