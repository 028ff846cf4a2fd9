"""Why a job does not run: each fault is made, and named, and nothing else is (X8)."""

from __future__ import annotations

import math
import threading
import time
import typing as t
from dataclasses import dataclass, field

import pytest
from flask import Flask

from flask_henri_jobs.clock import Reading, steady_seconds
from flask_henri_jobs.errors import UnknownJob
from flask_henri_jobs.reason import MOST_IN_FRONT, REASONS
from flask_henri_jobs.worker.post import Post, Role
from flask_henri_jobs.worker.runner import Runner
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask_henri_jobs import HenriJobs
    from flask_henri_jobs.job import Document, Job
    from flask_henri_jobs.reason import Reason

HOUR = 3_600_000
ALIVE = "host:1:alive"


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> Flask:
    app = Flask("shop")
    app.config.update(
        HENRI_JOBS_URI=mongo_uri,
        HENRI_JOBS_DATABASE=database_name,
        HENRI_JOBS_POLL_INTERVAL="50ms",
    )
    return app


@dataclass
class Shop:
    """A queue with some tasks, and what can be wrong with it."""

    app: Flask
    jobs: HenriJobs
    leave: threading.Event = field(default_factory=threading.Event)
    runners: list[tuple[Runner, threading.Thread]] = field(default_factory=list)

    def __post_init__(self) -> None:
        leave = self.leave

        @self.jobs.task(name="work")
        def work() -> None: ...

        @self.jobs.task(name="hold")
        def hold() -> None:
            assert leave.wait(30)

        @self.jobs.task(name="one", concurrency={"limit": 1, "key": "of"}, redact=("secret",))
        def one(of: str, secret: str = "") -> None:
            assert leave.wait(30)

        @self.jobs.task(name="rated", rate={"limit": "1/h", "key": "of"})
        def rated(of: str) -> None: ...

        @self.jobs.task(name="fail", backoff={"base": "1h"})
        def fail() -> None:
            raise ValueError("no such shelf\nnor another")

    def store(self, task: str, args: t.Any = None, **options: t.Any) -> Job:
        """Enqueue a job."""
        return self.jobs.enqueue(task, args, **options)

    def change(self, job: Job, **fields: t.Any) -> Job:
        """Change what is stored of a job."""
        self.rows.update_one({"_id": job.id}, {"$set": fields})
        return job.refresh()

    @property
    def rows(self) -> t.Any:
        """The jobs as they are stored."""
        return self.jobs.database["henri_jobs"]

    def alive(self, runner: str = ALIVE, **facts: t.Any) -> None:
        """Write down a runner as an idle one does that serves every queue and knows all tasks."""
        own: Document = {"queues": "*", "threads": 2, "tasks": [*self.jobs.tasks], "role": "alone"}
        same: Document = {"app": "shop", "host": "host", "pid": 1}
        self.jobs.state.store.runners.write(runner, **same | own | facts)

    def start(self, threads: int) -> None:
        """Start a runner beside the test."""
        self.jobs.state.store.runners.remove(ALIVE)
        state = self.jobs.state
        tasks, post = self.jobs.tasks, Post(role=Role.ALONE)
        runner = Runner(self.app, tasks, state.store, state.settings, threads=threads, post=post)
        self.runners.append((runner, threading.Thread(target=runner.run, daemon=True)))
        self.runners[-1][1].start()

    def begun(self, job: Job) -> Job:
        """Wait until a job runs, and its runner is known to."""
        wait_until(lambda: job.refresh().state == "running", "the job's begin")
        wait_until(lambda: any(one.doing for one in self.jobs.runners()), "its runner")
        return job

    def perform(self) -> None:
        """Perform what is due, and leave an idle runner."""
        self.jobs.run_worker(once=True)
        self.alive()

    def move_server_clock(self, ms: int) -> None:
        """Have the server's clock differ from this process's."""

        def read() -> Reading:
            return Reading(server=round(time.time() * 1000) + ms, at=steady_seconds())

        self.jobs.state.store.clock.go_by(read, steady_seconds)

    def codes(self, job: Job) -> list[str]:
        """Return the codes of the reasons that are named."""
        return [reason.code for reason in self.jobs.explain(job.id)]

    def reason(self, job: Job) -> Reason:
        """Return the only reason."""
        [reason] = self.jobs.explain(job.id)
        return reason


