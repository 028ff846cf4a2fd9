"""Permits: taken before a job, owned by a token, given back by it alone, and swept by age."""

from __future__ import annotations

import typing as t
from datetime import timedelta

import pytest
from pymongo.errors import PyMongoError

from faults import CLOSED, LOST_REPLY, failing, faulty_client
from flask_henri_jobs.errors import StoreUnavailable
from flask_henri_jobs.job import Job
from flask_henri_jobs.store.leases import Leases
from flask_henri_jobs.store.permits import DOUBT_SECONDS, Permits
from rows import row_of_state
from server_time import ServerTime

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from plans import Recorder

STUCK_AFTER = timedelta(seconds=60)


@pytest.fixture
def time() -> ServerTime:
    return ServerTime()


@pytest.fixture
def permits(jobs: Collection[Document], time: ServerTime) -> Permits:
    return permits_on(jobs, time)


def permits_on(jobs: Collection[Document], time: ServerTime) -> Permits:
    limits = jobs.database["henri_jobs_limits"]
    return Permits(limits, jobs, time.clock, steady=lambda: time.seconds)


@pytest.fixture
def faulty(
    mongo_uri: str, jobs: Collection[Document], time: ServerTime
) -> Iterator[tuple[MongoClient[Document], Permits]]:
    with faulty_client(mongo_uri) as client:
        yield client, permits_on(client[jobs.database.name]["henri_jobs"], time)


Faulty: t.TypeAlias = "tuple[MongoClient[Document], Permits]"


def take(permits: Permits, *wanted: tuple[str, int, str], token: str = "mine") -> set[str]:
    """Take permits as a runner does. Return the ids of the jobs that have one."""
    return set(permits.take(wanted, runner="host:1:me", token=token))


def running(job_id: str, permit: str, time: ServerTime, token: str = "mine") -> Job:
    """Return a job that runs under a permit, as its runner has it."""
    return Job(row_of_state(job_id, "running", time.now, claim_token=token), permit=permit)


def held(permits: Permits) -> list[str]:
    return sorted(row["_id"] for row in permits.limits.find())


def test_those_of_one_key(permits: Permits) -> None:
    """L3: who holds a key is told, and not who holds one that begins, or ends, as it does."""
    keys = ("mail", "mail:7", "mail#0", "mail:", "mai", "gmail")
    permits.take([(key, 0, f"job of {key}") for key in keys], runner="host:1:me", token="mine")
    permits.take([("mail", 1, "second")], runner="host:1:me", token="mine")

    assert [permit.job_id for permit in permits.held(key="mail")] == ["job of mail", "second"]
    assert [permit.job_id for permit in permits.held(1, key="mail#0")] == ["job of mail#0"]


def test_what_a_permit_is(permits: Permits, time: ServerTime) -> None:
    """L2: a permit is a document on the key's slot, with the token of its claim."""
    assert permits.take([("mail:7", 1, "a")], runner="host:1:me", token="mine") == {"a": "mail:7#1"}

    assert permits.limits.find_one() == {
        "_id": "mail:7#1",
        "limit_key": "mail:7",
        "slot": 1,
        "runner": "host:1:me",
        "job_id": "a",
        "taken_at": time.now,
        "heartbeat_at": time.now,
        "token": "mine",
    }


def test_a_slot_is_taken_once(permits: Permits) -> None:
    """L2, L3: of two that want a slot one has it, and the others of its wishes are untouched."""
    assert take(permits, ("mail", 0, "a"), ("mail", 1, "b")) == {"a", "b"}

    assert take(permits, ("mail", 1, "c"), ("post", 0, "d"), token="theirs") == {"d"}

    assert permits.free({"mail": 3, "post": 1}) == {"mail": [2], "post": []}


def test_free_slots_are_known_by_key(permits: Permits) -> None:
    """L1: what is held of one key is not counted to another, however alike their names are."""
    take(permits, ("mail", 0, "a"), ("mail:1", 0, "b"), ("mail:1#0", 0, "c"))

    free = permits.free({"mail": 2, "mail:1": 1, "mail:1#0": 1, "mail:2": 1})

    assert free == {"mail": [1], "mail:1": [], "mail:1#0": [], "mail:2": [0]}
    assert permits.free({}) == {}


