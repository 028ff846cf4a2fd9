"""What attackers try: operators for ids, passwords in what is printed, code in what is stored."""

from __future__ import annotations

import ast
import base64
import logging
import traceback
import typing as t
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from flask import Flask
from pymongo import MongoClient

import flask_henri_jobs
import shop
from flask_henri_jobs import HenriJobs, HenriJobsError, StoreUnavailable
from flask_henri_jobs.store.mongod import free_port
from plans import Recorder

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(flask_henri_jobs.__file__).parent

MARK = "seven-of-nine"
OPERATOR = {"$gt": MARK}
TOO_LONG = MARK + 500 * "x"

PASSWORD = "hen@ri:jo/b%s"
SHAPES = (
    PASSWORD,
    quote(PASSWORD, safe=""),
    quote_plus(PASSWORD),
    base64.b64encode(PASSWORD.encode()).decode(),
    base64.urlsafe_b64encode(PASSWORD.encode()).decode(),
)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def queue(mongo_uri: str, recorder: Recorder) -> Iterator[tuple[Flask, HenriJobs]]:
    """A queue whose every command is heard; nothing that these tests try is stored in it."""
    app = Flask("shop")
    app.config["HENRI_JOBS_DATABASE"] = "security"
    with MongoClient[dict[str, t.Any]](mongo_uri, event_listeners=[recorder]) as client:
        jobs = HenriJobs(app, client=lambda: client)

        @jobs.task(name="note")
        def note(text: str = "") -> None:
            """Do nothing."""

        with app.app_context():
            jobs.install()
        yield app, jobs
        client.drop_database("security")


@pytest.fixture
def jobs(queue: tuple[Flask, HenriJobs]) -> Iterator[HenriJobs]:
    app, jobs = queue
    with app.app_context():
        yield jobs


Door: t.TypeAlias = "Callable[[HenriJobs, t.Any], object]"


def listed_by(name: str) -> Door:
    return lambda jobs, given: jobs.list(**{name: given})


def enqueued_with(option: str) -> Door:
    return lambda jobs, given: jobs.enqueue("note", **{option: given})


DOORS: dict[str, Door] = {
    "get": lambda jobs, given: jobs.get(given),
    **{
        f"list by {name}": listed_by(name)
        for name in ("state", "queue", "name", "tenant", "batch", "tag", "reason")
    },
    "count": lambda jobs, given: jobs.count(queue=given),
    "dead": lambda jobs, given: jobs.dead(name=given),
    "retry": lambda jobs, given: jobs.retry(given),
    "retry_all": lambda jobs, given: jobs.retry_all(queue=given),
    "delete": lambda jobs, given: jobs.delete(given),
    "delete_all": lambda jobs, given: jobs.delete_all(name=given),
    "wake": lambda jobs, given: jobs.wake(given),
    "enqueue": lambda jobs, given: jobs.enqueue(given),
    "perform_now": lambda jobs, given: jobs.perform_now(given),
    **{
        f"using {name}": enqueued_with(name)
        for name in ("queue", "unique", "id", "tenant", "priority", "max_attempts")
    },
    "using tags": lambda jobs, given: jobs.enqueue("note", tags=[given]),
    "tenant": lambda jobs, given: jobs.tenant(given).__enter__(),
    "batch name": lambda jobs, given: jobs.batch(name=given),
    "batch callback": lambda jobs, given: jobs.batch(callback=given),
    "batches.get": lambda jobs, given: jobs.batches.get(given),
    "batches.open": lambda jobs, given: jobs.batches.open(given),
    "batches.jobs": lambda jobs, given: jobs.batches.jobs(given),
    "batches.cancel": lambda jobs, given: jobs.batches.cancel(given),
    "batches.delete": lambda jobs, given: jobs.batches.delete(given),
    "batches.list by state": lambda jobs, given: jobs.batches.list(state=given),
    "batches.list by tenant": lambda jobs, given: jobs.batches.list(tenant=given),
    "schedules.get": lambda jobs, given: jobs.schedules.get(given),
    "schedules.add": lambda jobs, given: jobs.schedules.add(given, task="note", every="1h"),
    "schedules.add task": lambda jobs, given: jobs.schedules.add("s", task=given, every="1h"),
    "schedules.pause": lambda jobs, given: jobs.schedules.pause(given),
    "schedules.resume": lambda jobs, given: jobs.schedules.resume(given),
    "schedules.run_now": lambda jobs, given: jobs.schedules.run_now(given),
    "schedules.remove": lambda jobs, given: jobs.schedules.remove(given),
}


