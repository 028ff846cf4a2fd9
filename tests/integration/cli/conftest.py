"""The shop's commands, in this process and in one of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from pymongo import MongoClient

import shop

if t.TYPE_CHECKING:
    from click.testing import Result
    from flask import Flask
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document, Job

TESTS = Path(shop.__file__).parent


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> t.Iterator[Flask]:
    app = shop.create_app(
        HENRI_JOBS_URI=mongo_uri,
        HENRI_JOBS_DATABASE=database_name,
        HENRI_JOBS_POLL_INTERVAL="50ms",
    )
    yield app
    shop.jobs.state_of(app).close()


@pytest.fixture
def rows(mongo_uri: str, database_name: str) -> t.Iterator[Collection[Document]]:
    """The jobs as they are stored."""
    with MongoClient[dict[str, t.Any]](mongo_uri) as client:
        yield client[database_name]["henri_jobs"]


class Enqueue(t.Protocol):
    def __call__(self, name: str, args: t.Any = None, **options: t.Any) -> Job: ...


@pytest.fixture
def enqueue(app: Flask) -> Enqueue:
    """Store a job of the shop, by its task's name."""

    def store(name: str, args: t.Any = None, **options: t.Any) -> Job:
        with app.app_context():
            return shop.jobs.enqueue(name, args, **options)

    return store


class Run(t.Protocol):
    def __call__(self, *args: str, code: int = 0, stdin: str | None = None) -> Result: ...


@pytest.fixture
def run(app: Flask) -> Run:
    """Run ``flask jobs ...`` in this process, and see that it ends with a code."""
    runner = app.test_cli_runner()

    def invoke(*args: str, code: int = 0, stdin: str | None = None) -> Result:
        result = runner.invoke(args=["jobs", *args], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code == code, result.output
        return result

    return invoke


class Answer(t.Protocol):
    def __call__(self, *args: str, code: int = 0) -> t.Any: ...


@pytest.fixture
def answer(run: Run) -> Answer:
    """Run a command with ``--json``, and return what it says."""

    def read(*args: str, code: int = 0) -> t.Any:
        return json.loads(run(*args, "--json", code=code).stdout)

    return read


@pytest.fixture
def environment(mongo_uri: str, database_name: str) -> dict[str, str]:
    """What a process of the shop has in its environment."""
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    return inherited | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "TERM": "xterm",
        "TZ": "UTC",
        "FLASK_APP": "shop",
        "FLASK_HENRI_JOBS_URI": mongo_uri,
        "FLASK_HENRI_JOBS_DATABASE": database_name,
        "FLASK_HENRI_JOBS_POLL_INTERVAL": "50ms",
    }


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, "-m", "flask", "jobs"]


class RunProcess(t.Protocol):
    def __call__(
        self, *args: str, code: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run_process(command: list[str], environment: dict[str, str]) -> RunProcess:
    """Run ``flask jobs ...`` in a process whose input and output are no terminal."""

    def start(*args: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [*command, *args],
            env=environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        before, traceback, _ = ended.stderr.partition("Traceback")
        # A task's own is in a worker's log, below the line that says it is dead.
        assert not traceback or " is dead (" in before
        assert ended.returncode == code, ended.stderr
        return ended

    return start