@pytest.mark.parametrize(
    ("inside", "free"),
    [
        ({0, 1, 2, 3}, []),
        ({1, 2, 3}, []),
        ({0, 3}, []),
        ({1, 3}, []),
        ({2, 3}, []),
        ({3}, [0]),
        ({1}, [0]),
        (set(), [0, 1]),
    ],
)
def test_lowered_limit(
    permits: Permits, time: ServerTime, inside: set[int], free: list[int]
) -> None:
    """L1: after a limit went from 4 to 2, nothing is taken until one is inside."""
    take(permits, *[("mail", slot, f"job-{slot}") for slot in inside])

    assert permits.free({"mail": 2}) == {"mail": free}


def test_a_slot_that_was_given_back_is_free_at_once(permits: Permits, time: ServerTime) -> None:
    """L4: also where another bucket's limit is lower, above which the permits are remembered."""
    most = {"mail": 1, "images": 2}
    take(permits, ("images", 1, "a"), token="first")
    assert permits.free(most) == {"mail": [0], "images": [0]}

    permits.give_back([running("a", "images#1", time, token="first")])

    assert permits.free(most) == {"mail": [0], "images": [0, 1]}


def test_only_its_token_gives_back(permits: Permits, time: ServerTime) -> None:
    """L3, L6: a runner that lost its permit cannot give away that of the job that came after."""
    take(permits, ("mail", 0, "a"), token="first")
    stalled = running("a", "mail#0", time, token="first")
    permits.forget([stalled])
    take(permits, ("mail", 0, "b"), ("mail", 1, "c"), token="second")

    permits.give_back([stalled])
    permits.forget([stalled])
    permits.release(["mail#0", "mail#1"], "first")
    assert held(permits) == ["mail#0", "mail#1"]

    successor = running("b", "mail#0", time, token="second")
    permits.give_back([successor, running("d", "mail#7", time, token="second")])
    permits.give_back([successor])
    assert held(permits) == ["mail#1"]


def test_each_by_its_own_token(permits: Permits, time: ServerTime) -> None:
    """L3: a permit that was lost, and that a later claim of the same runner took, is not given back
    with another job of that claim."""
    take(permits, ("mail", 0, "b"), ("mail", 1, "c"), token="second")
    stalled = running("a", "mail#0", time, token="first")
    ended = running("c", "mail#1", time, token="second")

    permits.give_back([stalled, ended])

    assert held(permits) == ["mail#0"]


def test_jobs_without_a_permit_ask_nothing(permits: Permits, time: ServerTime) -> None:
    """L6: nothing is sent for jobs without a limit."""
    take(permits, ("mail", 0, "a"))
    free = Job(row_of_state("b", "running", time.now))

    permits.give_back([free])
    permits.keep([free])
    permits.forget([])

    assert held(permits) == ["mail#0"]


def test_repeated_insert(faulty: Faulty, permits: Permits) -> None:
    """A11: an insert that the driver repeated after a lost reply finds its own permit."""
    client, mine = faulty
    with failing(client, "insert", times=1, errorCode=11601, **RETRYABLE):
        assert take(mine, ("mail", 0, "a")) == {"a"}

    # The same again, as a repetition that the server does not know for one.
    assert take(permits, ("mail", 0, "a"), ("mail", 1, "b")) == {"a", "b"}
    assert take(permits, ("mail", 0, "a"), token="another") == set()


RETRYABLE: Document = {"errorLabels": ["RetryableWriteError"]}


@pytest.mark.parametrize("how", [LOST_REPLY, CLOSED])
def test_take_of_unknown_fate(faulty: Faulty, time: ServerTime, how: Document) -> None:
    """A11: what a take whose reply was lost may have taken is nobody's, and goes back, also where
    it appears late."""
    client, permits = faulty
    with failing(client, "insert", times=2, **how), pytest.raises(PyMongoError):
        take(permits, ("mail", 0, "a"))

    assert permits.free({"mail": 1}) == {"mail": [0]}
    late = {"limit_key": "mail", "slot": 0, "token": "mine"}
    permits.limits.insert_one({"_id": "mail#0", **late})
    assert permits.free({"mail": 1}) == {"mail": [0]}

    time.advance(DOUBT_SECONDS)
    permits.free({"mail": 1})
    permits.limits.insert_one({"_id": "mail#0", **late})
    assert permits.free({"mail": 1}) == {"mail": []}