@pytest.fixture
def shop(app: Flask, jobs: HenriJobs) -> Iterator[Shop]:
    shop = Shop(app, jobs)
    shop.alive()
    yield shop
    shop.leave.set()
    for runner, thread in shop.runners:
        runner.stop()
        thread.join(30)


def spoilt(shop: Shop) -> Job:
    return shop.change(shop.store("work"), attempts="1")


def not_due(shop: Shop) -> Job:
    return shop.store("work", wait="1h")


def clock(shop: Shop) -> Job:
    shop.move_server_clock(-HOUR)
    return shop.store("work", wait="30m")


def expired(shop: Shop) -> Job:
    job = shop.store("work", expires="1m")
    shop.move_server_clock(2 * 60_000)
    return job


def queue_paused(shop: Shop) -> Job:
    shop.jobs.pause(queue="low")
    return shop.store("work", queue="low")


def task_paused(shop: Shop) -> Job:
    shop.jobs.pause(name="work")
    return shop.store("work")


def tenant_paused(shop: Shop) -> Job:
    shop.jobs.pause(tenant="acme")
    return shop.store("work", tenant="acme")


def key_full(shop: Shop) -> Job:
    shop.start(threads=2)
    shop.begun(shop.store("one", {"of": "a"}))
    return shop.store("one", {"of": "a"})


def rate_spent(shop: Shop) -> Job:
    shop.store("rated", {"of": "a"})
    shop.perform()
    return shop.store("rated", {"of": "a"})


def no_runner(shop: Shop) -> Job:
    shop.alive(queues="high,low")
    shop.alive("host:2:suspects", role="suspects")
    return shop.store("work")


def task_unknown(shop: Shop) -> Job:
    shop.alive(tasks=["hold"])
    shop.alive("host:2:another", queues="high")
    return shop.store("work")


def all_busy(shop: Shop) -> Job:
    shop.start(threads=1)
    shop.begun(shop.store("hold"))
    shop.store("work", priority=-1)
    return shop.store("work")


def alone(shop: Shop) -> Job:
    shop.start(threads=2)
    shop.begun(shop.store("hold"))
    return shop.change(shop.store("work", wait="1h"), suspect=True, run_at=0)


def waits(shop: Shop) -> str:
    with shop.jobs.batch(callback="work") as batch:
        batch.add(shop.jobs.tasks["work"])
        batch.add(shop.jobs.tasks["fail"])
    return f"batch:{batch.id}"


def running(shop: Shop) -> Job:
    shop.start(threads=1)
    return shop.begun(shop.store("hold"))


def silent(shop: Shop) -> Job:
    now = shop.jobs.state.store.clock.now()
    gone = {"state": "running", "claimed_by": "host:9:gone", "claim_token": "t", "attempts": 1}
    times = {"started_at": now - 200_000, "heartbeat_at": now - 150_000}
    return shop.change(shop.store("work"), **gone, **times)


def done(shop: Shop) -> Job:
    job = shop.store("work")
    shop.perform()
    return job


def dead(shop: Shop) -> Job:
    job = shop.store("fail", max_attempts=1)
    shop.perform()
    return job


FAULTS: dict[str, Callable[[Shop], Job | str]] = {
    make.__name__: make
    for make in (
        *(spoilt, not_due, clock, expired, queue_paused, task_paused, tenant_paused, key_full),
        *(rate_spent, no_runner, task_unknown, all_busy, alone, waits, running, silent, done, dead),
    )
}


