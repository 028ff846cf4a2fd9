"""Taking jobs, each by one runner only."""

from __future__ import annotations

import threading
import typing as t
from itertools import pairwise

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from claiming import claims_on, turns
from faults import CLOSED, LOST_REPLY, failing, faulty_client
from flask_henri_jobs.errors import StoreUnavailable
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.rate import Lane
from flask_henri_jobs.store.candidates import Candidates
from flask_henri_jobs.store.claims import Claims
from flask_henri_jobs.store.doubts import CLAIM_SECONDS, Doubt, Doubts
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document, Job
    from plans import Recorder
    from rows import Now, Stored


@pytest.fixture
def claims(jobs: Collection[Document], now: Now) -> Claims:
    return claims_on(jobs, now)


INTERRUPTED = 11601


def wish(at_most: int = 10, **how: t.Any) -> Wish:
    return Wish(**{"runner": "host:1:me", "queues": turns(["default"]), "at_most": at_most, **how})


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def test_what_a_claim_writes(claims: Claims, stored: Stored, now: Now) -> None:
    """Q1: A claim adds an attempt and writes token, runner and moments; what is returned is what
    is stored."""
    before = stored("a", run_at=now() - 500)
    now.advance(ms=100)

    (job,) = claims.take(wish())

    assert claims.jobs.find_one() == job.row
    assert job.row == before | {
        "state": "running",
        "attempts": 1,
        "claim_token": job.claim_token,
        "claimed_by": "host:1:me",
        "claimed_at": now(),
        "heartbeat_at": now(),
        "started_at": now(),
        "updated_at": now(),
    }


def test_at_most(claims: Claims, stored: Stored) -> None:
    """W1: A claim takes as many as it may, the first in order, under one token of its own."""
    for number in range(5):
        stored(f"{number}")

    first, second = claims.take(wish(2)), claims.take(wish(2))

    assert (ids(first), ids(second)) == (["0", "1"], ["2", "3"])
    tokens = [{job.claim_token for job in taken} for taken in (first, second)]
    assert len(tokens[0] | tokens[1]) == 2


def test_only_what_is_wanted(claims: Claims, stored: Stored) -> None:
    """A claim leaves alone what is not wanted, in other queues, not due, full or not waiting."""
    lanes = {"thumbnail": Lane("image", 1, None)}
    claims.limited.permits.take([("image", 0, "another")], runner="host:2:r", token="another's")
    stored("wanted")
    stored("other name", name="report")
    stored("other queue", queue="low")
    stored("not due", run_at=claims.now() + 1)
    stored("full", name="thumbnail", concurrency_key="image")
    stored("running", "running")
    stored("done", "done")

    mine = wish(wanted=lambda row: row["name"] != "report", lanes=lanes)
    assert ids(claims.take(mine)) == ["wanted"]
    assert claims.take(mine) == []


def test_henri_rows(claims: Claims, stored: Stored) -> None:
    """Section 3: Rows of a henri app, whose numbers are floats and whose token is missing, are
    claimed like ours."""
    row = stored("a", run_at=float(claims.now()), attempts=0.0, priority=0.0)
    claims.jobs.replace_one({"_id": "a"}, {key: row[key] for key in row if key != "claim_token"})

    (job,) = claims.take(wish())

    assert (job.state, job.attempts) == ("running", 1)


class Between(Candidates):
    """Candidates with something that happens between the reading of jobs and their claim."""

    __slots__ = ("happens",)
    happens: Callable[[], object]

    def read(self, *args: t.Any, **how: t.Any) -> list[Document]:
        rows = super().read(*args, **how)
        self.happens()
        return rows


@pytest.fixture
def between(jobs: Collection[Document], now: Now) -> Callable[[Callable[[], object]], Claims]:
    def make(happens: Callable[[], object]) -> Claims:
        candidates = Between(jobs)
        candidates.happens = happens
        return claims_on(jobs, now, candidates)

    return make


