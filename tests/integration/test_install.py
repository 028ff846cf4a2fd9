"""Making, comparing and dropping what the queue needs in a database."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.errors import NotInstalled

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from flask_henri_jobs import HenriJobs
    from flask_henri_jobs.app_state import AppState
    from flask_henri_jobs.job import Document
    from integration.conftest import MakeApp


@pytest.fixture
def stored(jobs: HenriJobs) -> Collection[Document]:
    return jobs.database["henri_jobs"]


def test_installed_with_the_first_use(jobs: HenriJobs, stored: Collection[Document]) -> None:
    """Q13: the first enqueue of a process has seen to every index."""
    jobs.enqueue("mail")

    assert {"fhj_claim", "fhj_recent", "henri_jobs_unique"} <= stored.index_information().keys()
    assert jobs.state.store.problems() == []


def test_install_is_idempotent(jobs: HenriJobs) -> None:
    """Section 3: a second install makes nothing."""
    jobs.uninstall()

    assert "fhj_claim" in jobs.install()
    assert jobs.install() == []


def drop(stored: Collection[Document]) -> None:
    stored.drop_index("fhj_claim")


def make_another(stored: Collection[Document]) -> None:
    stored.drop_index("fhj_claim")
    stored.create_index([("state", 1), ("queue", 1)], name="fhj_claim")


@pytest.mark.parametrize("change", [drop, make_another])
def test_problems_are_told_and_mended(
    jobs: HenriJobs, stored: Collection[Document], change: Callable[[Collection[Document]], None]
) -> None:
    """Q13: an index that is missing, or has another shape, is named, and made by an install."""
    jobs.install()
    change(stored)

    (problem,) = jobs.state.store.problems()
    assert "fhj_claim" in problem

    assert jobs.install() == ["fhj_claim"]
    assert jobs.state.store.problems() == []


def test_worker_without_indexes(make_app: MakeApp) -> None:
    """Q13: where the app installs nothing by itself, a worker says what is missing, in a sentence
    where all of it is, and how to mend it."""
    from flask_henri_jobs import HenriJobs

    app = make_app(HENRI_JOBS_INSTALL=False)
    jobs = HenriJobs(app)
    with app.app_context():
        with pytest.raises(
            NotInstalled, match=r"^henri_jobs has none of its \d+ .*Run 'flask jobs install'\.$"
        ):
            jobs.run_worker(once=True)
        jobs.install()
        jobs.run_worker(once=True)
        assert jobs.count() == 0
    jobs.state_of(app).close()


def test_uninstall_drops_the_queue_alone(jobs: HenriJobs) -> None:
    """Section 3: an uninstall drops the queue's collections, and no other that begins so."""
    jobs.enqueue("mail")
    jobs.database["henri_jobs_of_mine"].insert_one({})

    assert "henri_jobs" in jobs.uninstall()

    assert jobs.database.list_collection_names() == ["henri_jobs_of_mine"]
    assert jobs.uninstall() == []


def test_every_collection_is_durable(jobs: HenriJobs) -> None:
    """A6: whatever the client says, claims, permits and outcomes are majority writes."""
    state: AppState = jobs.state
    for name in ("", "limits", "batches", "schedules"):
        collection = state.store.connection.collection(name)
        assert collection.write_concern.document == {"w": "majority", "j": True}
        assert collection.read_preference.mode == 0