@pytest.mark.parametrize("code", REASONS)
def test_each_fault_is_named(shop: Shop, code: str) -> None:
    """X8: a fault is the one that is named, with the facts that its kind has, and in words."""
    job = FAULTS[code](shop)

    job_id = job if isinstance(job, str) else job.id
    reasons = {reason.code: reason for reason in shop.jobs.explain(job_id)}

    assert [*reasons] == (["not_due", "clock"] if code == "clock" else [code])
    assert set(reasons[code].facts) == set(REASONS[code].facts)
    assert "None" not in reasons[code].text
    assert "unknown time" not in reasons[code].text
    plain = reasons[code].to_dict()
    assert list(plain)[:3] == ["code", "text", "hint"]


def test_no_fault_is_named_where_there_is_none(shop: Shop) -> None:
    """X8: beside others that wait, run or are paused, what a runner will take has no reason."""
    shop.store("one", {"of": "a"})
    shop.store("rated", {"of": "a"})
    shop.store("work", wait="1h")
    shop.leave.set()
    shop.perform()
    shop.jobs.pause(queue="low")
    shop.jobs.pause(name="hold")
    shop.jobs.pause(tenant="zeta")
    shop.move_server_clock(60_000)
    jobs = [
        shop.store("work", expires="1h", tenant="acme"),
        shop.store("one", {"of": "a"}),
        shop.store("rated", {"of": "b"}),
        shop.change(shop.store("work"), suspect=True),
    ]

    assert [shop.codes(job) for job in jobs] == [[]] * 4


@pytest.mark.parametrize(
    ("fields", "spoilt"),
    [
        ({"name": None}, ["name"]),
        ({"queue": {"a": 1}, "run_at": "now"}, ["queue", "run_at"]),
        ({"attempts": 2**63 - 1}, ["attempts"]),
        ({"args": 7, "attempts": math.nan}, ["args", "attempts"]),
        ({"state": "running", "heartbeat_at": None}, ["heartbeat_at"]),
        ({"state": "running", "heartbeat_at": 1.0, "attempts": "1"}, ["attempts"]),
    ],
)
def test_a_spoilt_job(shop: Shop, fields: Document, spoilt: list[str]) -> None:
    """W1, X8: what other programs broke is named, and breaks nothing here."""
    job = shop.change(shop.store("work"), **fields)

    assert shop.reason(job).facts == {"fields": spoilt}


def test_every_reason_is_named(shop: Shop) -> None:
    """X8: one reason does not hide another."""
    shop.store("rated", {"of": "a"})
    shop.perform()
    shop.jobs.pause(queue="low")
    shop.jobs.pause(name="rated")
    shop.alive(queues="high")

    job = shop.store("rated", {"of": "a"}, queue="low")

    assert shop.codes(job) == ["queue_paused", "task_paused", "rate_spent", "no_runner"]


def test_who_holds_a_key(shop: Shop) -> None:
    """X8: the job, the runner, and since when; another key's job is held back by none of them."""
    shop.start(threads=2)
    holder = shop.begun(shop.store("one", {"of": "a"}))
    waiting = shop.store("one", {"of": "a"})

    reason = shop.reason(waiting)

    [held] = reason.facts["holders"]
    assert (held["job"], held["runner"]) == (holder.id, holder.claimed_by)
    assert abs((held["since"] - holder.claimed_at).total_seconds()) < 5
    assert (reason.facts["key"], reason.facts["limit"], reason.facts["held"]) == ("one:a", 1, 1)
    assert f"by {holder.claimed_by} for job {holder.id}" in reason.text
    assert isinstance(reason.to_dict()["holders"][0]["since"], str)


def test_another_tenants_job_is_not_told_of(shop: Shop) -> None:
    """T2: a tenant's code learns that a key is full, and not which other tenant's job has it."""
    shop.start(threads=2)
    shop.begun(shop.store("one", {"of": "a"}, tenant="zeta"))
    with shop.jobs.tenant("acme"):
        waiting = shop.store("one", {"of": "a"})

        reason = shop.reason(waiting)

    assert reason.facts["holders"][0]["job"] is None
    assert "another tenant's job" in reason.text
    assert shop.reason(waiting).facts["holders"][0]["job"] is not None


