"""Storing new jobs, and what becomes of a duplicate."""

from __future__ import annotations

import threading
import time
import typing as t
from datetime import timedelta

import pytest

from faults import CLOSED, LOST_REPLY, failing, faulty_client
from flask_henri_jobs.errors import StoreUnavailable, UniqueKeyTaken
from flask_henri_jobs.store.documents import new_row
from flask_henri_jobs.store.inbox import MOST_AT_ONCE, Inbox

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from plans import Recorder
    from rows import Now, Stored

KEY = "mail:7"


@pytest.fixture
def inbox(jobs: Collection[Document], now: Now) -> Inbox:
    return Inbox(jobs, now, timedelta(seconds=3))


def row(id: str = "new", **fields: t.Any) -> Document:
    given = {"name": "mail", "args": '{"n":1}', "run_at": 2, **fields}
    return new_row(id=id, now=1, queue="default", priority=0, max_attempts=5, **given)


class Interrupted(Inbox):
    """An inbox in which something happens between a refused insert and the look at the holder."""

    __slots__ = ("happens",)
    happens: list[Callable[[], object]]

    def _holder(self, row: Document, details: t.Any, on_conflict: t.Any) -> Document | None:
        if self.happens:
            self.happens.pop(0)()
        return super()._holder(row, details, on_conflict)


@pytest.fixture
def interrupted(jobs: Collection[Document], now: Now) -> Callable[..., Interrupted]:
    def make(*happens: Callable[[], object]) -> Interrupted:
        made = Interrupted(jobs, now, timedelta(seconds=3))
        object.__setattr__(made, "happens", list(happens))
        return made

    return make


def test_created(inbox: Inbox, jobs: Collection[Document]) -> None:
    """A new job is stored as it was given, and says that it was created."""
    job = inbox.add(row(unique_key=KEY))

    assert job.created
    assert jobs.find_one() == job.row == row(unique_key=KEY)


@pytest.mark.parametrize("state", ["pending", "running"])
def test_key_is_held(inbox: Inbox, stored: Stored, state: str) -> None:
    """Q7: The key of a waiting or running job hands out that job, and nothing is created."""
    stored("holder", state, unique_key=KEY)

    job = inbox.add(row(unique_key=KEY))

    assert (job.id, job.created, job.state) == ("holder", False, state)
    assert inbox.jobs.count_documents({}) == 1


@pytest.mark.parametrize("state", ["pending", "running"])
def test_key_is_held_and_that_is_an_error(inbox: Inbox, stored: Stored, state: str) -> None:
    """Q7: ``on_conflict="raise"`` raises, and names the job that holds the key."""
    stored("holder", state, unique_key=KEY)

    with pytest.raises(
        UniqueKeyTaken, match=f"held by job holder of the task mail, which is {state}"
    ):
        inbox.add(row(unique_key=KEY), "raise")


def test_replaced(inbox: Inbox, stored: Stored, now: Now) -> None:
    """Q7: ``on_conflict="replace"`` gives a waiting holder new arguments and a new moment."""
    stored("holder", unique_key=KEY, args='{"n":0}', expires_at=5)
    now.advance(ms=10)

    job = inbox.add(row(unique_key=KEY, run_at=77), "replace")

    assert (job.id, job.created, job.args) == ("holder", False, {"n": 1})
    stored_row = inbox.jobs.find_one({"_id": "holder"})
    assert stored_row == job.row
    assert (job.row["run_at"], job.row["revision"], job.row["updated_at"]) == (77, 1, now())
    assert "expires_at" not in job.row


def test_replaced_by_another_thing(inbox: Inbox, stored: Stored) -> None:
    """Q7: what the old arguments were about goes with them: tags, and the bucket of a limit."""
    stored("holder", unique_key=KEY, tags=["order:1"], concurrency_key="a:1")

    about = inbox.add(row(unique_key=KEY, tags=["order:2"], concurrency_key="a:2"), "replace")
    nothing = inbox.add(row(unique_key=KEY), "replace")

    assert (about.tags, about.concurrency_key) == (("order:2",), "a:2")
    assert not {"tags", "concurrency_key"} & nothing.row.keys()


def test_replaced_again(inbox: Inbox, stored: Stored) -> None:
    """A1: Each replacement is another revision."""
    stored("holder", unique_key=KEY)

    for _ in range(3):
        inbox.add(row(unique_key=KEY, expires_at=9), "replace")

    assert inbox.jobs.distinct("revision") == [3]
    assert inbox.jobs.distinct("expires_at") == [9]


def test_running_holder_is_not_replaced(inbox: Inbox, stored: Stored) -> None:
    """Q7: A running holder keeps its arguments, and is handed out."""
    before = stored("holder", "running", unique_key=KEY)

    job = inbox.add(row(unique_key=KEY), "replace")

    assert (job.row, job.created) == (before, False)


