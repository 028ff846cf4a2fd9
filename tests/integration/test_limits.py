"""Limited tasks in a whole worker."""

from __future__ import annotations

import threading
import typing as t

import pytest

from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from flask_henri_jobs import HenriJobs
    from integration.conftest import MakeApp


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    """An app whose worker would not look again by itself within the test."""
    return make_app(HENRI_JOBS_POLL_INTERVAL="5m", HENRI_JOBS_STUCK_AFTER="1h")


def test_next_of_a_key_begins_at_once(jobs: HenriJobs, start: Callable[[], None]) -> None:
    """L6: when a permit is given back, the next job of its key begins without a poll."""

    @jobs.task(name="work", concurrency={"limit": 1, "key": "account"})
    def work(account: int) -> None: ...

    work.delay_many([{"account": number % 2} for number in range(30)])

    start()

    wait_until(lambda: jobs.count(state="done") == 30, "all of them")
    wait_until(lambda: jobs.limits()[0].held == (), "the last permits to be given back")


def test_one_at_a_time_in_order(jobs: HenriJobs) -> None:
    """L1, Q2: of a key with one slot the jobs are performed in order, one after the other."""
    inside, together = [0, 0], [0, 0]
    order: tuple[list[int], list[int]] = ([], [])
    lock = threading.Lock()

    @jobs.task(name="work", concurrency={"limit": 1, "key": "account"})
    def work(account: int, number: int) -> None:
        with lock:
            inside[account] += 1
            together[account] = max(together[account], inside[account])
            order[account].append(number)
        threading.Event().wait(0.001)
        with lock:
            inside[account] -= 1

    work.delay_many([{"account": number % 2, "number": number} for number in range(60)])

    jobs.run_worker(once=True, threads=4)

    assert together == [1, 1]
    assert order == (list(range(0, 60, 2)), list(range(1, 60, 2)))