def test_of_another_tenant_there_is_no_job(shop: Shop) -> None:
    """T2, X8: an id of another tenant's is as unknown as one of nobody's."""
    job = shop.store("work", tenant="zeta")

    with shop.jobs.tenant("acme"), pytest.raises(UnknownJob, match=f"There is no job {job.id}"):
        shop.jobs.explain(job.id)
    with pytest.raises(UnknownJob, match="There is no job nope"):
        shop.jobs.explain("nope")


def test_redacted_values_are_not_told(shop: Shop) -> None:
    """X8: what a task redacts is in no reason, be it in the key."""
    secret = shop.store("one", {"of": "hunter2", "secret": "hunter2"})
    shop.start(threads=2)
    shop.begun(secret)

    reason = shop.reason(shop.store("one", {"of": "hunter2", "secret": "hunter2"}))

    assert reason.code == "key_full"
    assert "hunter2" not in str(reason.to_dict())


def test_a_job_from_before_its_limit(shop: Shop) -> None:
    """L5: it has no key, and waits for those of its group as a whole."""
    shop.start(threads=2)
    shop.begun(
        shop.change(shop.store("one", {"of": "a"}, wait="1h"), concurrency_key="one", run_at=0)
    )
    job = shop.store("one", {"of": "b"}, wait="1h")
    shop.rows.update_one({"_id": job.id}, {"$set": {"run_at": 0}, "$unset": {"concurrency_key": 1}})

    assert "key_full" in shop.codes(job)


def test_a_spent_rate_says_until_when(shop: Shop) -> None:
    """X4, X8: a window after the start that was the first."""
    reason = shop.reason(rate_spent(shop))

    [taken] = shop.jobs.database["henri_jobs_rates"].find({"taken_at": {"$gt": 0}})
    assert round(reason.facts["until"].timestamp() * 1000) == taken["taken_at"] + HOUR
    assert (reason.facts["bucket"], reason.facts["rate"]) == ("rated:a", "1/1h")


def test_a_callback_waits_for_its_batch(shop: Shop) -> None:
    """X8, B2: a callback that is not stored yet waits for the jobs that have not ended, which are
    named, and says where others may still be added; one that the batch has not is unknown."""
    work = shop.jobs.tasks["work"]
    batch = shop.jobs.batch(on_success="work")
    now, later = batch.add(work), batch.add(work.using(wait="1h"))
    key = f"batch:{batch.id}:success"

    [early] = shop.jobs.explain(key)
    batch.seal()
    shop.perform()
    [reason] = shop.jobs.explain(key)

    assert early.text.endswith("The batch is not sealed: others may be added.")
    assert set(early.facts["jobs"]) == {now.id, later.id}
    assert reason.text == f"It waits for 1 job of the batch {batch.id}: job {later.id}."
    assert reason.facts == {"batch": batch.id, "sealed": True, "left": 1, "jobs": [later.id]}
    for unknown in (f"batch:{batch.id}", f"batch:{batch.id}:failure", "batch:", "batch:nowhere"):
        with pytest.raises(UnknownJob):
            shop.jobs.explain(unknown)


def test_a_callback_that_is_stored_waits_for_none(shop: Shop) -> None:
    """X8, B2: once its batch has ended, a callback is a job like any other, and its key tells of
    it; one of another outcome never comes."""
    with shop.jobs.batch(callback="hold", on_failure="work") as batch:
        batch.add(shop.jobs.tasks["work"])
    shop.jobs.pause(name="hold")
    shop.perform()

    assert [one.code for one in shop.jobs.explain(f"batch:{batch.id}")] == ["task_paused"]
    with pytest.raises(UnknownJob):
        shop.jobs.explain(f"batch:{batch.id}:failure")


