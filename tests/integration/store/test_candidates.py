"""Reading the jobs that are next, in order, at a flat cost."""

from __future__ import annotations

import random
import typing as t

import pytest

from claiming import claims_on, turns
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store.candidates import (
    CLAIM,
    MOST_QUEUES,
    MOST_STEPPED_OVER,
    QUEUES_SECONDS,
    REMEMBERED_SECONDS,
    Candidates,
)
from flask_henri_jobs.store.documents import new_row
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from plans import Recorder
    from rows import Now

LIMITED, FUTURE, FREE = 19_000, 500, 500


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
def candidates(jobs: Collection[Document], steady: Steady) -> Candidates:
    return Candidates(jobs, steady)


def waiting(id: str, now: int, **fields: t.Any) -> Document:
    known = {"queue": "default", "priority": 0, "run_at": now, "name": "known", **fields}
    return new_row(id=id, args="{}", now=now, max_attempts=5, **known)


def every(_: Document) -> bool:
    return True


def is_known(row: Document) -> bool:
    return bool(row["name"] == "known")


def ids(rows: list[Document]) -> list[str]:
    return [row["_id"] for row in rows]


def in_order(rows: list[Document]) -> list[str]:
    return ids(sorted(rows, key=lambda row: (row["priority"], row["run_at"], row["_id"])))


def backlog(queues: int, priorities: int, now: int) -> list[Document]:
    """Return 20,000 waiting jobs over some queues, of which 500 are free and due."""
    rows = []
    for number in range(LIMITED + FUTURE + FREE):
        row = waiting(
            f"{number:05}",
            now - 20_000 + number,
            # Two strides without a common divisor: each queue has every priority.
            queue=f"queue-{number % queues:03}",
            priority=number * 7 % priorities,
        )
        if number < LIMITED:
            row |= {"name": "limited", "concurrency_key": f"key:{number % 50}"}
        elif number < LIMITED + FUTURE:
            row["run_at"] = now + 1 + number
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("queues", "priorities"), [(1, 1), (1, 100), (5, 1), (5, 100), (70, 100), (130, 1)]
)
def test_claim_has_a_flat_cost(
    jobs: Collection[Document],
    database: Database[Document],
    candidates: Candidates,
    now: Now,
    recorder: Recorder,
    queues: int,
    priorities: int,
) -> None:
    """W1, B1: Over 20,000 jobs, 19,000 of them limited and 500 not due, a claim of 50 returns the
    first 50, reads at most 100 documents, and sorts nothing.

    Of more queues than one query takes, the server looks at one document each besides.
    """
    rows = backlog(queues, priorities, now())
    random.Random(7).shuffle(rows)
    jobs.insert_many(rows, ordered=False)
    free = [row for row in rows if "concurrency_key" not in row and row["run_at"] <= now()]
    expected = in_order(free)
    claims = claims_on(jobs, now, candidates)
    lanes = {"limited": Lane("key", 1, None)}
    database["henri_jobs_limits"].insert_many(
        {"_id": f"key:{number}#0", "limit_key": f"key:{number}", "slot": 0} for number in range(50)
    )
    besides = queues if queues > MOST_QUEUES else 0
    for named in ([f"queue-{number:03}" for number in range(queues)], None):
        recorder.commands.clear()

        wish = Wish(runner="me", queues=turns(named), at_most=50, lanes=lanes)
        claimed = claims.take(wish)

        assert [job.id for job in claimed] == expected[:50]
        del expected[:50]
        # The permits are few: as many as threads work on limited jobs.
        plans = [plan for plan in recorder.plans(database) if "henri_jobs" in plan.command.values()]
        asked = [next(iter(plan.command)) for plan in plans]
        assert asked[-1] == "update"
        assert set(asked[:-1]) <= {"find", "distinct", "aggregate"}
        assert sum(plan.documents for plan in plans[:-1]) <= 100 + besides
        assert plans[-1].documents == 50
        for plan in plans:
            assert not {"SORT", "COLLSCAN"} & set(plan.stages), plan


def test_cost_of_one_queue_among_many(
    jobs: Collection[Document],
    database: Database[Document],
    candidates: Candidates,
    now: Now,
    recorder: Recorder,
) -> None:
    """W1: Jobs of other queues cost a claim nothing."""
    jobs.insert_many([waiting(f"other-{n}", now() - 9, queue="other") for n in range(2000)])
    jobs.insert_many([waiting(f"{n:03}", now()) for n in range(20)])
    recorder.commands.clear()

    assert len(candidates.read(["default"], 10, now(), every)) == 10

    (plan,) = recorder.plans(database)
    assert plan.documents == 10