def test_release_without_a_database(faulty: Faulty) -> None:
    """L6: permits that came to nothing, and could not be given back then, go back later."""
    client, permits = faulty
    take(permits, ("mail", 0, "a"))
    with failing(client, "delete", times=2, **CLOSED):
        permits.release(["mail#0"], "mine")
        assert held(permits) == ["mail#0"]

    assert permits.free({"mail": 1}) == {"mail": [0]}


def test_heartbeat(permits: Permits, time: ServerTime) -> None:
    """L3: a permit lives by the heartbeats of its runner."""
    take(permits, ("mail", 0, "a"), ("mail", 1, "b"))
    take(permits, ("mail", 2, "c"), token="theirs")
    time.advance(50)
    permits.keep([running("a", "mail#0", time), running("c", "mail#2", time)])
    time.advance(50)

    assert [permit.job_id for permit in permits.sweep(STUCK_AFTER)] == ["b", "c"]


def test_heartbeat_of_what_is_gone(
    permits: Permits, jobs: Collection[Document], time: ServerTime
) -> None:
    """L3: a permit that was swept is taken again by its heartbeat where nobody else has its slot;
    of the others it is told. That of a job which has just ended is left as it is."""
    held = [running(name, f"mail#{slot}", time) for slot, name in enumerate("abcd")]
    jobs.insert_many(dict(job.row) for job in held[:3])
    take(permits, ("mail", 0, "a"))
    take(permits, ("mail", 2, "other"), token="theirs")

    assert permits.keep(held) == {"c"}

    stored = {row["_id"]: (row["job_id"], row["token"]) for row in permits.limits.find()}
    assert stored == {
        "mail#0": ("a", "mine"),
        "mail#1": ("b", "mine"),
        "mail#2": ("other", "theirs"),
    }


def test_heartbeat_that_cannot_take_again(faulty: Faulty, time: ServerTime) -> None:
    """L3: Where a permit that was swept cannot be taken again now, those that the other jobs of its
    claim hold stay theirs, and the next heartbeat takes it."""
    client, permits = faulty
    held = [running(name, f"mail#{slot}", time) for slot, name in enumerate("ab")]
    permits.jobs.insert_many(dict(job.row) for job in held)
    take(permits, ("mail", 0, "a"))
    with failing(client, "insert", times=1, errorCode=50), pytest.raises(StoreUnavailable):
        permits.keep(held)

    permits.tidy()
    assert {permit.job_id for permit in permits.held()} == {"a"}
    assert permits.keep(held) == set()
    permits.tidy()
    assert {permit.job_id for permit in permits.held()} == {"a", "b"}


