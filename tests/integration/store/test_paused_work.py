"""What is paused costs a claim next to nothing, however much of it stands in front (X4, B2)."""

from __future__ import annotations

import typing as t

import pytest

from claiming import claims_on
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store.candidates import REMEMBERED_SECONDS
from flask_henri_jobs.store.documents import new_row
from flask_henri_jobs.store.pauses import KNOWN_SECONDS
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from flask_henri_jobs.store.claims import Claims
    from plans import Plan, Recorder
    from rows import Now

PAUSED = 50_000
LIMITS = {
    "held": Lane("both", 2, None),
    "other": Lane("both", 2, None),
    "alone": Lane("alone", 2, None),
}


class Steady:
    """Steady seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def steady() -> Steady:
    return Steady()


@pytest.fixture
def claims(jobs: Collection[Document], now: Now, steady: Steady) -> Claims:
    claims = claims_on(jobs, now)
    claims.candidates.steady = claims.limited.keys.steady = claims.pauses.steady = steady
    return claims


@pytest.fixture
def backlog(jobs: Collection[Document], now: Now) -> list[str]:
    """50,000 jobs in front that a test pauses, and ten others. Return the ids of these."""
    rows = [waiting(f"{number:05}", now(), **HELD) for number in range(PAUSED)]
    others = [waiting(f"other-{number}", now(), name="other") for number in range(10)]
    jobs.insert_many([*rows, *others], ordered=False)
    return [row["_id"] for row in others]


HELD: dict[str, t.Any] = {"name": "held", "tenant": "acme"}


def waiting(id: str, now: int, **fields: t.Any) -> Document:
    known = {"queue": "default", "priority": 0, "run_at": now - 1000, **fields}
    return new_row(id=id, args="{}", now=now, max_attempts=5, **known)


def taken(claims: Claims, at_most: int = 1) -> list[str]:
    wish = Wish(runner="me", at_most=at_most, lanes=LIMITS)
    return [job.id for job in claims.take(wish)]


def unlimited(claims: Claims) -> list[str]:
    return [job.id for job in claims.take(Wish(runner="me", at_most=1))]


def plans_of(recorder: Recorder, database: Database[Document]) -> list[Plan]:
    """Return the plans of what was asked of the jobs."""
    return [plan for plan in recorder.plans(database) if "henri_jobs" in plan.command.values()]


@pytest.mark.parametrize(
    ("kind", "name"), [("queue", "default"), ("task", "held"), ("tenant", "acme")]
)
def test_paused_jobs_in_front_cost_once_in_some_seconds(
    jobs: Collection[Document],
    database: Database[Document],
    backlog: list[str],
    claims: Claims,
    recorder: Recorder,
    kind: str,
    name: str,
) -> None:
    """X4, B2: With 50,000 paused jobs in front a claim reads a handful of documents and sorts
    nothing; a task or tenant that is paused is passed by once. Those of a paused queue are never
    read.
    """
    jobs.update_many({"name": "other"}, {"$set": {"queue": "free"}})
    claims.pauses.add(kind, name)
    if kind != "queue":
        assert unlimited(claims) == backlog[:1]
        del backlog[0]
    for expected in backlog[:3]:
        recorder.commands.clear()
        assert unlimited(claims) == [expected]
        plans = plans_of(recorder, database)
        assert sum(plan.documents for plan in plans) <= 10
        for plan in plans:
            assert not {"SORT", "COLLSCAN"} & set(plan.stages), plan


@pytest.mark.parametrize(("kind", "name"), [("task", "held"), ("tenant", "acme")])
def test_paused_limited_jobs_in_front_cost_once_in_some_seconds(
    jobs: Collection[Document],
    database: Database[Document],
    backlog: list[str],
    claims: Claims,
    recorder: Recorder,
    kind: str,
    name: str,
) -> None:
    """X4, L4, B2: The same of one key that 50,000 paused jobs share with others: these are taken
    from behind them, in order and by their permits.
    """
    jobs.update_many({}, {"$set": {"concurrency_key": "both"}})
    claims.pauses.add(kind, name)
    first = taken(claims)
    assert first == backlog[:1]
    for expected in backlog[1:4]:
        claims.limited.permits.release_all_of("me")
        claims.limited.keys.steady.seconds += 1.0  # type: ignore[attr-defined]
        recorder.commands.clear()
        assert taken(claims) == [expected]
        plans = plans_of(recorder, database)
        assert sum(plan.documents for plan in plans) <= 40
        for plan in plans:
            assert not {"SORT", "COLLSCAN"} & set(plan.stages), plan


def test_key_of_paused_tasks_alone_is_not_read(
    jobs: Collection[Document],
    database: Database[Document],
    now: Now,
    claims: Claims,
    recorder: Recorder,
) -> None:
    """X4: Where every task of a group is paused, none of its thousand keys is looked into."""
    jobs.insert_many(
        waiting(f"{number:05}", now(), name="alone", concurrency_key=f"alone:{number % 1000}")
        for number in range(5000)
    )
    jobs.insert_one(waiting("z", now(), name="other", concurrency_key="both"))
    claims.pauses.add("task", "alone")
    recorder.commands.clear()

    assert taken(claims, at_most=5) == ["z"]

    plans = plans_of(recorder, database)
    assert sum(plan.documents for plan in plans) <= 5


def test_key_with_a_paused_head_holds_back_no_other_job_of_it(
    jobs: Collection[Document], now: Now, claims: Claims
) -> None:
    """X4: Between paused jobs the others are found, one after the other and several at once."""
    for number in range(6):
        name = "held" if number % 2 == 0 else "other"
        jobs.insert_one(waiting(f"{number}", now(), name=name, concurrency_key="both"))
    claims.pauses.add("task", "held")

    assert taken(claims, at_most=5) == ["1", "3"]
    claims.limited.permits.release_all_of("me")
    claims.look_again()
    assert taken(claims, at_most=5) == ["5"]


def test_resumed_jobs_are_seen_at_once(
    jobs: Collection[Document], now: Now, claims: Claims, steady: Steady
) -> None:
    """X4: What was stepped over is looked at again when it is resumed, and not seconds later."""
    jobs.insert_many(waiting(f"{number:05}", now(), name="held") for number in range(1200))
    jobs.insert_one(waiting("z", now(), name="other"))
    claims.pauses.add("task", "held")
    assert unlimited(claims) == ["z"]

    claims.pauses.pauses.delete_many({})
    steady.seconds += KNOWN_SECONDS
    assert KNOWN_SECONDS < REMEMBERED_SECONDS
    assert unlimited(claims) == ["00000"]


def test_pause_is_known_in_time(
    jobs: Collection[Document], now: Now, claims: Claims, steady: Steady, recorder: Recorder
) -> None:
    """X4: The pauses are read twice a second at most while nothing is paused."""
    for _ in range(5):
        claims.pauses.for_a_claim()
        claims.pauses.for_a_start()
    asked = [one for one in recorder.commands if "henri_jobs_pauses" in one.values()]
    assert len(asked) == 1

    claims.pauses.pauses.insert_one(
        {"_id": "task:held", "kind": "task", "name": "held", "paused_at": now()}
    )
    assert not claims.pauses.for_a_start()
    steady.seconds += KNOWN_SECONDS
    assert claims.pauses.for_a_start().tasks == {"held"}
