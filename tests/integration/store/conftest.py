"""Collections with their indexes, a clock that a test moves, and jobs in any state."""

from __future__ import annotations

import typing as t

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.read_concern import ReadConcern

from flask_henri_jobs.store import indexes
from flask_henri_jobs.store.admin import Admin
from flask_henri_jobs.store.candidates import Candidates
from flask_henri_jobs.store.inbox import unique_index
from flask_henri_jobs.store.mongod import free_port
from plans import Recorder
from rows import Now, row_of_state

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from rows import Stored


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


@pytest.fixture
def stored(jobs: Collection[Document], now: Now) -> Stored:
    def store(job_id: str = "job", state: str = "pending", **fields: t.Any) -> Document:
        row = row_of_state(job_id, state, now(), **fields)
        jobs.insert_one(dict(row))
        return row

    return store


@pytest.fixture
def unreachable() -> t.Iterator[MongoClient[Document]]:
    """A client of a server that is not there."""
    uri = f"mongodb://127.0.0.1:{free_port()}/?serverSelectionTimeoutMS=50"
    with MongoClient[dict[str, t.Any]](uri) as client:
        yield client