def test_heartbeat_of_what_ends_meanwhile(
    permits: Permits, jobs: Collection[Document], time: ServerTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L6: a permit that was given back between a heartbeat's writes stays given back."""
    job = running("a", "mail#0", time)
    jobs.insert_one(dict(job.row))
    insert = Permits._inserted

    def and_end(self: Permits, rows: list[Document], token: str) -> dict[str, str]:
        jobs.update_one({"_id": "a"}, {"$set": {"state": "done"}})
        return insert(self, rows, token)

    monkeypatch.setattr(Permits, "_inserted", and_end)

    assert permits.keep([job]) == set()
    assert held(permits) == []


def test_sweep(permits: Permits, jobs: Collection[Document], time: ServerTime) -> None:
    """L3, A9: an old permit is freed unless its job runs under it: not that of a live job, and not
    that of a job that is still to be recovered."""
    bad: Document = {"ended": "done", "waits": "pending", "gone": None, "runs-again": "running"}
    good = {"runs": 0, "stuck": 100}
    names = [*bad, *good]
    take(permits, *[("mail", slot, name) for slot, name in enumerate(names)])
    time.advance(100)
    for name, state in bad.items():
        if state:
            jobs.insert_one(row_of_state(name, state, time.now, claim_token="another"))
    for name, age in good.items():
        beaten = time.now - age * 1000
        jobs.insert_one(
            row_of_state(name, "running", time.now, claim_token="mine", heartbeat_at=beaten)
        )
    take(permits, ("mail", 9, "young"), token="young")

    freed = permits.sweep(STUCK_AFTER)

    assert [permit.job_id for permit in freed] == list(bad)
    assert {permit.job_id for permit in permits.held()} == {*good, "young"}
    assert permits.sweep(STUCK_AFTER) == []


def test_permits_of_a_host_that_is_gone(
    permits: Permits, jobs: Collection[Document], time: ServerTime
) -> None:
    """L3: when a host is gone, its permits are free after ``stuck_after``, with their jobs and
    without; not before."""
    take(permits, ("mail", 0, "runs"), ("mail", 1, "never claimed"))
    jobs.insert_one(dict(running("runs", "mail#0", time).row))
    leases = Leases(jobs, time.clock, permits)
    time.advance(STUCK_AFTER.total_seconds() - 1)
    assert (leases.recover(STUCK_AFTER), permits.sweep(STUCK_AFTER)) == ([], [])

    time.advance(2)
    assert [permit.job_id for permit in permits.sweep(STUCK_AFTER)] == ["never claimed"]
    assert [job.id for job in leases.recover(STUCK_AFTER)] == ["runs"]

    assert permits.free({"mail": 2}) == {"mail": [0, 1]}


def test_sweep_of_henri_permits(
    permits: Permits, jobs: Collection[Document], time: ServerTime
) -> None:
    """L3: a henri runner's permit has no token; it is its job's while that runner has the job."""
    old = {"limit_key": "mail", "runner": "henri-1", "heartbeat_at": time.now, "taken_at": time.now}
    jobs.insert_one(row_of_state("a", "running", time.now, claimed_by="henri-1"))
    jobs.insert_one(row_of_state("b", "running", time.now, claimed_by="henri-2"))
    permits.limits.insert_many(
        [
            {**old, "_id": "mail#0", "slot": 0.0, "job_id": "a"},
            {**old, "_id": "mail#1", "slot": 1.0},
        ]
    )
    permits.limits.insert_one({**old, "_id": "mail#2", "slot": 2.0, "job_id": "b"})
    time.advance(100)

    assert [permit.slot for permit in permits.sweep(STUCK_AFTER)] == [1, 2]


def test_sweep_spares_what_was_kept_meanwhile(
    permits: Permits, time: ServerTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L3: a permit that is stamped between the sweep's look and its delete stays."""
    take(permits, ("mail", 0, "a"))
    time.advance(100)
    look = Permits._with_running_jobs

    def and_wake_up(self: Permits, old: list[Document]) -> set[str]:
        self.keep([running("a", "mail#0", time)])
        return look(self, old)

    monkeypatch.setattr(Permits, "_with_running_jobs", and_wake_up)

    assert permits.sweep(STUCK_AFTER) == []
    assert held(permits) == ["mail#0"]


def test_sweep_after_the_clock_changed(permits: Permits, time: ServerTime) -> None:
    """B8: where the server's clock jumped, nothing is swept until a permit could be renewed."""
    take(permits, ("mail", 0, "a"))
    time.advance(100)
    time.jump(3600)
    assert permits.sweep(STUCK_AFTER) == []

    time.advance(STUCK_AFTER.total_seconds())
    assert len(permits.sweep(STUCK_AFTER)) == 1


def test_whatever_a_runner_held(permits: Permits) -> None:
    """W6: what a runner held that is known to be gone is free at once."""
    take(permits, ("mail", 0, "a"))
    permits.take([("mail", 1, "b")], runner="host:2:other", token="theirs")

    permits.release_all_of("host:1:me")

    assert held(permits) == ["mail#1"]


def test_above_is_read_once_a_second(
    permits: Permits, time: ServerTime, recorder: Recorder
) -> None:
    """L1: what is held above a limit is asked for once a second, and the slots each time; and also
    where the limit asked about is lower than those before."""
    take(permits, ("post", 3, "a"))
    permits.free({"mail": 2})
    recorder.commands.clear()
    permits.free({"mail": 2})
    assert len(recorder.commands) == 1
    assert permits.free({"post": 1}) == {"post": []}

    take(permits, ("mail", 3, "a"))
    time.advance(1)
    assert permits.free({"mail": 2}) == {"mail": [0]}
