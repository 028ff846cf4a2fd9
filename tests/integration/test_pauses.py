"""Pausing a queue, a task or a tenant: nothing of it begins, and all else does (X4)."""

from __future__ import annotations

import threading
import time
import typing as t

import pytest
from flask import Flask

from flask_henri_jobs import HenriJobs, signals
from flask_henri_jobs.errors import InvalidFilter
from flask_henri_jobs.ids import new_token
from flask_henri_jobs.store.pauses import PROMISED_SECONDS
from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask_henri_jobs import Job
    from integration.conftest import MakeApp


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(HENRI_JOBS_POLL_INTERVAL="50ms")


@pytest.fixture
def elsewhere(app: Flask) -> Iterator[Flask]:
    """Another application with the same queue, which knows of it what another process does."""
    other = Flask("elsewhere")
    other.config.update(app.config)
    jobs = HenriJobs(other)
    yield other
    jobs.state_of(other).close()


class StartRunner(t.Protocol):
    def __call__(self, threads: int = 2) -> None:
        """Start a runner in a thread of this process."""


@pytest.fixture
def start_runner(app: Flask, jobs: HenriJobs) -> Iterator[StartRunner]:
    started: list[tuple[Runner, threading.Thread]] = []

    def start(threads: int = 2) -> None:
        state = jobs.state_of(app)
        runner = Runner(app, jobs.tasks, state.store, state.settings, threads=threads)
        thread = threading.Thread(target=runner.run)
        started.append((runner, thread))
        thread.start()

    yield start
    for runner, thread in started:
        runner.stop()
        thread.join(30)


def states(found: list[Job]) -> dict[str, str]:
    return {job.id: job.state for job in found}


@pytest.mark.parametrize("which", [{"queue": "low"}, {"name": "held"}, {"tenant": "acme"}])
@pytest.mark.parametrize("limited", [False, True])
def test_paused_jobs_wait_and_others_do_not(
    app: Flask, jobs: HenriJobs, which: dict[str, t.Any], limited: bool
) -> None:
    """X4: Of a queue, a task or a tenant that is paused nothing is performed, limited or not;
    what stands behind it is. After the resume it is, with its first attempt.
    """
    concurrency: t.Any = {"limit": 1, "group": "both"} if limited else None

    @jobs.task(name="held", concurrency=concurrency)
    def held() -> None: ...

    @jobs.task(name="other", concurrency=concurrency)
    def other() -> None: ...

    queue = which.get("queue", "default")
    first = held.using(queue=queue, tenant="acme", priority=-1).delay()
    second = other.using(tenant="zeta").delay()

    pause = jobs.pause(**which)
    jobs.run_worker(once=True)

    assert states(jobs.list()) == {first.id: "pending", second.id: "done"}
    assert jobs.pauses() == [pause]
    assert jobs.resume(**which) == pause
    jobs.run_worker(once=True)
    assert states(jobs.list()) == {first.id: "done", second.id: "done"}
    assert first.refresh().attempts == 1
    assert jobs.pauses() == []


def test_pause_twice_is_one_pause(app: Flask, jobs: HenriJobs) -> None:
    """X4: The first pause stands, and one resume ends it; a second one finds nothing."""
    first = jobs.pause(queue="mail")

    assert jobs.pause(queue="mail") == first
    assert jobs.resume(queue="mail") == first
    assert jobs.resume(queue="mail") is None


def test_nothing_begins_a_second_after_a_pause(
    app: Flask, jobs: HenriJobs, elsewhere: Flask, start_runner: StartRunner
) -> None:
    """X4: A second after another process paused a task no job of it begins. Those that were
    claimed ahead go back as if they had not been claimed, and a resume is heard of at once.
    """
    starts: list[float] = []

    @jobs.task(name="quick", max_attempts=1)
    def quick(n: int) -> None:
        starts.append(time.monotonic())
        time.sleep(0.004)

    quick.delay_many([{"n": n} for n in range(2000)])
    start_runner()
    wait_until(lambda: len(starts) > 50, "the first jobs")

    with elsewhere.app_context():
        elsewhere.extensions["henri_jobs"].pause(name="quick")
    returned = time.monotonic()
    wait_until(lambda: time.monotonic() - starts[-1] > PROMISED_SECONDS, "the last start")
    wait_until(lambda: jobs.count(state="running") == 0, "the last end")

    assert max(starts) - returned <= PROMISED_SECONDS
    waiting = jobs.list(state="pending", limit=1000)
    assert len(starts) == jobs.count(state="done") < 2000
    assert {(job.attempts, job.claimed_by, job.started_at) for job in waiting} == {(0, None, None)}

    begun = len(starts)
    with elsewhere.app_context():
        elsewhere.extensions["henri_jobs"].resume(name="quick")
    resumed = time.monotonic()
    wait_until(lambda: len(starts) > begun, "the first start after the resume")
    assert starts[begun] - resumed < PROMISED_SECONDS


