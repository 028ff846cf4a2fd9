"""Applications with a queue, each in a database that is the test's alone."""

from __future__ import annotations

import threading
import typing as t

import pytest
from flask import Flask

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.worker.post import Post, Role
from flask_henri_jobs.worker.runner import Runner


class MakeApp(t.Protocol):
    def __call__(self, name: str = "shop", **config: t.Any) -> Flask:
        """Return an app that is configured for this test's database, and whatever is given."""


@pytest.fixture
def make_app(mongo_uri: str, database_name: str) -> MakeApp:
    def make(name: str = "shop", **config: t.Any) -> Flask:
        app = Flask(name)
        app.config.from_mapping(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
        # The first enqueue makes all collections, on a disk that other tests share.
        app.config.from_mapping(HENRI_JOBS_ENQUEUE_TIMEOUT="20s")
        app.config.from_mapping(config)
        return app

    return make


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app()


@pytest.fixture
def jobs(app: Flask) -> t.Iterator[HenriJobs]:
    """The extension, in the context of its app."""
    jobs = HenriJobs(app)
    with app.app_context():
        yield jobs
    jobs.state_of(app).close()


@pytest.fixture
def start(app: Flask, jobs: HenriJobs) -> t.Iterator[t.Callable[[], None]]:
    """Start a worker beside the test."""
    runners: list[tuple[Runner, threading.Thread]] = []

    def start() -> None:
        state, post = jobs.state, Post(role=Role.JOBS)
        runner = Runner(app, jobs.tasks, state.store, state.settings, threads=4, post=post)
        runners.append((runner, threading.Thread(target=runner.run, daemon=True)))
        runners[-1][1].start()

    yield start
    for runner, thread in runners:
        runner.stop()
        thread.join(20)
