"""Limits on how many jobs run at once, as ``docs/how-to/limit-concurrency.md`` tells of them."""

from __future__ import annotations

import threading
import typing as t
from datetime import timedelta

import pytest

from flask_henri_jobs.clock import Reading
from flask_henri_jobs.errors import ConfigError

if t.TYPE_CHECKING:
    from flask_henri_jobs import HenriJobs


class Inside:
    """Counts who is inside at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self._lock = threading.Lock()
        self.two_are_inside = threading.Event()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now == 2:
                self.two_are_inside.set()
        # The first waits for a second, so that the test sees the limit reached.
        assert self.two_are_inside.wait(20)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def hold(jobs: HenriJobs, key: str, slots: int) -> None:
    """Have a runner elsewhere hold the first slots of a key."""
    wanted = [(key, slot, f"job {slot}") for slot in range(slots)]
    jobs.state.store.permits.take(wanted, runner="host:1:elsewhere", token="theirs")


def test_never_more_than_the_limit(jobs: HenriJobs) -> None:
    """L3, L6: two of twenty are inside at once, by either of a group's tasks; no permit is left."""
    inside = Inside()

    @jobs.task(name="build", concurrency={"limit": 2, "group": "reports"})
    def build() -> None:
        with inside:
            pass

    @jobs.task(name="mail", max_attempts=1, concurrency={"limit": 2, "group": "reports"})
    def mail() -> None:
        with inside:
            raise ValueError

    for _ in range(10):
        build.delay()
        mail.delay()
    jobs.run_worker(once=True, threads=8)

    assert inside.most == 2
    assert (jobs.count(state="done"), jobs.count(state="dead")) == (10, 10)
    assert [(status.group, status.limit, status.held) for status in jobs.limits()] == [
        ("reports", 2, ())
    ]


def test_a_full_key_holds_back_nobody_else(jobs: HenriJobs) -> None:
    """L4: a backlog of a full key leaves every other key, and what is unlimited, to be done."""

    @jobs.task(name="load", concurrency={"limit": 1, "key": "account"})
    def load(account: int) -> None: ...

    @jobs.task(name="free")
    def free() -> None: ...

    hold(jobs, "load:7", 1)
    load.delay_many({"account": 7} for _ in range(200))
    load.delay_many({"account": account} for account in range(5))
    free.delay()
    jobs.run_worker(once=True)

    assert {job.concurrency_key for job in jobs.list(state="pending", limit=1000)} == {"load:7"}
    assert jobs.count(state="done") == 6


@pytest.mark.parametrize(("inside", "done"), [(4, 0), (2, 0), (1, 3)])
def test_lowered_limit(jobs: HenriJobs, inside: int, done: int) -> None:
    """L1: after a limit went from 4 to 2, none is taken until fewer than 2 are inside."""

    @jobs.task(name="load", concurrency=2)
    def load() -> None: ...

    hold(jobs, "load", inside)
    load.delay_many({} for _ in range(3))
    jobs.run_worker(once=True)

    assert jobs.count(state="done") == done


def test_those_above_a_lowered_limit_count(jobs: HenriJobs) -> None:
    """L1: who holds a slot above the new limit is inside all the same."""

    @jobs.task(name="load", concurrency=2)
    def load() -> None: ...

    wanted = [("load", slot, f"job {slot}") for slot in (2, 3)]
    jobs.state.store.permits.take(wanted, runner="host:1:elsewhere", token="theirs")
    load.delay()
    jobs.run_worker(once=True)

    assert jobs.count(state="pending") == 1


def test_jobs_that_are_older_than_the_limit(jobs: HenriJobs) -> None:
    """L5: a waiting job without a key counts to the group's own bucket."""
    old = jobs.enqueue("load", {"account": 7})

    @jobs.task(name="load", concurrency={"limit": 1, "key": "account"})
    def load(account: int) -> None: ...

    hold(jobs, "load", 1)
    jobs.run_worker(once=True)

    assert (old.refresh().state, old.concurrency_key) == ("pending", "load")


def test_limit_that_was_removed(jobs: HenriJobs) -> None:
    """L1: a job whose group has no limit any more needs no permit."""

    @jobs.task(name="load")
    def load() -> None: ...

    old = load.delay()
    jobs.database["henri_jobs"].update_one({}, {"$set": {"concurrency_key": "load:7"}})
    hold(jobs, "load:7", 1)
    jobs.run_worker(once=True)

    assert old.refresh().state == "done"


def test_job_of_no_key(jobs: HenriJobs) -> None:
    """L1: where the callable returns None, the job counts to the group as a whole."""

    @jobs.task(name="load", concurrency={"limit": 1, "key": lambda account: account or None})
    def load(account: int) -> None: ...

    assert load.delay(0).concurrency_key == "load"
    assert load.delay(7).concurrency_key == load.delay(account=7).concurrency_key == "load:7"


def test_tasks_that_disagree(jobs: HenriJobs) -> None:
    """L1: tasks of one group have one limit, or the application does not start."""
    jobs.task(name="build", concurrency={"limit": 2, "group": "reports"})(print)

    with pytest.raises(ConfigError, match=r"build and mail are of one group and disagree"):
        jobs.task(name="mail", concurrency={"limit": 3, "group": "reports"})(print)


def test_permits_of_a_host_that_is_gone(jobs: HenriJobs) -> None:
    """L3: a permit is free again when its holder was silent for ``stuck_after``, and not before."""
    store, passed = jobs.state.store, [0.0]
    began = store.clock.now()
    store.clock.go_by(lambda: Reading(server=began, at=0.0, member="one"), lambda: passed[0])
    store.clock.renew()
    hold(jobs, "load", 1)
    stuck_after = timedelta(minutes=5)

    passed[0] = 299.0
    assert store.permits.sweep(stuck_after) == []
    passed[0] = 301.0
    assert [permit.key for permit in store.permits.sweep(stuck_after)] == ["load"]
