"""Which limited work is next, and what finding it costs."""

from __future__ import annotations

import time as host_time
import typing as t

import pytest

from claiming import claims_on, turns
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store.waiting_keys import WaitingKeys
from flask_henri_jobs.store.wish import Wish
from rows import START, row_of_state

if t.TYPE_CHECKING:
    from collections.abc import Iterable

    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from flask_henri_jobs.store.waiting_keys import Head
    from plans import Recorder
    from rows import Now, Stored

KEYS = 1_000
IMPORTS = {"mail": Lane("imports", 1, None)}


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
def keys(jobs: Collection[Document], steady: Steady) -> WaitingKeys:
    return WaitingKeys(jobs, steady)


def waiting(number: int, key: str, **fields: t.Any) -> Document:
    """Return the row of a job with a key, in the order of the numbers."""
    row = {"run_at": START - 1_000_000 + number, "concurrency_key": key}
    return row_of_state(f"{number:06}", "pending", START, **row | fields)


def ids(heads: Iterable[Head]) -> list[str]:
    return [head.id for head in heads]


def wish(at_most: int = 4, **how: t.Any) -> Wish:
    given = {"queues": turns(["default"]), "lanes": IMPORTS, **how}
    return Wish(runner="host:1:me", at_most=at_most, **given)


@pytest.mark.parametrize(
    "each", [10, pytest.param(100, marks=pytest.mark.faults, id="100,000 jobs")]
)
def test_cost_is_by_the_number_of_keys(
    jobs: Collection[Document],
    keys: WaitingKeys,
    now: Now,
    each: int,
    recorder: Recorder,
    database: Database[Document],
) -> None:
    """L4, B6: the heads of 1,000 keys come from a scan that jumps from key to key, and reads no
    document, however deep the backlog is."""
    total = KEYS * each
    jobs.insert_many(waiting(n, f"imports:{n % KEYS:04}") for n in range(total))
    recorder.commands.clear()
    began = host_time.perf_counter()

    heads = list(keys.heads(["default"], now()))

    assert host_time.perf_counter() - began < 2
    assert ids(heads) == [f"{n:06}" for n in range(KEYS)]
    [plan] = recorder.plans(database)
    assert "DISTINCT_SCAN" in plan.stages
    assert not {"SORT", "FETCH", "COLLSCAN", "$sort"} & set(plan.stages)
    assert plan.keys <= 3 * KEYS
    assert plan.documents == 0


def test_future_head_hides_nothing(keys: WaitingKeys, stored: Stored, now: Now) -> None:
    """Q2, B6: a key whose first job by priority is not due yet hides no due job behind it."""
    stored("later", concurrency_key="imports:1", priority=-5, run_at=now() + 60_000)
    stored("due", concurrency_key="imports:1", priority=5)
    stored("never", concurrency_key="imports:2", run_at=now() + 60_000)

    assert ids(keys.heads(["default"], now())) == ["due"]
    assert ids(keys.behind(next(keys.heads(["default"], now())), 5, now())) == []


def test_heads_of_several_queues(keys: WaitingKeys, stored: Stored, now: Now) -> None:
    """Q2: heads come in the order of all jobs, whatever queue they are in, and wherever that
    stands in the index; only from the queues that are asked."""
    for number, queue in enumerate(["zebra", "apple", "middle", "zebra", "apple"]):
        stored(str(number), queue=queue, concurrency_key=f"k{number}", priority=number)
    stored("9", queue="zebra", concurrency_key="k1", priority=9)

    assert ids(keys.heads(["apple", "zebra"], now())) == ["0", "1", "3", "4", "9"]
    assert ids(keys.heads(["middle"], now())) == ["2"]


def test_only_what_waits_with_a_key(keys: WaitingKeys, stored: Stored, now: Now) -> None:
    """L4: neither jobs that run or have ended nor those without a key are heads."""
    for state in ("running", "done", "dead"):
        stored(state, state, concurrency_key="imports:1")
    stored("free")

    assert list(keys.heads(["default"], now())) == []


def test_what_was_read_is_used_for_a_while(
    keys: WaitingKeys, stored: Stored, steady: Steady, now: Now, recorder: Recorder
) -> None:
    """L4: looking takes a twentieth of a runner's time at most; until then what was read is used,
    without the heads that were taken."""
    for n in range(8):
        stored(str(n), concurrency_key=f"k{n}", priority=n)
    recorder.commands.clear()
    first, *rest = keys.heads(["default"], now())
    keys.taken(first)
    stored("new", concurrency_key="new", priority=-1)

    assert list(keys.heads(["default"], now())) == rest
    assert len(recorder.commands) == 1

    steady.seconds += 1
    assert ids(keys.heads(["default"], now()))[:2] == ["new", "0"]
    assert len(recorder.commands) == 2


