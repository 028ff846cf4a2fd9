"""Real workers on several queues."""

from __future__ import annotations

import threading
import typing as t
from collections import Counter
from dataclasses import replace

import pytest
from flask import Flask

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.queues import QueueSelection, QueueTurns
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.gate import Gate, Leave

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask_henri_jobs.job import Job
    from flask_henri_jobs.queues import QueuesOption


class Shop:
    """An app whose one task notes the queue in which each of its jobs was."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.jobs = jobs = HenriJobs(app)
        self.starts: list[str] = []
        self._lock = threading.Lock()
        self._called_after: dict[int, Callable[[], object]] = {}

        @jobs.task(name="note")
        def note(what: str) -> None:
            self.note(what)

        @jobs.task(name="note_limited", concurrency={"limit": 1, "key": "account"})
        def note_limited(what: str, account: int) -> None:
            self.note(what)

        self.task = note
        self.limited = note_limited

    def call_after(self, starts: int, function: Callable[[], object]) -> None:
        """Have the start of that number call a function."""
        self._called_after[starts] = function

    def note(self, what: str) -> None:
        with self._lock:
            self.starts.append(what)
            number = len(self.starts)
        if function := self._called_after.get(number):
            function()

    def work(self, queues: QueuesOption | None = None, threads: int = 1) -> list[str]:
        """Perform what there is, and return what was noted, in order."""
        self.starts = []
        self.jobs.run_worker(once=True, queues=queues, threads=threads)
        return self.starts


@pytest.fixture
def shop(mongo_uri: str, database_name: str) -> Iterator[Shop]:
    app = Flask("shop")
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    shop = Shop(app)
    with app.app_context():
        yield shop
    shop.jobs.state_of(app).close()


def enqueue(shop: Shop, **how_many: int) -> None:
    """Store so many jobs in each of the queues that are named."""
    for queue, count in how_many.items():
        shop.task.using(queue=queue).delay_many([{"what": queue}] * count)


def fewest(what: str, starts: list[str], window: int) -> int:
    """Return how often something is among so many consecutive starts, at the least."""
    return min(Counter(starts[at : at + window])[what] for at in range(len(starts) - window + 1))


@pytest.mark.parametrize("queues", [None, "mail,low,other"])
def test_order_counts_over_all_queues(shop: Shop, queues: str | None) -> None:
    """Q2: jobs go by priority and then by time, whatever queue they are in."""
    for what, queue, priority in [
        ("third", "mail", 0),
        ("fourth", "low", 0),
        ("second", "mail", -5),
        ("first", "other", -10),
        ("fifth", "mail", 5),
    ]:
        shop.task.using(queue=queue, priority=priority).delay(what)

    assert shop.work(queues) == ["first", "second", "third", "fourth", "fifth"]


@pytest.mark.parametrize("queues", ["mail,low", ["low", "mail"], "mail:4,low:1"])
def test_other_queues_are_left_alone(shop: Shop, queues: QueuesOption) -> None:
    """Q2: a worker of given queues never touches the jobs of others."""
    enqueue(shop, mail=3, low=2, other=4)
    before = [job.row for job in shop.jobs.list(queue="other")]

    assert Counter(shop.work(queues)) == {"mail": 3, "low": 2}

    assert [job.row for job in shop.jobs.list(queue="other")] == before


def test_setting_says_the_queues(mongo_uri: str, database_name: str) -> None:
    """Q2: what HENRI_JOBS_QUEUES says holds for a worker that is told nothing."""
    app = Flask("shop")
    app.config.update(
        HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name, HENRI_JOBS_QUEUES="mail:4,low"
    )
    shop = Shop(app)
    with app.app_context():
        enqueue(shop, mail=3, low=2, other=4)

        assert Counter(shop.work()) == {"mail": 3, "low": 2}
        assert shop.jobs.count(state="pending") == 4
        assert Counter(shop.work("*")) == {"other": 4}
    shop.jobs.state_of(app).close()


@pytest.mark.parametrize(
    ("threads", "mail", "low"),
    [
        (1, 250, 40),
        pytest.param(5, 10_000, 100, marks=pytest.mark.faults),
        pytest.param(16, 2_000, 60, marks=pytest.mark.faults),
    ],
)
def test_weights_share_out_the_starts(shop: Shop, threads: int, mail: int, low: int) -> None:
    """Q2: beside a deep backlog at mail:4,*:1, one of any 10 consecutive starts is low."""
    enqueue(shop, mail=mail, low=low)
    # What shows nothing any more is not performed.
    shop.call_after(6 * low, lambda: shop.jobs.delete_all(queue="mail"))

    starts = shop.work("mail:4,*:1", threads)

    last = len(starts) - starts[::-1].index("low")
    assert starts.count("low") == low
    assert fewest("low", starts[:last], 10) >= 1
    assert last <= 5 * low + 10


def test_shares_without_work_hold_up_nobody(shop: Shop) -> None:
    """Q2: a share that has no due work gives its turns to the others."""
    enqueue(shop, low=30, other=10)

    assert Counter(shop.work("mail:100,*:1,other:1", threads=3)) == {"low": 30, "other": 10}


def test_a_job_that_is_refused_has_had_no_turn(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q2, X4: where a claimed job may not begin after all, its queue's turn is given back."""
    leave_for, refused = Gate.leave_for, [Leave.NOT_NOW]

    def refuse_the_first(gate: Gate, job: Job) -> Leave:
        return refused.pop() if refused else leave_for(gate, job)

    monkeypatch.setattr(Gate, "leave_for", refuse_the_first)
    enqueue(shop, mail=8, low=8)

    assert shop.work("mail:1,low:1") == ["mail", "low"] * 8
    assert {(job.state, job.attempts) for job in shop.jobs.list()} == {("done", 1)}


def test_limited_work_has_its_share(shop: Shop) -> None:
    """Q2, L4: a share whose jobs are limited, and whose keys are free, gets its turns."""
    enqueue(shop, mail=400)
    shop.limited.using(queue="low").delay_many(
        [{"what": "low", "account": number} for number in range(60)]
    )
    shop.limited.using(queue="mail").delay_many([{"what": "mail", "account": 99}] * 20)

    starts = shop.work("mail:4,*:1", threads=4)

    assert Counter(starts) == {"mail": 420, "low": 60}
    last = len(starts) - starts[::-1].index("low")
    assert fewest("low", starts[:last], 10) >= 1


@pytest.mark.parametrize(
    ("before", "queues", "taken"),
    [
        (0, "*", []),
        (2, "*", ["mail"] * 2),
        (5, "*", ["mail"] * 5),
        (0, "mail:4,*:1", ["mail"] * 2),
    ],
)
def test_limited_work_ends_what_is_claimed_ahead(
    shop: Shop, before: int, queues: str, taken: list[str]
) -> None:
    """Q2, W4: where no thread is free, no job is claimed ahead of a limited one that is next."""
    enqueue(shop, mail=before)
    shop.limited.using(queue="low").delay("low", account=1)
    enqueue(shop, mail=5)
    turns = QueueTurns(QueueSelection.read(queues, "queues"))
    wish = Wish(
        runner="host:1:runner", at_most=0, ahead=5, queues=turns, lanes=shop.jobs.tasks.lanes()
    )
    claims = shop.jobs.state.store.claims

    assert [job.queue for job in claims.take(wish)] == taken
    if len(taken) < 5:
        assert claims.take(wish) == []
        assert [job.queue for job in claims.take(replace(wish, at_most=1))][:1] == ["low"]