@pytest.mark.parametrize("queues", [1, 3, 70, 200])
def test_order_over_queues(
    jobs: Collection[Document], candidates: Candidates, now: Now, queues: int
) -> None:
    """Q2: The order is priority, then ``run_at``, then id, over all queues that are taken from."""
    drawn = random.Random(queues)
    rows = [
        waiting(
            f"{drawn.getrandbits(40):010x}",
            now() - drawn.randrange(3),
            queue=f"queue-{drawn.randrange(queues)}",
            priority=drawn.randrange(-1, 2),
        )
        for _ in range(600)
    ]
    jobs.insert_many(rows)
    names = sorted({row["queue"] for row in rows})

    for named in (names, None):
        assert ids(candidates.read(named, 600, now(), every)) == in_order(rows)
        assert ids(candidates.read(named, 45, now(), every)) == in_order(rows)[:45]
        candidates.look_again()


def test_what_is_not_due(jobs: Collection[Document], candidates: Candidates, now: Now) -> None:
    """Q2: A job is never taken before its ``run_at``, and hides none behind it."""
    jobs.insert_many(
        [
            waiting("urgent, later", now() + 1, priority=-9),
            waiting("now", now()),
            waiting("later", now() + 1),
        ]
    )

    assert ids(candidates.read(None, 10, now(), every)) == ["now"]
    now.advance(ms=1)
    assert ids(candidates.read(None, 10, now(), every)) == ["urgent, later", "now", "later"]


@pytest.mark.parametrize("backlog", [0, 3])
def test_none_at_all(
    jobs: Collection[Document], candidates: Candidates, now: Now, recorder: Recorder, backlog: int
) -> None:
    """W4: A runner whose jobs have just become long asks for none, and nothing is read for it."""
    jobs.insert_many([waiting(str(n), now()) for n in range(backlog)] or [waiting("a", now() + 1)])
    recorder.commands.clear()

    assert candidates.read(["default"], 0, now(), every) == []
    assert recorder.commands == []


def test_no_queue(candidates: Candidates, now: Now) -> None:
    """A claim from no queue, or over queues that have nothing, takes nothing."""
    assert candidates.read(None, 10, now(), every) == []
    assert candidates.read([], 10, now(), every) == []
    assert candidates.read(["empty"], 10, now(), every) == []


def test_queues_are_known_for_a_second(
    jobs: Collection[Document],
    database: Database[Document],
    candidates: Candidates,
    now: Now,
    steady: Steady,
    recorder: Recorder,
) -> None:
    """B1: Which queues have work is read from the index, once a second at most."""
    jobs.insert_many([waiting(f"{n}", now(), queue=f"queue-{n % 3}") for n in range(300)])
    jobs.insert_one(waiting("ended", now(), queue="ended") | {"state": "done"})
    recorder.commands.clear()

    assert candidates.queues_with_work() == ("queue-0", "queue-1", "queue-2")
    candidates.queues_with_work()

    (plan,) = recorder.plans(database)
    assert "DISTINCT_SCAN" in plan.stages
    assert plan.keys < 10
    jobs.insert_one(waiting("new", now(), queue="new"))
    assert "new" not in candidates.queues_with_work()
    steady.seconds += QUEUES_SECONDS
    assert "new" in candidates.queues_with_work()


def test_looking_again_sees_a_new_queue(
    jobs: Collection[Document], candidates: Candidates, now: Now
) -> None:
    """A look that must miss nothing forgets which queues had work."""
    assert candidates.read(None, 1, now(), every) == []
    jobs.insert_one(waiting("a", now()))

    candidates.look_again()

    assert ids(candidates.read(None, 1, now(), every)) == ["a"]


STRANGERS = 3 * MOST_STEPPED_OVER


@pytest.fixture
def behind_strangers(jobs: Collection[Document], now: Now) -> None:
    """1,500 jobs of an unknown task in front of 20 of a known one, in two queues."""
    queues = ["default", "low"]
    jobs.insert_many(
        [
            waiting(f"s{n:04}", now() - 5000 + n, name="unknown", queue=queues[n % 2])
            for n in range(STRANGERS)
        ]
    )
    jobs.insert_many([waiting(f"k{n:02}", now() - 100 + n, queue=queues[n % 2]) for n in range(20)])


BOTH = ["default", "low"]
KNOWN = [f"k{n:02}" for n in range(20)]


def test_stepping_over(
    behind_strangers: None,
    database: Database[Document],
    candidates: Candidates,
    now: Now,
    recorder: Recorder,
) -> None:
    """B2: What is not wanted is stepped over; where it was much, the next looks start behind it,
    and find exactly the same."""
    recorder.commands.clear()
    assert ids(candidates.read(BOTH, 5, now(), is_known)) == KNOWN[:5]
    assert sum(plan.documents for plan in recorder.plans(database)) >= STRANGERS

    assert ids(candidates.read(BOTH, 5, now(), is_known)) == KNOWN[:5]
    again = recorder.plans(database)
    assert sum(plan.documents for plan in again) <= 20
    assert not any("SORT" in plan.stages for plan in again)
    assert ids(candidates.read(["low"], 5, now(), is_known)) == KNOWN[1:11:2]
    assert ids(candidates.read(BOTH, 50, now(), is_known)) == KNOWN