def test_it_is_read_again_for_idle_threads(
    jobs: Collection[Document], now: Now, recorder: Recorder
) -> None:
    """L6: what was read is read again early where keys were freed since and threads would be idle;
    and only then."""
    claims = claims_on(jobs, now)
    keys = claims.limited.keys
    keys.steady = lambda: 1000.0
    jobs.insert_many(waiting(n, f"imports:{n % 20}") for n in range(60))
    first = claims.take(wish(12))
    claims.limited.permits.give_back(first)
    keys.freed()
    recorder.commands.clear()

    assert ids_of(claims.take(wish(8))) == [f"{n:06}" for n in range(12, 20)]
    assert ids_of(claims.take(wish(3))) == [f"{n:06}" for n in range(20, 23)]
    assert claims.take(wish(20))

    looks = [one for one in recorder.commands if "aggregate" in one]
    assert len(looks) == 2


def test_it_is_read_again_when_it_is_used_up(
    keys: WaitingKeys, stored: Stored, now: Now, recorder: Recorder
) -> None:
    """L4: where most heads were taken, those behind them are looked for at once."""
    for n in range(8):
        stored(str(n), concurrency_key=f"k{n}", priority=n)
    recorder.commands.clear()
    for head in list(keys.heads(["default"], now()))[:7]:
        keys.taken(head)

    assert len(list(keys.heads(["default"], now()))) == 8
    assert len(recorder.commands) == 2


def test_a_taken_key_goes_on(jobs: Collection[Document], now: Now) -> None:
    """L2, Q2: a claim takes as many of a key as it has slots, in order, and none of a full one."""
    claims = claims_on(jobs, now)
    jobs.insert_many(waiting(n, "imports:1") for n in range(6))
    three = {"mail": Lane("imports", 3, None)}

    assert ids_of(claims.take(wish(lanes=three))) == ["000000", "000001", "000002"]
    assert claims.take(wish(lanes=three)) == []


def test_a_full_key_holds_back_nobody_else(
    jobs: Collection[Document], now: Now, recorder: Recorder
) -> None:
    """L4: behind a deep backlog of a key whose permits are held elsewhere, other keys and unlimited
    jobs are taken by as many questions as without it."""
    expected = ["010000", "010001", "010002", "010003"]
    claims = claims_on(jobs, now)
    permits = claims.limited.permits
    permits.take([("imports:0", 0, "x")], runner="host:2:elsewhere", token="theirs")
    jobs.insert_many(waiting(n, "imports:0") for n in range(5_000))
    jobs.insert_many(
        [
            waiting(10_000, "imports:1"),
            waiting(10_001, "imports:2"),
            waiting(10_002, "imports:3"),
            waiting(10_003, "", concurrency_key=None, name="post"),
        ]
    )
    # What is paused is read apart, twice a second at most.
    claims.pauses.for_a_claim()
    recorder.commands.clear()

    assert ids_of(claims.take(wish())) == expected

    asked = [(next(iter(one)), one[next(iter(one))]) for one in recorder.commands]
    assert asked == [
        ("find", "henri_jobs"),
        ("aggregate", "henri_jobs"),
        ("find", "henri_jobs_limits"),
        ("find", "henri_jobs_limits"),
        ("find", "henri_jobs"),
        ("update", "henri_jobs"),
    ]


def test_many_full_keys_cost_few_questions(
    jobs: Collection[Document], now: Now, recorder: Recorder
) -> None:
    """L4: the slots of 1,000 full keys are asked for in a handful of questions."""
    claims = claims_on(jobs, now)
    full = [(f"imports:{n:04}", 0, "x") for n in range(KEYS)]
    claims.limited.permits.take(full, runner="host:2:elsewhere", token="theirs")
    jobs.insert_many(waiting(n, f"imports:{n:04}") for n in range(KEYS + 1))
    recorder.commands.clear()

    assert ids_of(claims.take(wish())) == [f"{KEYS:06}"]

    assert len(recorder.commands) <= 12


def ids_of(jobs: Iterable[t.Any]) -> list[str]:
    return [job.id for job in jobs]


def test_jobs_without_their_key(jobs: Collection[Document], now: Now, recorder: Recorder) -> None:
    """L5, B6: waiting jobs of a limited task that have no key are not taken as they are: they are
    given the group's own bucket, 1,000 at a time, and then one is taken under it."""
    claims = claims_on(jobs, now)
    row = waiting(0, "")
    del row["concurrency_key"]
    jobs.insert_many(row | {"_id": f"{n:06}"} for n in range(2_500))
    jobs.insert_one(row | {"_id": "another", "name": "post", "priority": 9})

    recorder.commands.clear()

    assert ids_of(claims.take(wish())) == ["000000", "another"]

    steps = [one for one in recorder.commands if one.get("update") == "henri_jobs"]
    adopted = [len(one["updates"][0]["q"]["_id"]["$in"]) for one in steps]
    assert adopted[:3] == [1_000, 1_000, 500]
    assert claims.take(wish()) == []
    assert jobs.count_documents({"concurrency_key": "imports"}) == 2_500
    assert jobs.distinct("revision") == [1]