CHANGES: dict[str, Document] = {
    "replaced": {"$set": {"args": '{"n":2}'}, "$inc": {"revision": 1}},
    "claimed, failed and put back": {"$inc": {"attempts": 1}},
    "snoozed": {"$set": {"run_at": 1_900_000_000_000}},
    "claimed": {"$set": {"state": "running", "claim_token": "another's"}, "$inc": {"attempts": 1}},
    "dead": {"$set": {"state": "dead"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_changed_since_it_was_read(
    between: Callable[..., Claims], jobs: Collection[Document], stored: Stored, change: str
) -> None:
    """A1: A job that is no longer what was read is not claimed; its neighbours are."""
    for id in ("a", "changed", "z"):
        stored(id)
    claims = between(lambda: jobs.update_one({"_id": "changed"}, CHANGES[change]))

    assert ids(claims.take(wish())) == ["a", "z"]

    row = jobs.find_one({"_id": "changed"})
    assert row is not None
    assert row["claim_token"] in {None, "another's"}


def test_a_replaced_job_is_claimed_as_it_is_then(
    between: Callable[..., Claims], jobs: Collection[Document], stored: Stored
) -> None:
    """A1: The next claim performs the new arguments."""
    stored("a")
    claims = between(lambda: jobs.update_one({"_id": "a"}, CHANGES["replaced"]))
    assert claims.take(wish()) == []
    t.cast(Between, claims.candidates).happens = lambda: None

    (job,) = claims.take(wish())

    assert job.args == {"n": 2}
    assert job.row == jobs.find_one()


def test_attempts_and_revisions_of_all_kinds(claims: Claims, stored: Stored) -> None:
    """A1: Jobs of different attempts and revisions are claimed together, in their order."""
    for number in range(12):
        revision: dict[str, t.Any] = {"revision": number % 2} if number % 3 else {}
        stored(f"{number:02}", attempts=number % 4, **revision)

    claimed = claims.take(wish(50))

    assert ids(claimed) == [f"{number:02}" for number in range(12)]
    assert [job.attempts for job in claimed] == [number % 4 + 1 for number in range(12)]
    assert {row["_id"]: row for row in claims.jobs.find()} == {job.id: job.row for job in claimed}


def test_rivals_never_share(jobs: Collection[Document], now: Now, stored: Stored) -> None:
    """Q1: Of any number of runners exactly one wins a job."""
    jobs.insert_many([stored_row(stored, number) for number in range(400)])
    at_once = threading.Barrier(4)
    taken: dict[int, list[str]] = {number: [] for number in range(4)}

    def claim(number: int) -> None:
        claims = claims_on(jobs, now)
        at_once.wait(5)
        while more := claims.take(wish(7, runner=f"runner-{number}")):
            taken[number] += ids(more)
            assert {job.claimed_by for job in more} == {f"runner-{number}"}

    threads = [threading.Thread(target=claim, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    everything = [id for some in taken.values() for id in some]
    stored_by = {row["_id"]: row["claimed_by"] for row in jobs.find({"state": "running"})}
    for number, some in taken.items():
        assert all(stored_by[id] == f"runner-{number}" for id in some)
    # A rival that lost a whole round saw nothing and ended; what was taken was taken once.
    assert len(everything) == len(set(everything)) == len(stored_by)
    assert jobs.distinct("attempts", {"state": "running"}) == [1]


def stored_row(stored: Stored, number: int) -> Document:
    row = stored(f"seed-{number:03}", "done")
    return {**row, "_id": f"{number:03}", "state": "pending", "attempts": 0, "claim_token": None}


@pytest.fixture
def faulty(
    mongo_uri: str, jobs: Collection[Document], now: Now, steady: Steady
) -> t.Iterator[tuple[MongoClient[Document], Claims]]:
    with faulty_client(mongo_uri) as client:
        collection = client[jobs.database.name]["henri_jobs"]
        yield client, claims_on(collection, now, steady=steady)


class Steady:
    """Steady seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def steady() -> Steady:
    return Steady()


Faulty: t.TypeAlias = tuple[MongoClient[dict[str, t.Any]], Claims]


def test_lost_reply(faulty: Faulty, stored: Stored) -> None:
    """A5: What a claim took whose reply was lost is found by its token, before anything else."""
    client, claims = faulty
    for id in ("b", "a", "c"):
        stored(id, priority=-1 if id == "b" else 0)
    with (
        failing(client, "update", times=1, **LOST_REPLY),
        pytest.raises(StoreUnavailable, match="a claim"),
    ):
        claims.take(wish(2))
    assert claims.jobs.count_documents({"state": "running"}) == 2

    found = claims.take(wish(1))

    assert ids(found) == ["b", "a"]
    assert found[0].row == claims.jobs.find_one({"_id": "b"})
    assert ids(claims.take(wish())) == ["c"]


def test_lost_claim(faulty: Faulty, stored: Stored) -> None:
    """A5: A claim that took no effect leaves its jobs to the next, and is remembered no longer than
    it may take effect late."""
    client, claims = faulty
    stored("a")
    with failing(client, "update", times=1, **CLOSED), pytest.raises(StoreUnavailable):
        claims.take(wish())

    assert ids(claims.take(wish())) == ["a"]
    assert len(claims.doubts.open) == 1
    t.cast(Steady, claims.doubts.steady).seconds += 2 * CLAIM_SECONDS + 1
    assert claims.take(wish()) == []
    assert claims.doubts.open == []


def test_claim_that_takes_effect_late(faulty: Faulty, stored: Stored) -> None:
    """A5: What a claim in doubt takes in parts is found in parts, each job once."""
    client, claims = faulty
    stored("a")
    stored("b")
    with failing(client, "update", times=1, **CLOSED), pytest.raises(StoreUnavailable):
        claims.take(wish())
    late = {"state": "running", "claim_token": claims.doubts.open[0].token}

    for id in ("a", "b"):
        claims.jobs.update_one({"_id": id}, {"$set": late})
        assert ids(claims.doubts.late()) == [id]
    assert claims.doubts.late() == []


def test_lost_look_at_what_was_won(
    faulty: Faulty, jobs: Collection[Document], stored: Stored
) -> None:
    """A5: A claim that took effect is found again too where only the look at it failed."""
    client, claims = faulty
    stored("a")
    rows = [stored("b"), *jobs.find({"_id": "a"})]
    jobs.update_one({"_id": "a"}, CHANGES["claimed"])
    with (
        failing(client, "find", times=1, errorCode=INTERRUPTED),
        pytest.raises(PyMongoError),
        claims.doubts.about("a token"),
    ):
        claims.stamp(rows, "host:1:me", "a token")

    assert ids(claims.doubts.late()) == ["b"]


def test_looks_without_a_database(faulty: Faulty, stored: Stored) -> None:
    """W10: A look at suspects, or for a claim in doubt, says that the database is away."""
    client, claims = faulty
    stored("a")
    with failing(client, "update", times=1, **CLOSED), pytest.raises(StoreUnavailable):
        claims.take(wish())

    claims.look_again()
    # Where the connection is closed, the driver repeats a read for as long as it may take.
    out_of_time = {"times": 1, "errorCode": 50}
    with failing(client, "distinct", **out_of_time), pytest.raises(StoreUnavailable):
        claims.due_suspects(QueueTurns(), ["mail"])
    with failing(client, "find", **out_of_time), pytest.raises(StoreUnavailable):
        claims.doubts.late()


def test_two_claims_in_doubt(
    faulty: Faulty, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5: What claims took is not forgotten where one of the reads of it fails."""
    client, claims = faulty
    for id in ("a", "b"):
        stored(id)
    with monkeypatch.context() as patch:
        patch.setattr(Doubts, "late", lambda _: [])
        for _ in range(2):
            with failing(client, "update", times=1, **LOST_REPLY), pytest.raises(StoreUnavailable):
                claims.take(wish(1))
    assert len(claims.doubts.open) == 2
    with failing(client, "find", after=1, errorCode=INTERRUPTED), pytest.raises(PyMongoError):
        claims.doubts.late()

    assert ids(claims.doubts.late()) == ["a", "b"]


def test_many_claims_in_doubt(faulty: Faulty) -> None:
    """A5, W10: However many claims came to nothing, they cost one read and one delete to end; and
    where that fails they end still, and what they held is given back later."""
    client, claims = faulty
    for number in range(30):
        claims.limited.permits.take([("mail", number, "a")], runner="me", token=str(number))
        claims.doubts.open.append(Doubt(str(number), until=1.0))
    t.cast(Steady, claims.doubts.steady).seconds = 2.0

    with failing(client, "delete", times=1, errorCode=INTERRUPTED):
        assert claims.doubts.late() == []

    assert claims.doubts.open == []
    assert len(held(claims)) == 30
    claims.limited.permits.tidy()
    assert held(claims) == []


LIMITS = {"mail": Lane("mail", 2, None)}


def test_a_permit_that_cannot_be_given_back(
    faulty: Faulty, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5, L2: Where a job is lost to a rival, and its permit cannot be given back, what was won is
    claimed all the same, and the permit is given back in the end."""
    client, claims = faulty
    for id in ("a", "b"):
        stored(id, concurrency_key="mail")
    stamp = Claims.stamp

    def late(self: Claims, *args: t.Any) -> list[Job]:
        self.jobs.update_one({"_id": "b"}, CHANGES["claimed"])
        return stamp(self, *args)

    monkeypatch.setattr(Claims, "stamp", late)
    with failing(client, "delete", times=2, **CLOSED):
        (found,) = claims.take(wish(lanes=LIMITS))

    assert (found.id, found.permit is not None) == ("a", True)
    assert len(held(claims)) == 2
    claims.limited.permits.tidy()
    assert held(claims) == ["a"]


def test_permits_of_a_claim_without_effect(faulty: Faulty, stored: Stored) -> None:
    """A5, L2: A claim that took its permits and then no job gives them back, once it is certain
    that it takes no effect any more."""
    client, claims = faulty
    limits = {"mail": Lane("mail", 1, None)}
    stored("a", concurrency_key="mail")
    with failing(client, "update", times=1, **CLOSED), pytest.raises(StoreUnavailable):
        claims.take(wish(lanes=limits))
    assert held(claims) == ["a"]
    assert claims.take(wish(lanes=limits)) == []

    t.cast(Steady, claims.doubts.steady).seconds += 2 * CLAIM_SECONDS + 1
    claims.look_again()

    assert ids(claims.take(wish(lanes=limits))) == ["a"]


def held(claims: Claims) -> list[str]:
    """Return the ids of the jobs that permits are held for."""
    return sorted(permit["job_id"] for permit in claims.limited.permits.limits.find())


def test_hand_back(claims: Claims, stored: Stored, now: Now) -> None:
    """W4: A job that is handed back is as it was before its claim, in its old place."""
    before = stored("a", run_at=now() - 1000)
    jobs = claims.take(wish())
    now.advance(ms=10)

    assert claims.hand_back(jobs).returned == 1

    row = claims.jobs.find_one()
    del before["claim_token"]
    assert row == before | {"updated_at": now()}


def test_hand_back_for_later(claims: Claims, stored: Stored, now: Now) -> None:
    """Q6: A job may be handed back for a later moment, with its attempt restored."""
    stored("a", attempts=3)

    claims.hand_back(claims.take(wish()), run_at=now() + 60_000)

    assert claims.take(wish()) == []
    now.advance(ms=60_000)
    assert [job.attempts for job in claims.take(wish())] == [4]


def test_hand_back_of_what_was_lost(claims: Claims, stored: Stored) -> None:
    """Q3: Only what this claim still holds is handed back, and exactly that is counted."""
    for id in ("a", "b", "c"):
        stored(id)
    jobs = [*claims.take(wish(2)), *claims.take(wish(1))]
    claims.jobs.update_one({"_id": "a"}, {"$set": {"claim_token": "another's"}})
    claims.jobs.update_one({"_id": "b"}, {"$set": {"state": "done"}})

    assert claims.hand_back(jobs).returned == 1
    assert claims.hand_back(jobs).returned == 0

    states = {row["_id"]: (row["state"], row["attempts"]) for row in claims.jobs.find()}
    assert states == {"a": ("running", 1), "b": ("done", 1), "c": ("pending", 0)}


def test_nothing_to_hand_back(unreachable: MongoClient[Document], now: Now) -> None:
    """Handing back nothing asks the database nothing."""
    collection = unreachable["nowhere"]["jobs"]

    assert claims_on(collection, now).hand_back([]) == (0, [])


def test_a_claim_is_bounded_in_bytes(claims: Claims, stored: Stored) -> None:
    """C: A claim stops at 16 MiB of arguments, and takes one job at least."""
    huge = "x" * (9 * 1024 * 1024)
    for id in ("a", "b", "c"):
        stored(id, args=huge)

    rounds = [ids(claims.take(wish())) for _ in range(3)]

    assert rounds == [["a"], ["b"], ["c"]]


def test_order_of_a_claim(claims: Claims, stored: Stored) -> None:
    """Q2: Jobs come in the order in which they are to be performed."""
    places = [(2, 0), (0, 5), (1, 1), (0, 3), (-1, 9)]
    for number, (priority, ago) in enumerate(places):
        stored(f"{number}", priority=priority, run_at=claims.now() - ago)

    claimed = claims.take(wish())

    order = [(job.priority, job.row["run_at"]) for job in claimed]
    assert all(before < after for before, after in pairwise(order))
    assert len(order) == len(places)


def test_who_loses_its_candidates_looks_farther(
    jobs: Collection[Document], stored: Stored, now: Now
) -> None:
    """B3: a runner that won less than half takes a part farther on, and still in order."""
    for number in range(40):
        stored(f"{number:02}")
    rival, claims = claims_on(jobs, now), claims_on(jobs, now)
    claims.spread.chance = lambda parts: parts - 1

    def overtaken(row: Document) -> bool:
        if row["_id"] in {"00", "04"}:
            assert len(rival.take(wish(4, runner="rival"))) == 4
        return True

    assert ids(claims.take(wish(4, wanted=overtaken))) == []
    # The first four are the rival's, who takes the next four too: this one reads twice as many.
    assert ids(claims.take(wish(4, wanted=overtaken))) == ["08", "09", "10", "11"]
    assert ids(claims.take(wish(4))) == ["12", "13", "14", "15"]


def rung(at_most: int = 10, queue: str = "default", **how: t.Any) -> Wish:
    """A wish of an idle runner that was woken for a queue."""
    return wish(at_most, rung=frozenset({queue}), simple=["mail"], **how)


def test_a_rung_job_is_taken_in_one_round_trip(
    claims: Claims, stored: Stored, now: Now, recorder: Recorder
) -> None:
    """W3: what an idle runner is woken for costs one question, and the next look sees the rest."""
    claims.take(wish())
    for number in (2, 1):
        stored(str(number))
    recorder.commands.clear()

    [job] = claims.take(rung())

    assert [next(iter(command)) for command in recorder.commands] == ["findAndModify"]
    assert (job.id, job.state, job.attempts, job.claimed_by) == ("1", "running", 1, "host:1:me")
    assert ids(claims.take(wish())) == ["2"]


def test_a_rung_job_of_a_new_queue(claims: Claims, stored: Stored) -> None:
    """B1: a runner of all queues learns of a queue from its ring, and asks for no list of them."""
    everywhere = QueueTurns()
    claims.take(wish(queues=everywhere))
    stored("a", queue="new")
    stored("b", queue="new")

    assert ids(claims.take(rung(queue="new", queues=everywhere))) == ["a"]
    assert ids(claims.take(wish(queues=everywhere))) == ["b"]


@pytest.mark.parametrize(
    "fields",
    [{"name": "stranger"}, {"suspect": True}, {"concurrency_key": "key"}, {"run_at": 2**53}],
    ids=["stranger", "suspect", "limited", "later"],
)
def test_what_is_not_simple_is_not_taken_alone(
    claims: Claims, stored: Stored, fields: Document
) -> None:
    """W3: a stranger, a suspect, a limited job and a later one are left to an ordinary look."""
    claims.take(wish())
    row = stored("a", **fields)
    stored("b")

    assert "a" not in ids(claims._take_first(rung(), "token"))
    assert claims.jobs.find_one({"_id": "a"}) == row


def test_a_job_that_is_not_wanted_is_as_it_was(claims: Claims, stored: Stored) -> None:
    """X4: one that may not be begun goes back, and is stepped over from then on."""
    claims.take(wish())
    row = stored("a")

    taken = claims.take(rung(wanted=lambda row: row["_id"] != "a"))

    assert taken == []
    assert not claims.candidates.is_clear
    left = claims.jobs.find_one({"_id": "a"})
    assert left is not None
    assert left | {"updated_at": 0, "claim_token": None} == row | {"updated_at": 0}
