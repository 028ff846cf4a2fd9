"""Runner processes that fire schedules, on one database and a clock that a test moves."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask
from pymongo import MongoClient

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.clock import Clock, Reading
from flask_henri_jobs.scheduling import Schedules
from flask_henri_jobs.store import Store
from flask_henri_jobs.store.connection import Connection
from flask_henri_jobs.worker.loop import Outages
from flask_henri_jobs.worker.scheduling import Scheduling
from plans import Recorder

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from flask_henri_jobs.app_state import AppState
    from flask_henri_jobs.job import Document

START = 1_800_000_000_000
"""2027-01-15 08:00:00 UTC."""


class World:
    """The server's clock, and time itself."""

    def __init__(self) -> None:
        self.server = START
        self.seconds = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.server += round(seconds * 1000)
        self.seconds += seconds

    def set_back(self, seconds: float) -> None:
        """Change the server's clock, while no time passes."""
        self.server -= round(seconds * 1000)

    def reading(self) -> Reading:
        """Return what the server answers when it is asked for the time."""
        return Reading(server=self.server, at=self.seconds, member="only")

    def clock(self) -> Clock:
        """Return a process's own clock, which was just set."""
        return Clock(self.reading, lambda: self.seconds)


@pytest.fixture
def world() -> World:
    return World()


class Process:
    """One runner process of an app, as far as schedules go."""

    def __init__(self, app: Flask, jobs: HenriJobs, client: MongoClient[t.Any], world: World):
        self.app = app
        self.jobs = jobs
        self.settings = jobs.state_of(app).settings
        connection = Connection(client, self.settings.database, self.settings.collection)
        connection.clock = world.clock()
        self.store = Store.open(self.settings, connection)
        self.scheduling = self.scheduling_with(self.store)

    def scheduling_with(self, store: Store) -> Scheduling:
        """Return what fires its schedules, with another store."""
        return Scheduling.of(self.app, self.jobs.tasks, store, self.settings, Outages())

    @property
    def schedules(self) -> Schedules:
        """The process's ``jobs.schedules``, on the clock that the test moves."""
        # Of an app's state it asks for the settings and the store, which this has too.
        return Schedules(t.cast("AppState", self), self.jobs.tasks)

    def round(self) -> float:
        """Fire what is due. Return the seconds until the next look."""
        return self.scheduling.round()


class Start(t.Protocol):
    """Starts a process of an app, which declares schedules."""

    def __call__(
        self, schedules: dict[str, t.Any] | None = None, *, app: str = ..., **tasks: t.Any
    ) -> Process: ...


@pytest.fixture
def recorder() -> Recorder:
    """Hears every command that the processes send."""
    return Recorder()


@pytest.fixture
def client(mongo_uri: str, recorder: Recorder) -> t.Iterator[MongoClient[t.Any]]:
    with MongoClient[dict[str, t.Any]](mongo_uri, event_listeners=[recorder]) as client:
        yield client


@pytest.fixture
def start(client: MongoClient[t.Any], mongo_uri: str, database_name: str, world: World) -> Start:
    def start(
        schedules: dict[str, t.Any] | None = None, *, app: str = "shop", **tasks: t.Any
    ) -> Process:
        flask_app = Flask(app)
        flask_app.config.update(
            HENRI_JOBS_URI=mongo_uri,
            HENRI_JOBS_DATABASE=database_name,
            HENRI_JOBS_SCHEDULES=schedules or {},
        )
        jobs = HenriJobs(flask_app)
        for name, options in ({"tick": {}, "tock": {}} | tasks).items():
            _declare(jobs, name, options)
        process = Process(flask_app, jobs, client, world)
        process.store.install()
        return process

    return start


def _declare(jobs: HenriJobs, name: str, options: dict[str, t.Any]) -> None:
    @jobs.task(name=name, **options)
    def task(day: int = 1) -> None:
        """Do nothing: these tests ask what is stored, and when."""


@pytest.fixture
def rows(client: MongoClient[t.Any], database_name: str) -> Collection[Document]:
    """The jobs as they are stored."""
    return client[database_name]["henri_jobs"]


@pytest.fixture
def entries(client: MongoClient[t.Any], database_name: str) -> Collection[Document]:
    """The schedules as they are stored."""
    return client[database_name]["henri_jobs_schedules"]


@pytest.fixture
def slots(rows: Collection[Document]) -> Callable[[str], list[float]]:
    """Return the slots of a schedule that have a job, in seconds since the start of the test."""

    def slots(name: str = "tick") -> list[float]:
        keys = [row["unique_key"] for row in rows.find().sort("_id")]
        start = f"recurring:{name}:"
        return [(int(key.removeprefix(start)) - START) / 1000 for key in keys if start in key]

    return slots
