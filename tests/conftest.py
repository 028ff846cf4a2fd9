"""Servers and databases for every test."""

from __future__ import annotations

import os
import typing as t
import uuid

import pytest
from pymongo import MongoClient

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.store.mongod import find_mongod
from mongod import replica_set, standalone, three_members


@pytest.fixture(scope="session")
def has_mongod() -> None:
    """Skip where no ``mongod`` is installed; fail there under CI."""
    try:
        find_mongod()
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mongo_uri(has_mongod: None) -> t.Iterator[str]:
    """A replica set of one."""
    with replica_set() as deployment:
        yield deployment.uri


@pytest.fixture(scope="session")
def standalone_uri(has_mongod: None) -> t.Iterator[str]:
    """A server in no replica set."""
    with standalone() as deployment:
        yield deployment.uri


@pytest.fixture(scope="session")
def three_member_uri(has_mongod: None) -> t.Iterator[str]:
    """A replica set of three members."""
    with three_members() as deployment:
        yield deployment.uri


@pytest.fixture
def database_name(mongo_uri: str) -> t.Iterator[str]:
    """The name of a database on ``mongo_uri`` that is this test's alone, dropped after it."""
    name = f"test_{uuid.uuid4().hex}"
    yield name
    with MongoClient[dict[str, t.Any]](mongo_uri) as client:
        client.drop_database(name)