def test_a_retry_says_after_what(shop: Shop) -> None:
    """X8: which attempt failed, with what, and when the next is due."""
    job = shop.store("fail", max_attempts=3)
    shop.perform()

    reason = shop.reason(job.refresh())

    assert (reason.facts["until"], reason.facts["attempt"]) == (job.run_at, 1)
    assert reason.text.endswith("attempt 1 failed: ValueError: no such shelf.")


def test_a_plain_delay_has_no_attempt(shop: Shop) -> None:
    """X8: it was enqueued for later, and nothing failed."""
    reason = shop.reason(not_due(shop))

    assert (reason.facts["attempt"], reason.facts["error"]) == (None, None)
    assert "failed" not in reason.text


@pytest.mark.parametrize(("ms", "said"), [(-HOUR, "1h ahead of"), (HOUR, "1h behind")])
def test_which_way_the_clock_is_wrong(shop: Shop, ms: int, said: str) -> None:
    """C1: the server's decides, and this process is told how far it is from that."""
    shop.move_server_clock(ms)
    shop.alive()

    _, reason = shop.jobs.explain(shop.store("work", wait="30m").id)

    assert said in reason.text
    assert abs(reason.facts["ahead_ms"] + ms) < 5_000


def test_the_place_in_the_queue(shop: Shop) -> None:
    """Q2, X8: how many come first; other queues', later and undue ones do not count."""
    job = all_busy(shop)
    shop.store("work", queue="another", priority=-1)
    shop.store("work", priority=1)
    shop.store("work", priority=-1, wait="1h")

    reason = shop.reason(job)

    assert (reason.facts["in_front"], reason.facts["threads"]) == (1, 1)


def test_a_long_queue_is_not_counted_to_its_end(shop: Shop) -> None:
    """X8: beyond a thousand it is "more than 1000"."""
    job = all_busy(shop)
    rows = [{**job.row, "_id": f"0-{number}"} for number in range(MOST_IN_FRONT + 100)]
    shop.rows.insert_many(rows)

    reason = shop.reason(job)

    assert reason.facts["in_front"] == MOST_IN_FRONT + 1
    assert "in the queue default: more than 1000 jobs." in reason.text


def test_a_suspect_waits_for_those_in_the_way(shop: Shop) -> None:
    """W6, X8: they are named."""
    reason = shop.reason(alone(shop))

    [holder] = shop.jobs.list(state="running")
    assert reason.facts["jobs"] == [holder.id]
    assert f"It waits for job {holder.id}." in reason.text


def test_a_suspect_waits_for_a_process(shop: Shop) -> None:
    """W6, X8: where none but a supervisor's ordinary runners live, it is yet to be started."""
    shop.alive(role="jobs")
    job = shop.change(shop.store("work"), suspect=True)

    reason = shop.reason(job)
    assert (reason.code, reason.facts["jobs"]) == ("alone", [])

    shop.alive("host:2:suspects", role="suspects")
    assert shop.codes(job) == []


def test_a_cancel_that_is_under_way(shop: Shop) -> None:
    """W8, X8: a running job says that somebody asked for its end."""
    now = shop.jobs.state.store.clock.now()
    job = shop.change(silent(shop), heartbeat_at=now)
    assert shop.reason(job).facts["cancel_requested"] is None

    asked = shop.jobs.cancel(job.id)

    reason = shop.reason(job)
    assert (reason.code, reason.facts["cancel_requested"]) == ("running", asked.cancel_requested)
    assert "its end was asked for at" in reason.text


def test_a_silent_runner_has_its_time(shop: Shop) -> None:
    """Q4, X8: when its job is put back, at the latest."""
    job = silent(shop)

    reason = shop.reason(job)

    late = reason.facts["until"] - reason.facts["heartbeat_at"]
    assert late == shop.jobs.state.settings.stuck_after
