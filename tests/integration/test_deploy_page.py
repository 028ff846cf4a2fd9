"""``docs/how-to/deploy.md``: what it tells service managers and the database is true."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
from flask import Flask
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.settings import Settings
from flask_henri_jobs.store.embedded import share_server
from flask_henri_jobs.worker.supervisor import LEAVING_SECONDS
from mongod import temporary_folder

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md").read_text()


@pytest.mark.parametrize(
    "timeout", [r"TimeoutStopSec=(\d+)", r"stop_grace_period: (\d+)s", r"docker stop -t (\d+)"]
)
def test_stop_timeouts_outlast_the_grace(timeout: str) -> None:
    """W5: whoever stops a worker gives it its grace, and the time to put back what outlasts it."""
    [grace] = re.findall(r"--grace (\d+)s", PAGE)
    assert int(grace) == Settings().grace.total_seconds()

    assert {int(seconds) for seconds in re.findall(timeout, PAGE)} == {35}
    assert int(grace) + LEAVING_SECONDS < 35


@pytest.fixture(scope="module")
def server(has_mongod: None) -> t.Iterator[str]:
    """The URI of a server that asks for a password, as its administrator."""
    with temporary_folder() as folder:
        server = share_server(folder, None)
        yield server.uri
        server.leave()


def test_a_role_that_may_not_create(server: str) -> None:
    """The role on the page is enough for a worker and a web process that install nothing."""
    [text] = re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)
    database = json.loads(text)["privileges"][0]["resource"]["db"]
    with MongoClient[dict[str, t.Any]](server) as admin:
        admin[database].command(json.loads(text))
        roles = [{"role": "performs_jobs", "db": database}]
        admin[database].command("createUser", "worker", pwd="secret", roles=roles)
        admin[database].command("createUser", "deploy", pwd="secret", roles=["readWrite"])

    deploy, worker = (_app(server, database, name) for name in ("deploy", "worker"))
    with deploy.app_context():
        HenriJobs(deploy).install()
    with worker.app_context():
        jobs = HenriJobs(worker)
        with pytest.raises(OperationFailure, match="not authorized"):
            jobs.database.create_collection("other")
        _use(jobs)


def _app(server: str, database: str, user: str) -> Flask:
    app = Flask(user)
    host = server.rpartition("@")[2].split("/")[0]
    app.config.from_mapping(
        HENRI_JOBS_URI=f"mongodb://{user}:secret@{host}/{database}?directConnection=true",
        HENRI_JOBS_INSTALL=False,
    )
    return app


def _use(jobs: HenriJobs) -> None:
    """Do all that an application and its operators do."""
    done: list[str] = []

    @jobs.task(name="note", concurrency=2, every="1h")
    def note(what: str = "slot", batch: dict[str, t.Any] | None = None) -> None:
        done.append(what)

    note.using(unique="one").delay("single")
    with jobs.batch(callback=note, callback_args={"what": "callback"}) as batch:
        batch.add_many(note, [{"what": "member"}] * 2)
    jobs.schedules.run_now("note")
    jobs.run_worker(once=True)

    assert sorted(done) == ["callback", "member", "member", "single", "slot"]
    assert jobs.status()["queues"][0]["done"] == 5
    assert jobs.retry(jobs.list()[0].id).state == "pending"
    assert jobs.prune(keep_done="0s")["done"] > 0
    assert jobs.delete_all(state="pending") == 1