@pytest.mark.parametrize("given", [OPERATOR, TOO_LONG], ids=["an operator", "too long"])
@pytest.mark.parametrize("door", DOORS)
def test_no_input_is_an_operator(
    jobs: HenriJobs, recorder: Recorder, door: str, given: object
) -> None:
    """Q9: An operator, or a text that is too long, is refused at every door, and never sent."""
    recorder.commands.clear()

    with pytest.raises(HenriJobsError) as refused:
        DOORS[door](jobs, given)

    assert not isinstance(refused.value, StoreUnavailable)
    assert MARK not in str(recorder.commands)


def test_operators_in_arguments_are_text(jobs: HenriJobs) -> None:
    """Q8: What a task is given may look like an operator: it is stored as text."""
    job = jobs.enqueue("note", {"text": OPERATOR})

    assert job.refresh().args == {"text": OPERATOR}
    assert isinstance(jobs.database["henri_jobs"].find_one({"_id": job.id})["args"], str)  # type: ignore[index]


def test_nothing_that_is_stored_is_run() -> None:
    """Nothing is loaded by pickle or YAML, compiled or evaluated: what is stored is JSON text."""
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "ruamel", "code"}
    functions = {"eval", "exec", "compile", "__import__"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    used = {alias.name.partition(".")[0] for alias in names}
                case ast.ImportFrom(module=module, level=0):
                    used = {str(module).partition(".")[0]}
                case ast.Call(func=ast.Name(id=name)) if name in functions:
                    used = {name}
                case _:
                    continue
            assert used.isdisjoint(modules | functions), path


@pytest.fixture(params=["away", "refuses"])
def uri(request: pytest.FixtureRequest, mongo_uri: str) -> str:
    """A connection string of a server that is not there, and one with a password that is wrong."""
    port = free_port()
    if request.param == "refuses":
        with MongoClient[dict[str, t.Any]](mongo_uri) as client:
            port = t.cast("tuple[str, int]", client.address)[1]
    return f"mongodb://ann:{quote_plus(PASSWORD)}@127.0.0.1:{port}/?serverSelectionTimeoutMS=300"


def assert_no_password(text: str) -> None:
    assert not [shape for shape in SHAPES if shape in text], text


@pytest.mark.parametrize(
    "command", [["status"], ["install"], ["check"], ["enqueue", "shop.flaky"], ["worker", "--once"]]
)
def test_no_command_shows_the_password(uri: str, command: list[str]) -> None:
    """No command that the database refuses, or is away for, prints the password."""
    app = shop.create_app(HENRI_JOBS_URI=uri, HENRI_JOBS_ENQUEUE_TIMEOUT="500ms")

    ended = app.test_cli_runner().invoke(args=["jobs", *command])

    assert ended.exit_code == 3, ended.output
    assert_no_password(ended.output)
    shop.jobs.state_of(app).close()


def test_no_error_log_or_repr_shows_the_password(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does any error with all that led to it, any log, or the ``repr`` of what is in hand."""
    app = Flask("shop")
    app.config.update(HENRI_JOBS_URI=uri, HENRI_JOBS_ENQUEUE_TIMEOUT="500ms")
    jobs = HenriJobs(app)
    with app.app_context(), caplog.at_level(logging.DEBUG):
        with pytest.raises(StoreUnavailable) as refused:
            jobs.enqueue("note")
        state = jobs.state
        store = state.store_as_it_is
        shown = [jobs, state, state.settings, store, store.connection, store.inbox, refused.value]
        state.close()

    error = refused.value
    assert_no_password("".join(traceback.format_exception(error)))
    assert_no_password(f"{error} {error.hint} {vars(error)}")
    assert_no_password(" ".join(map(repr, shown)))
    assert_no_password(caplog.text)