@pytest.mark.parametrize("on_conflict", ["return", "raise", "replace"])
def test_key_of_another_task(inbox: Inbox, stored: Stored, on_conflict: t.Any) -> None:
    """Q7: A key that a job of another task holds is an error, whatever was to be done."""
    before = stored("holder", unique_key=KEY, name="report")

    with pytest.raises(UniqueKeyTaken, match="task report"):
        inbox.add(row(unique_key=KEY), on_conflict)

    assert list(inbox.jobs.find()) == [before]


@pytest.mark.parametrize("on_conflict", ["return", "raise", "replace"])
@pytest.mark.parametrize("state", ["pending", "running", "done", "dead"])
def test_held_id(inbox: Inbox, stored: Stored, state: str, on_conflict: t.Any) -> None:
    """Q7: The id of a job that is there hands out that job, for as long as its row is kept."""
    before = stored("new", state)

    job = inbox.add(row(), on_conflict)

    assert (job.row, job.created) == (before, False)


def test_held_id_comes_before_a_held_key(inbox: Inbox, stored: Stored) -> None:
    """A11: A repeated enqueue that meets its own row is handed that, and not a key's holder."""
    stored("new", "done")
    stored("holder", unique_key=KEY)

    assert inbox.add(row(unique_key=KEY)).id == "new"


@pytest.mark.parametrize("on_conflict", ["return", "raise", "replace"])
def test_holder_ends_before_it_is_read(
    interrupted: Callable[..., Interrupted], stored: Stored, on_conflict: t.Any
) -> None:
    """Q7: A holder that ends between our refused insert and our read is not an error."""
    stored("holder", unique_key=KEY)
    end = {"$set": {"state": "done"}, "$unset": {"unique_key": ""}}
    racing: Inbox = interrupted(lambda: racing.jobs.update_one({"_id": "holder"}, end))

    job = racing.add(row(unique_key=KEY), on_conflict)

    assert (job.id, job.created) == ("new", True)


def test_holder_changes_before_it_is_read(
    interrupted: Callable[..., Interrupted], stored: Stored
) -> None:
    """Q7: The job that is handed out is the one that holds the key then."""
    stored("holder", unique_key=KEY)

    def another() -> None:
        racing.jobs.delete_one({"_id": "holder"})
        stored("second", unique_key=KEY)

    racing: Inbox = interrupted(another)

    assert racing.add(row(unique_key=KEY)).id == "second"


def test_row_of_a_held_id_is_deleted_before_it_is_read(
    interrupted: Callable[..., Interrupted], stored: Stored
) -> None:
    """Q7: A row that is deleted between our refused insert and our read is no holder."""
    stored("new", "done")
    racing: Inbox = interrupted(lambda: racing.jobs.delete_one({"_id": "new"}))

    assert racing.add(row()).created


def test_holder_is_claimed_before_it_is_replaced(
    interrupted: Callable[..., Interrupted], stored: Stored
) -> None:
    """Q7: A holder that was claimed between our read and our replacement is handed out running."""
    stored("holder", unique_key=KEY)

    class Claimed(Interrupted):
        __slots__ = ()

        def _replace(self, holder: Document, row: Document) -> Document | None:
            self.jobs.update_one({"_id": "holder"}, {"$set": {"state": "running"}})
            return super()._replace(holder, row)

    base = interrupted()
    inbox = Claimed(base.jobs, base.now, base.timeout)
    object.__setattr__(inbox, "happens", [])

    job = inbox.add(row(unique_key=KEY), "replace")

    assert (job.id, job.state, job.args) == ("holder", "running", {})