def test_stepping_over_nothing_but_strangers(
    jobs: Collection[Document],
    database: Database[Document],
    candidates: Candidates,
    now: Now,
    recorder: Recorder,
) -> None:
    """B2: A backlog of nothing but unwanted jobs is read once in five seconds."""
    jobs.insert_many([waiting(f"s{n:04}", now(), name="unknown") for n in range(STRANGERS)])
    assert candidates.read(None, 5, now(), is_known) == []
    recorder.commands.clear()

    assert candidates.read(None, 5, now(), is_known) == []

    assert sum(plan.documents for plan in recorder.plans(database)) <= MOST_STEPPED_OVER


def test_newcomers_after_stepping_over(
    behind_strangers: None, jobs: Collection[Document], candidates: Candidates, now: Now
) -> None:
    """B2: What comes after the place was remembered is seen at once: the urgent before all that
    was stepped over, the ordinary behind it."""
    candidates.read(BOTH, 5, now(), is_known)
    now.advance(ms=10)
    jobs.insert_many(
        [
            waiting("urgent", now(), priority=-1, queue="low"),
            waiting("more urgent", now(), priority=-2),
            waiting("not yet", now() + 1, priority=-3),
            waiting("ordinary", now()),
            waiting("patient", now(), priority=1),
        ]
    )

    found = ids(candidates.read(BOTH, 50, now(), is_known))

    assert found == ["more urgent", "urgent", *KNOWN, "ordinary", "patient"]


def test_place_is_forgotten(
    behind_strangers: None,
    jobs: Collection[Document],
    candidates: Candidates,
    now: Now,
    steady: Steady,
) -> None:
    """B2: After five seconds the whole backlog is looked at anew, as by whoever knows its task."""
    assert ids(candidates.read(BOTH, 1, now(), is_known)) == ["k00"]
    assert ids(candidates.read(BOTH, 1, now(), every)) == ["k00"]

    steady.seconds += REMEMBERED_SECONDS

    assert ids(candidates.read(BOTH, 1, now(), every)) == ["s0000"]


def test_wanted_among_strangers(
    jobs: Collection[Document], candidates: Candidates, now: Now
) -> None:
    """B2: A look that has found something goes no further than 500 strangers beyond; nothing that
    it passed is lost to the next."""
    rows = [waiting(f"{n:04}", now(), name="unknown" if n % 400 else "known") for n in range(2000)]
    jobs.insert_many(rows)
    known = [row["_id"] for row in rows if is_known(row)]
    found: list[str] = []

    for _ in range(5):
        more = ids(candidates.read(None, 2, now(), is_known))
        jobs.update_many({"_id": {"$in": more}}, {"$set": {"state": "running"}})
        found += more

    assert found == known


def test_claim_index_is_used_by_name(
    jobs: Collection[Document], candidates: Candidates, now: Now
) -> None:
    """Q13: A claim is served by its own index alone, whatever others there are."""
    jobs.create_index([("state", 1), ("queue", 1), ("priority", 1), ("run_at", 1)], name="seed")
    jobs.insert_one(waiting("a", now()))

    assert ids(candidates.read(["default"], 1, now(), every)) == ["a"]
    assert CLAIM.name in jobs.index_information()


@pytest.mark.parametrize("priorities", [1, 100])
def test_a_claim_in_one_round_trip_has_a_flat_cost(
    jobs: Collection[Document],
    database: Database[Document],
    candidates: Candidates,
    now: Now,
    recorder: Recorder,
    priorities: int,
) -> None:
    """W1, W3: over 20,000 jobs, the one that an idle runner was woken for is found by the index."""
    rows = backlog(3, priorities, now())
    jobs.insert_many(rows, ordered=False)
    claims = claims_on(jobs, now, candidates)
    queue = "queue-001"
    simple = [rows[-1]["name"]]
    wish = Wish(runner="me", at_most=5, rung=frozenset({queue}), simple=simple)
    due = [row for row in rows if row["queue"] == queue and row["run_at"] <= now()]
    first = in_order([row for row in due if "concurrency_key" not in row])[0]
    # What is paused is read apart, twice a second at most.
    claims.pauses.for_a_claim()
    recorder.commands.clear()
    candidates.is_clear = True

    assert [job.id for job in claims.take(wish)] == [first]

    [plan] = recorder.plans(database)
    assert "SORT" not in plan.stages
    assert plan.documents <= 2
