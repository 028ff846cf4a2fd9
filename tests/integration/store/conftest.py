"""Collections with their indexes, a clock that a test moves, and jobs in any state."""

from __future__ import annotations

import typing as t

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.read_concern import ReadConcern

from flask_henri_jobs.job import DEAD, DONE, RUNNING
from flask_henri_jobs.store import indexes
from flask_henri_jobs.store.admin import Admin
from flask_henri_jobs.store.candidates import Candidates
from flask_henri_jobs.store.documents import new_row
from flask_henri_jobs.store.inbox import unique_index
from mongod import free_port
from plans import Recorder

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document

START = 1_800_000_000_000


class Now:
    """The database server's time, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> int:
        return self.moment

    def advance(self, *, ms: int) -> int:
        """Move on, and return the new moment."""
        self.moment += ms
        return self.moment


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def recorder() -> Recorder:
    """Hears every command that is sent to ``database``."""
    return Recorder()


@pytest.fixture
def database(
    mongo_uri: str, database_name: str, recorder: Recorder
) -> t.Iterator[Database[Document]]:
    with MongoClient[dict[str, t.Any]](mongo_uri, event_listeners=[recorder]) as client:
        yield client.get_database(
            database_name,
            write_concern=WriteConcern("majority"),
            read_concern=ReadConcern("local"),
        )


@pytest.fixture
def jobs(database: Database[Document]) -> Collection[Document]:
    """The jobs' collection, with every index."""
    collection = database["henri_jobs"]
    indexes.create(collection, [*Candidates.INDEXES, *Admin.INDEXES, unique_index("henri_jobs")])
    return collection


@pytest.fixture
def batches(database: Database[Document]) -> Collection[Document]:
    return database["henri_jobs_batches"]


class Stored(t.Protocol):
    """Stores a job and returns its row."""

    def __call__(self, id: str = ..., state: str = ..., **fields: t.Any) -> Document: ...


def row_of_state(id: str, state: str, now: int, **fields: t.Any) -> Document:
    """Return the row of a job in a state, as the queue would have left it there."""
    row = new_row(
        id=id,
        name="mail",
        args="{}",
        now=now,
        run_at=now,
        queue="default",
        priority=0,
        max_attempts=5,
    )
    if state == RUNNING:
        claim = {"claimed_by": "host:1:runner", "claim_token": "token", "started_at": now}
        row |= {"attempts": 1, "claimed_at": now, "heartbeat_at": now, **claim}
    if state in {DONE, DEAD}:
        row |= {"attempts": 1, "finished_at": now, "claim_token": "token", "duration_ms": 20}
    if state == DEAD:
        row |= {"error_message": "ValueError: no", "error_stack": "…", "dead_reason": "failed"}
    return row | {"state": state} | fields


@pytest.fixture
def stored(jobs: Collection[Document], now: Now) -> Stored:
    def store(id: str = "job", state: str = "pending", **fields: t.Any) -> Document:
        row = row_of_state(id, state, now(), **fields)
        jobs.insert_one(dict(row))
        return row

    return store


@pytest.fixture
def unreachable() -> t.Iterator[MongoClient[Document]]:
    """A client of a server that is not there."""
    uri = f"mongodb://127.0.0.1:{free_port()}/?serverSelectionTimeoutMS=50"
    with MongoClient[dict[str, t.Any]](uri) as client:
        yield client
