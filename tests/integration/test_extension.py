"""Setting the extension up: in one app and in several, in this process and in its children."""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
from flask import Flask
from pymongo import MongoClient

from flask_henri_jobs import ConfigError, HenriJobs, StoreUnavailable
from flask_henri_jobs.store.mongod import free_port

if t.TYPE_CHECKING:
    from integration.conftest import MakeApp

ROOT = Path(__file__).parents[2]
PRELOADED = Path(__file__).with_name("preloaded.py")


@pytest.fixture
def listener() -> t.Iterator[socket.socket]:
    """Something that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def declare(jobs: HenriJobs) -> t.Any:
    @jobs.task(name="add")
    def add(a: int, b: int = 2) -> int:
        return a + b

    return add


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_init_app_starts_nothing(listener: socket.socket) -> None:
    """``init_app`` starts no thread, opens no file and no connection; the first use does."""
    port = listener.getsockname()[1]
    app = Flask("shop")
    app.config.from_mapping(
        HENRI_JOBS_URI=f"mongodb://127.0.0.1:{port}/", HENRI_JOBS_ENQUEUE_TIMEOUT="200ms"
    )
    threads, files = threading.enumerate(), open_files()
    jobs = HenriJobs(app)
    task = declare(jobs)

    assert threading.enumerate() == threads
    assert open_files() == files
    with pytest.raises(TimeoutError):
        listener.accept()

    with app.app_context(), pytest.raises(StoreUnavailable):
        task.delay(1)
    listener.accept()[0].close()
    jobs.state_of(app).close()


def test_config_is_left_alone(make_app: MakeApp) -> None:
    """The user's config is after ``init_app`` what it was before."""
    app = make_app(HENRI_JOBS_QUEUES=["high"], HENRI_JOBS_BACKOFF={"base": "1s"})
    before = copy.deepcopy(dict(app.config))
    HenriJobs(collection="reports").init_app(app)

    assert dict(app.config) == before


def test_init_app_twice(app: Flask) -> None:
    """The same app twice is a mistake, and is told."""
    jobs = HenriJobs(app)

    with pytest.raises(ConfigError) as refused:
        jobs.init_app(app)
    assert str(refused.value) == "init_app was called twice with the app 'shop'. Call it once."


def test_two_in_one_collection(app: Flask) -> None:
    """Two queues of an app are refused one collection."""
    HenriJobs(app)

    with pytest.raises(ConfigError) as refused:
        HenriJobs(app)
    assert str(refused.value) == (
        "The app 'shop' has a queue in the collection 'henri_jobs' already."
        ' Give the second one another: HenriJobs(collection="other_jobs").'
    )


def test_two_in_one_app(app: Flask, jobs: HenriJobs) -> None:
    """Two queues in one app share settings and nothing else; each has its own commands."""
    reports = HenriJobs(app, collection="nightly_reports")
    try:
        job, report = declare(jobs).delay(1), declare(reports).delay(2)

        assert [one.id for one in jobs.list()] == [job.id]
        assert [one.id for one in reports.list()] == [report.id]
        assert reports.get(job.id) is None
        names = jobs.database.list_collection_names()
        assert {"henri_jobs", "nightly_reports"} <= set(names)
        assert {"jobs", "nightly-reports"} <= app.cli.commands.keys()
        assert app.extensions["henri_jobs"] is jobs
    finally:
        reports.state_of(app).close()


def test_several_apps(make_app: MakeApp) -> None:
    """One ``HenriJobs`` serves several apps; the context says which queue is meant."""
    jobs = HenriJobs()
    task = declare(jobs)

    def create_app(name: str) -> Flask:
        app = make_app(name, HENRI_JOBS_COLLECTION=name)
        jobs.init_app(app)
        return app

    shop, bank = create_app("shop"), create_app("bank")
    with shop.app_context():
        sold = task.delay(1)
    with bank.app_context():
        assert jobs.get(sold.id) is None
        paid = task.delay(2)
        assert jobs.count() == 1
        with shop.app_context():
            assert [job.id for job in jobs.list()] == [sold.id]
        assert [job.id for job in jobs.list()] == [paid.id]
    for app in (shop, bank):
        jobs.state_of(app).close()


def test_no_app_context(app: Flask) -> None:
    """Without an app context, each call says that it needs one."""
    jobs = HenriJobs(app)
    task = declare(jobs)

    for call in (lambda: task.delay(1), lambda: jobs.get("a"), lambda: jobs.enqueue("b")):
        with pytest.raises(RuntimeError, match=r"within an app context\. Call it in a request"):
            call()


def test_another_app(make_app: MakeApp) -> None:
    """In the context of an app that was not set up, the line to write is told."""
    task = declare(HenriJobs(make_app()))

    with make_app("bank").app_context(), pytest.raises(RuntimeError) as refused:
        task.delay(1)
    assert str(refused.value) == (
        "The app 'bank' is not registered with this 'HenriJobs' instance."
        " Call 'jobs.init_app(app)' in your app factory."
    )