def test_one_of_many_at_once(inbox: Inbox) -> None:
    """Q7: Of any number of enqueues under one key at once, one creates the job."""
    at_once = threading.Barrier(8)
    created: list[tuple[str, bool]] = []

    def enqueue(number: int) -> None:
        at_once.wait(5)
        job = inbox.add(row(f"job-{number}", unique_key=KEY))
        created.append((job.id, job.created))

    threads = [threading.Thread(target=enqueue, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(created) == 8
    assert len({id for id, _ in created}) == 1
    assert sum(was for _, was in created) == 1


def test_many_in_order(inbox: Inbox, recorder: Recorder) -> None:
    """Many jobs are stored in the order given, more than a thousand too."""
    ids = [f"job-{number:05}" for number in range(MOST_AT_ONCE + 200)]

    added = inbox.add_many([row(id) for id in ids])

    assert [job.id for job in added] == ids
    assert all(job.created for job in added)
    assert inbox.jobs.count_documents({}) == len(ids)


def test_many_with_duplicates(inbox: Inbox, stored: Stored, recorder: Recorder) -> None:
    """Q7: Duplicates among many, of each other and of what is there, are handed their holders,
    all of them by one look."""
    stored("there", unique_key="k0")
    stored("id-there", "dead")
    rows = [row(f"{n}", unique_key=f"k{n % 5}") for n in range(500)]
    recorder.commands.clear()

    added = inbox.add_many([*rows, row("id-there"), row("last")])

    expected = ["there" if n % 5 == 0 else f"{n % 5}" for n in range(500)]
    assert [job.id for job in added] == [*expected, "id-there", "last"]
    assert [job.id for job in added if job.created] == ["1", "2", "3", "4", "last"]
    assert [next(iter(command)) for command in recorder.commands] == ["find"]


@pytest.mark.parametrize("on_conflict", ["return", "raise"])
def test_many_with_a_key_of_another_task(inbox: Inbox, stored: Stored, on_conflict: t.Any) -> None:
    """Q7: A key of another task among many is an error too."""
    stored("holder", unique_key=KEY, name="report")

    with pytest.raises(UniqueKeyTaken, match="task report"):
        inbox.add_many([row("1"), row("2", unique_key=KEY)], on_conflict)


def test_many_that_replace(inbox: Inbox, stored: Stored) -> None:
    """Q7: ``on_conflict`` holds for each of many."""
    stored("holder", unique_key=KEY)

    added = inbox.add_many([row("1"), row("2", unique_key=KEY, args='{"n":2}')], "replace")

    assert [(job.id, job.created) for job in added] == [("1", True), ("holder", False)]
    assert inbox.jobs.distinct("args", {"_id": "holder"}) == ['{"n":2}']


def test_no_server(unreachable: MongoClient[Document], now: Now) -> None:
    """Q11: Without a server an enqueue fails within its timeout; nothing can have been stored."""
    inbox = Inbox(unreachable["nowhere"]["jobs"], now, timedelta(seconds=0.3))
    began = time.monotonic()

    with pytest.raises(StoreUnavailable, match="did not answer an enqueue") as caught:
        inbox.add(row())

    assert time.monotonic() - began < 1.5
    assert caught.value.maybe_stored is None


def test_many_without_a_server(unreachable: MongoClient[Document], now: Now) -> None:
    """Q11: Where many fail, the error says how many are stored."""
    inbox = Inbox(unreachable["nowhere"]["jobs"], now, timedelta(seconds=0.3))

    with pytest.raises(StoreUnavailable, match="Of 3 jobs, the first 0 are stored"):
        inbox.add_many([row("1"), row("2"), row("3")])


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_behind_somebodys_transaction(jobs: Collection[Document], now: Now, many: bool) -> None:
    """Q11: An enqueue never hangs behind an open transaction that holds its key."""
    inbox = Inbox(jobs, now, timedelta(seconds=0.5))
    client = jobs.database.client
    with client.start_session() as session, session.start_transaction():
        jobs.insert_one(row("theirs", unique_key=KEY), session=session)
        began = time.monotonic()

        with pytest.raises(StoreUnavailable) as caught:
            inbox.add_many([row(unique_key=KEY)]) if many else inbox.add(row(unique_key=KEY))

        took = time.monotonic() - began
        session.abort_transaction()
    assert took < 2
    assert caught.value.maybe_stored == (None if many else "new")
    # What was given up on is not stored later, and may be repeated.
    assert inbox.add(row(unique_key=KEY)).created


def test_maybe_stored(mongo_uri: str, jobs: Collection[Document], now: Now) -> None:
    """Q11: Where the insert was sent and its reply is missing, the error has the id, and the
    enqueue may be repeated under it without a second job."""
    with faulty_client(mongo_uri) as client:
        collection = client[jobs.database.name]["henri_jobs"]
        inbox = Inbox(collection, now, timedelta(seconds=3))

        with (
            failing(client, "insert", times=1, **LOST_REPLY),
            pytest.raises(StoreUnavailable, match=r"using\(id='new'\)") as caught,
        ):
            inbox.add(row())

        assert caught.value.maybe_stored == "new"
        repeated = inbox.add(row())
        assert (repeated.id, repeated.created) == ("new", False)
        assert collection.count_documents({}) == 1


def test_insert_is_repeated(mongo_uri: str, jobs: Collection[Document], now: Now) -> None:
    """Q11: A connection that breaks once is no error: the driver repeats the insert, once."""
    with faulty_client(mongo_uri) as client:
        inbox = Inbox(client[jobs.database.name]["henri_jobs"], now, timedelta(seconds=3))

        with failing(client, "insert", times=1, **CLOSED):
            assert inbox.add(row()).created