def test_claimed_jobs_go_back_to_their_places(
    app: Flask, jobs: HenriJobs, start_runner: StartRunner
) -> None:
    """X4: What was claimed and has not begun is not begun: no signal tells of it, it keeps its
    place, and its attempt is restored.
    """
    begun: list[int] = []
    told: list[str] = []

    @jobs.task(name="quick", max_attempts=1)
    def quick(n: int) -> None:
        begun.append(n)
        if n == 100:
            jobs.pause(name="quick")

    def tell(_app: Flask, job: Job, **_: t.Any) -> None:
        told.append(job.id)

    stored = quick.delay_many([{"n": n} for n in range(400)])
    with signals.job_snoozed.connected_to(tell), signals.job_lost.connected_to(tell):
        start_runner(threads=1)
        wait_until(lambda: len(begun) > 100, "the pause")
        wait_until(lambda: jobs.count(state="running") == 0, "the hand-back")

    assert begun == list(range(101))
    assert told == []
    after = stored[150].refresh()
    assert (after.state, after.attempts, after.started_at) == ("pending", 0, None)
    assert after.run_at == after.created_at


def test_suspects_are_paused_too(app: Flask, jobs: HenriJobs) -> None:
    """X4, W6: A job that ran in a process that died waits with the others of its task."""

    @jobs.task(name="held")
    def held() -> None: ...

    for which in ({"queue": "default"}, {"name": "held"}, {"tenant": "acme"}):
        job = held.using(tenant="acme").delay()
        jobs.database["henri_jobs"].update_one({"_id": job.id}, {"$set": {"suspect": True}})
        jobs.pause(**which)
        jobs.run_worker(once=True)
        assert job.refresh().state == "pending"

        jobs.resume(**which)
        jobs.run_worker(once=True)
        assert job.refresh().state == "done"


def test_code_of_a_tenant_pauses_that_tenant(app: Flask, jobs: HenriJobs) -> None:
    """T2: It neither holds back the jobs of all, nor sees who else is paused."""
    jobs.pause(tenant="zeta")
    with jobs.tenant("acme"):
        for which in ({"queue": "mail"}, {"name": "mail"}, {"tenant": "zeta"}):
            with pytest.raises(InvalidFilter, match="runs for 'acme'"):
                jobs.pause(**which)
            with pytest.raises(InvalidFilter, match="runs for 'acme'"):
                jobs.resume(**which)
        own = jobs.pause(tenant="acme")
        assert jobs.pauses() == [own]
    assert [pause.name for pause in jobs.pauses()] == ["acme", "zeta"]


def test_status_tells_what_is_paused(app: Flask, jobs: HenriJobs) -> None:
    """X4: Each queue says whether it is, and all pauses are listed."""
    jobs.enqueue("mail", queue="high")
    jobs.enqueue("mail", queue="low")
    pause = jobs.pause(queue="low")

    status = jobs.status()

    assert {one["queue"]: one["paused"] for one in status["queues"]} == {
        "high": False,
        "low": True,
    }
    assert status["pauses"] == [pause.to_dict()]


def test_paused_at_is_the_servers_time(app: Flask, jobs: HenriJobs) -> None:
    """C1: A pause has its moment by the database's clock."""
    state = jobs.state_of(app)
    before = state.store.clock.now()

    row = jobs.database["henri_jobs_pauses"].find_one_and_delete(
        {"name": jobs.pause(queue=f"q-{new_token()}").name}
    )

    assert row is not None
    assert row["_id"] == f"queue:{row['name']}"
    assert before <= row["paused_at"] <= state.store.clock.now()
