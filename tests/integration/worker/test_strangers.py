"""Jobs of tasks that a runner does not know, as in a rolling deploy or beside a henri app."""

from __future__ import annotations

import typing as t

import pytest
from pymongo.errors import OperationFailure

from faults import CLOSED, LOST_REPLY, failing
from flask_henri_jobs import HenriJobs, StoreUnavailable
from flask_henri_jobs.clock import Reading
from flask_henri_jobs.store.documents import new_row
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.strangers import (
    FIRST_WAIT_MS,
    LEFT_ALONE_MS,
    LONGEST_WAIT_MS,
    Strangers,
)
from rows import START, Now

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.store import Store

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def now(store: Store) -> Now:
    """The server's time, which the test moves."""
    now = Now()
    store.clock.go_by(lambda: Reading(server=START, at=0.0), lambda: (now.moment - START) / 1000)
    return now


@pytest.fixture
def work_off(jobs: HenriJobs) -> Callable[[], None]:
    """Run a worker until nothing is due that it would take."""
    return lambda: jobs.run_worker(once=True, threads=2)


def stranger(number: int = 0, *, due: int = START, name: str = "elsewhere") -> Document:
    """Return the row of a job that was enqueued by an application with other tasks."""
    return new_row(
        id=f"{name}-{number:03}",
        name=name,
        args="{}",
        now=due,
        run_at=due,
        queue="default",
        priority=0,
        max_attempts=5,
    )


def test_left_alone_and_then_sent_away(
    stored: Collection[Document],
    now: Now,
    work_off: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Q6, A12: An unknown job is untouched for 30 s after it fell due; then it goes back for a
    minute, with its attempt restored, and no word of it in its history."""
    row = stranger()
    stored.insert_one(dict(row))

    for passed in (0, LEFT_ALONE_MS - 1):
        now.moment = START + passed
        work_off()
        assert stored.find_one() == row
    assert "No task is named" not in caplog.text

    now.moment = START + LEFT_ALONE_MS
    work_off()

    del row["claim_token"]
    later = {"run_at": now() + FIRST_WAIT_MS, "updated_at": now()}
    assert stored.find_one() == row | later
    assert caplog.text.count("No task is named 'elsewhere' here") == 1


def test_said_once_for_each_name(
    stored: Collection[Document],
    now: Now,
    work_off: Callable[[], None],
    jobs: HenriJobs,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Q6: However many jobs of a task are unknown, it is said once by each runner."""
    stored.insert_many([stranger(n) for n in range(5)])
    stored.insert_many([stranger(n, name="nowhere") for n in range(5)])
    now.advance(ms=LEFT_ALONE_MS)

    work_off()

    assert caplog.text.count("No task is named 'elsewhere' here") == 1
    assert caplog.text.count("No task is named 'nowhere' here") == 1
    assert stored.distinct("run_at") == [now() + FIRST_WAIT_MS]
    assert stored.distinct("attempts") == [0]


@pytest.mark.parametrize("old", [False, True])
def test_a_known_job_behind_strangers(
    stored: Collection[Document],
    now: Now,
    work_off: Callable[[], None],
    jobs: HenriJobs,
    old: bool,
) -> None:
    """Q6, A12: A known job behind 51 unknown ones is performed, whether they are left alone yet or
    sent away."""
    performed: list[bool] = []

    @jobs.task(name="known")
    def known() -> None:
        performed.append(True)

    stored.insert_many([stranger(n) for n in range(51)])
    now.advance(ms=LEFT_ALONE_MS if old else 1)
    known.delay()

    work_off()

    assert performed == [True]
    away = now() + FIRST_WAIT_MS if old else START
    assert stored.count_documents({"run_at": away, "state": "pending", "attempts": 0}) == 51


def test_a_task_that_becomes_known(
    stored: Collection[Document], now: Now, work_off: Callable[[], None], jobs: HenriJobs
) -> None:
    """Q6: A job that was sent away is performed by a runner that knows it, as its first attempt."""
    stored.insert_one(stranger())
    now.advance(ms=LEFT_ALONE_MS)
    work_off()

    @jobs.task(name="elsewhere")
    def elsewhere() -> None: ...

    now.advance(ms=FIRST_WAIT_MS)
    work_off()

    row = stored.find_one()
    assert row is not None
    assert (row["state"], row["attempts"], row["history"]) == ("done", 1, "[]")


@pytest.fixture
def strangers(jobs: HenriJobs, now: Now) -> Strangers:
    return Strangers(jobs.tasks, now)


def sent_away(strangers: Strangers, store: Store, now: Now) -> int:
    """Claim what is due, and send it away. Return for how long, in milliseconds."""
    store.claims.look_again()
    claimed = store.claims.take(Wish(runner="host:1:us", at_most=9, wanted=strangers.are_wanted))
    assert strangers.taken_from(claimed) == []
    strangers.send_away(store.claims)
    (due,) = store.claims.jobs.distinct("run_at")
    return int(due) - now()


def test_waits_grow(
    strangers: Strangers, store: Store, stored: Collection[Document], now: Now
) -> None:
    """Q6: Each time it comes back unknown a job waits twice as long, an hour at the most."""
    stored.insert_one(stranger())
    waits: list[int] = []
    for _ in range(9):
        now.advance(ms=LEFT_ALONE_MS + (waits[-1] if waits else 0))
        waits.append(sent_away(strangers, store, now))

    assert waits == [min(FIRST_WAIT_MS * 2**n, LONGEST_WAIT_MS) for n in range(9)]
    assert stored.distinct("attempts") == [0]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (CLOSED, StoreUnavailable),
        (LOST_REPLY, StoreUnavailable),
        ({"errorCode": 1}, OperationFailure),
    ],
    ids=["closed", "lost reply", "refused"],
)
def test_sending_away_that_fails(
    strangers: Strangers,
    store: Store,
    stored: Collection[Document],
    client: MongoClient[Document],
    now: Now,
    how: Document,
    error: type[Exception],
) -> None:
    """Q6, W10: Strangers that cannot be sent away are kept, and sent with the next, once."""
    stored.insert_one(stranger())
    now.advance(ms=LEFT_ALONE_MS)
    claimed = store.claims.take(Wish(runner="host:1:us", at_most=9))
    assert strangers.taken_from(claimed) == []

    with failing(client, "update", times=1, **how), pytest.raises(error):
        strangers.send_away(store.claims)
    strangers.send_away(store.claims)

    row = stored.find_one()
    assert row is not None
    assert (row["state"], row["attempts"], row["run_at"]) == ("pending", 0, now() + FIRST_WAIT_MS)
