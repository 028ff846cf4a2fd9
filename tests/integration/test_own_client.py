"""The client of a runner, which the code of tasks never sees (W7)."""

from __future__ import annotations

import gc
import time
import typing as t

import pymongo
import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from flask_henri_jobs import HenriJobs, current_job
from flask_henri_jobs.store.connection import Connection, client_of
from mongod import standalone, wait_until

if t.TYPE_CHECKING:
    from integration.conftest import MakeApp


def test_a_task_that_closes_the_client_stops_no_runner(jobs: HenriJobs) -> None:
    """W7: outcomes are written and the next jobs performed, whatever a task does to the client that
    the application has; progress lands too."""
    closed: list[bool] = []

    @jobs.task(name="close", max_attempts=1)
    def close() -> None:
        jobs.client.close()
        closed.append(True)

    @jobs.task(name="later", priority=1)
    def later(number: int) -> None:
        current_job.set_progress(number, 3)

    first = close.delay()
    others = [later.delay(number) for number in range(3)]
    database, uri = jobs.database.name, jobs.state.settings.uri

    jobs.run_worker(once=True)

    assert closed == [True]
    with MongoClient[t.Any](uri) as client:
        rows = {row["_id"]: row for row in client[database]["henri_jobs"].find()}
    assert {row["state"] for row in rows.values()} == {"done"}
    assert set(rows) == {first.id, *(job.id for job in others)}
    assert rows[others[2].id]["progress"]["done"] == 2


def test_tasks_have_the_application_s_client(jobs: HenriJobs) -> None:
    """W7, X2: what a task enqueues, reads and commits goes by ``jobs.client``, and never by the
    runner's; afterwards the application goes on with it."""
    seen: list[object] = []

    @jobs.task(name="look")
    def look() -> None:
        with current_job.transaction() as session:
            seen.extend([jobs.client, session.client])
            jobs.database["effects"].insert_one({"_id": "once"}, session=session)

    job = look.delay()

    jobs.run_worker(once=True)

    assert seen == [jobs.client, jobs.client]
    assert job.refresh().state == "done"
    assert jobs.database["effects"].count_documents({}) == 1
    assert jobs.state.store.clock.renew().member is not None


def test_the_server_s_time_is_measured_once(jobs: HenriJobs) -> None:
    """C1: the runner's store goes by the clock of the application's."""
    with jobs.state.runner_store() as store:
        assert store.connection.client is not jobs.client
        assert store.clock is jobs.state.store.clock
        client = store.connection.client
        assert store.clock.source[0] == store.connection._read_clock

    assert client._closed
    assert jobs.state.store.clock.source[0] == jobs.state.store.connection._read_clock


def test_closing_does_not_wait_for_a_server(has_mongod: None) -> None:
    """W10: a worker that stops while the database is away is not held up by its sessions there."""
    with standalone() as deployment:
        connection = Connection(client_of(deployment.uri), "closing", "henri_jobs")
        connection.collection().insert_one({})
        deployment.kill()
        with pytest.raises(PyMongoError), pymongo.timeout(1):
            connection.collection().find_one()

        began = time.monotonic()
        connection.close()

        assert time.monotonic() - began < connection.client.options.server_selection_timeout / 2
        assert connection.client._closed


def test_an_application_s_own_client_is_shared(make_app: MakeApp, mongo_uri: str) -> None:
    """A client that the application made cannot be made again."""
    app = make_app()
    with MongoClient[t.Any](mongo_uri) as client:
        jobs = HenriJobs(app, client=lambda: client)
        with app.app_context(), jobs.state.runner_store() as store:
            assert store is jobs.state.store
            assert store.connection.client is client


def test_a_runner_needs_one_client_only(make_app: MakeApp) -> None:
    """W3: a worker that has nothing to do has no connection open but the runner's: each client
    that is open has threads of the driver that wake up twice a second."""
    app = make_app()
    jobs = HenriJobs(app)

    with app.app_context():
        jobs.run_worker(once=True)
        client = jobs.state.store_as_it_is.connection.client
        assert client.nodes == frozenset()
        jobs.client.admin.command("ping")
        assert client.nodes != frozenset()


def test_a_store_apart_leaves_nothing_open(make_app: MakeApp) -> None:
    """W6: a supervisor that has put everything back has no connection."""
    app = make_app()
    jobs = HenriJobs(app)

    with app.app_context():
        with jobs.state.store_apart() as store:
            assert store.runners.of_machine("another") == []
        assert store.connection.client._closed
        assert jobs.state.store_as_it_is.connection.client.nodes == frozenset()


def test_a_dropped_app_s_client(make_app: MakeApp) -> None:
    """An app that is dropped has its client closed when the next one opens its own, and not by the
    collector: that runs in the middle of anything, such as the setting of a context variable."""
    app = make_app()
    jobs = HenriJobs(app)
    with app.app_context():
        jobs.count()
        client = jobs.client
    del app, jobs
    gc.collect()
    assert not is_closed(client)

    following = make_app()
    others = HenriJobs(following)
    with following.app_context():
        others.count()
    wait_until(lambda: is_closed(client), "the client to be closed")
    others.state_of(following).close()


def is_closed(client: MongoClient[t.Any]) -> bool:
    return client._closed
