"""An app whose worker is run by the test, and what its database and its signals say."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask

from faults import faulty_client
from flask_henri_jobs import HenriJobs
from hearing import Heard

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.store import Store

Document: t.TypeAlias = dict[str, t.Any]


@pytest.fixture
def client(mongo_uri: str) -> Iterator[MongoClient[Document]]:
    """The client of the worker; a test lets its commands fail."""
    with faulty_client(mongo_uri) as client:
        yield client


@pytest.fixture
def jobs(client: MongoClient[Document]) -> HenriJobs:
    return HenriJobs(client=lambda: client)


@pytest.fixture
def app(database_name: str, jobs: HenriJobs) -> Iterator[Flask]:
    app = Flask("shop")
    app.config.update(HENRI_JOBS_DATABASE=database_name, HENRI_JOBS_POLL_INTERVAL="20ms")
    app.config["HENRI_JOBS_BACKOFF"] = {"base": "1s", "max": "1m"}
    jobs.init_app(app)
    with app.app_context():
        jobs.install()
        yield app


@pytest.fixture
def store(app: Flask, jobs: HenriJobs) -> Store:
    return jobs.state.store


@pytest.fixture
def stored(app: Flask, jobs: HenriJobs) -> Collection[Document]:
    """The jobs as they are stored."""
    return jobs.database["henri_jobs"]


@pytest.fixture
def heard(app: Flask) -> Iterator[Heard]:
    """The signals that are sent, in order."""
    with Heard().listening(app) as heard:
        yield heard