def test_client_is_made_once(make_app: MakeApp, mongo_uri: str) -> None:
    """The application's own client is asked for once, however many threads come at once."""
    made: list[MongoClient[t.Any]] = []
    together = threading.Barrier(8)

    def make_client() -> MongoClient[t.Any]:
        made.append(MongoClient(mongo_uri))
        return made[-1]

    app = make_app()
    jobs = HenriJobs(app, client=make_client)
    task = declare(jobs)
    assert not made

    def enqueue(number: int) -> None:
        together.wait(10)
        with app.app_context():
            task.delay(number)

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with app.app_context():
        assert jobs.count() == 8
        assert jobs.client is made[0]
    jobs.state_of(app).close()
    assert len(made) == 1
    assert made[0].admin.command("ping")["ok"], "the application's client stays open"
    made[0].close()
    made[0].close()


@pytest.mark.parametrize(
    ("in_uri", "set_to", "used"),
    [
        ("{name}", None, "{name}"),
        ("elsewhere", "{name}", "{name}"),
        ("", None, "my_shop"),
        ("admin", None, "my_shop"),
    ],
)
def test_database_of_the_client(
    mongo_uri: str, database_name: str, in_uri: str, set_to: str | None, used: str
) -> None:
    """The database is the one that is set; else the client's own default; else the app's name."""
    uri = mongo_uri.replace("/?", f"/{in_uri.format(name=database_name)}?")
    app = Flask("My Shop")
    app.config["HENRI_JOBS_DATABASE"] = set_to and set_to.format(name=database_name)
    app.config["HENRI_JOBS_INSTALL"] = False
    with MongoClient[t.Any](uri) as client:
        jobs = HenriJobs(app, client=lambda: client)
        with app.app_context():
            assert jobs.database.name == used.format(name=database_name)


def test_client_must_be_a_function(mongo_uri: str) -> None:
    """A client in place of a function that makes one is refused: it does not survive a fork."""
    with MongoClient[t.Any](mongo_uri) as client, pytest.raises(ConfigError) as refused:
        HenriJobs(client=client)  # type: ignore[arg-type]

    assert str(refused.value) == (
        "HenriJobs(client=) is a MongoClient, and a function is due."
        " Say client=lambda: mongo.cx: each process needs a client of its own."
    )


@pytest.mark.parametrize("client", ["given", "own"])
def test_fork(mongo_uri: str, database_name: str, client: str) -> None:
    """A child of a fork makes a client of its own, and neither process disturbs the other."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PRELOADED), mongo_uri, database_name, client],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["parent", "child", "child", "parent", "4"]


def test_requests_do_not_queue_for_an_absent_database() -> None:
    """Q11: With the database away, many requests fail each in its own time, and not in turn."""
    app = Flask("shop")
    app.config.from_mapping(
        HENRI_JOBS_URI=f"mongodb://127.0.0.1:{free_port()}/", HENRI_JOBS_ENQUEUE_TIMEOUT="500ms"
    )
    jobs = HenriJobs(app)
    task = declare(jobs)
    failed: list[StoreUnavailable] = []

    def request() -> None:
        with app.app_context(), pytest.raises(StoreUnavailable) as refused:
            task.delay(1)
        failed.append(refused.value)

    threads = [threading.Thread(target=request) for _ in range(10)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert time.monotonic() - began < 2.5
    assert len(failed) == 10
    assert {error.maybe_stored for error in failed} == {None}
    jobs.state_of(app).close()


def test_indexes_are_made_at_first_use(app: Flask, jobs: HenriJobs) -> None:
    """The first use in a process sees to the indexes; ``HENRI_JOBS_INSTALL`` turns that off."""
    declare(jobs).delay(1)

    assert "henri_jobs_unique" in jobs.database["henri_jobs"].index_information()
    assert jobs.install() == []


def test_no_install(make_app: MakeApp) -> None:
    """With ``HENRI_JOBS_INSTALL`` off nothing is made but what is enqueued."""
    app = make_app(HENRI_JOBS_INSTALL=False)
    jobs = HenriJobs(app)
    with app.app_context():
        declare(jobs).delay(1)

        assert list(jobs.database["henri_jobs"].index_information()) == ["_id_"]
    jobs.state_of(app).close()


def test_imports(make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``HENRI_JOBS_IMPORTS`` names modules that are imported when a worker or command starts."""
    (tmp_path / "shop_mail.py").touch()
    (tmp_path / "shop_broken.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(tmp_path)

    def import_tasks(*modules: str) -> None:
        app = make_app(HENRI_JOBS_IMPORTS=modules)
        HenriJobs(app).state_of(app).import_tasks()

    import_tasks("shop_mail")
    assert sys.modules.pop("shop_mail")
    with pytest.raises(ConfigError) as refused:
        import_tasks("shop_mail", "shop_male.tasks")
    assert str(refused.value) == (
        "HENRI_JOBS_IMPORTS names 'shop_male.tasks', and there is no such module."
        " Give the name that an import statement would have."
    )
    # What is missing inside a module of the user's is not the setting's fault.
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        import_tasks("shop_broken")
    sys.modules.pop("shop_mail")
