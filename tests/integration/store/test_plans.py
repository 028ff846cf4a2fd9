"""Nothing that is asked of a large queue reads it all, or sorts it."""

from __future__ import annotations

import typing as t
from functools import partial

import pytest
from pymongo import MongoClient

from flask_henri_jobs.job import Job
from flask_henri_jobs.store import indexes
from flask_henri_jobs.store.admin import Admin
from flask_henri_jobs.store.candidates import Candidates
from flask_henri_jobs.store.figures import MOST_TIMED, Figures
from flask_henri_jobs.store.filters import JobFilter
from flask_henri_jobs.store.lookup import Lookup
from flask_henri_jobs.store.pruning import Pruning
from plans import Recorder
from rows import START, row_of_state

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from plans import Plan

STATES = ["pending", "running", "done", "dead"]
JOBS = 20_000


def rows() -> Iterator[Document]:
    for number in range(JOBS):
        fields: Document = {"queue": f"q{number % 3}", "priority": number // 4 % 3}
        if number % 10 < 5:
            fields["tenant"] = "acme"
        if number % 200 < 4:
            fields |= {"batch_id": "b1", "name": "rare"}
        if number % 200 < 8:
            fields["tags"] = ["rare", f"order:{number}"]
        if number % 7 == 0:
            fields["concurrency_key"] = f"key-{number % 5}"
        yield row_of_state(f"{number:06}", STATES[number % 4], START + number, **fields)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def database(mongo_uri: str, recorder: Recorder) -> Iterator[Database[Document]]:
    with MongoClient[dict[str, t.Any]](mongo_uri, event_listeners=[recorder]) as client:
        yield client["test_plans"]
        client.drop_database("test_plans")


@pytest.fixture(scope="module")
def large(database: Database[Document]) -> Collection[Document]:
    """A collection with some 20,000 jobs, 5,000 in each state, which the tests share."""
    collection = database["henri_jobs"]
    indexes.create(collection, [*Candidates.INDEXES, *Admin.INDEXES])
    collection.insert_many(rows())
    return collection


@pytest.fixture
def end() -> int:
    """A moment when all of it was enqueued."""
    return START + JOBS


class Asked:
    """Asks a question, and looks at the plans of what was sent for it."""

    def __init__(self, recorder: Recorder, database: Database[Document]) -> None:
        self._recorder = recorder
        self._database = database

    def __call__(self, question: Callable[[], object]) -> list[Plan]:
        self._recorder.commands.clear()
        question()
        plans = self._recorder.plans(self._database)
        assert plans
        for plan in plans:
            assert not {"COLLSCAN", "SORT"} & set(plan.stages), plan
        return plans


@pytest.fixture
def asked(recorder: Recorder, database: Database[Document]) -> Asked:
    return Asked(recorder, database)


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, 60),
        ({"state": "dead"}, 60),
        ({"tenant": "acme"}, 60),
        ({"tenant": "acme", "state": "done"}, 60),
        ({"state": "pending", "queue": "q1"}, 1000),
        ({"tag": "none"}, 0),
        ({"tenant": "acme", "tag": "none"}, 0),
        ({"tag": "rare"}, 60),
        ({"tag": "rare", "state": "dead"}, 60),
        ({"tag": "order:1", "tenant": "acme"}, 1),
        ({"batch": "b1"}, 400),
    ],
)
def test_page(large: Collection[Document], asked: Asked, given: dict[str, str], most: int) -> None:
    """B5: a page reads about as many documents as it has, or as it is allowed to."""
    which = JobFilter.read(**given)

    plans = asked(lambda: Lookup(large).page(which, limit=50, most_examined=1000))

    assert sum(plan.documents for plan in plans) <= most
    if which.batch is None:
        assert not any("$sort" in plan.stages for plan in plans)


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"state": "done"}, 0),
        ({"queue": "q1"}, 0),
        ({"state": "pending", "queue": "q1"}, 0),
        ({"batch": "b1", "state": "dead"}, 100),
        ({"tenant": "acme", "state": "dead"}, 2500),
        ({"tag": "rare"}, 0),
        ({"tag": "rare", "state": "dead"}, 0),
    ],
)
def test_count(large: Collection[Document], asked: Asked, given: dict[str, str], most: int) -> None:
    """What an index alone can count is counted without a document."""
    plans = asked(lambda: Lookup(large).count(JobFilter.read(**given)))

    assert sum(plan.documents for plan in plans) <= most


def test_figures(large: Collection[Document], asked: Asked, end: int) -> None:
    """Counts and the oldest jobs are read from the index; timings and names are bounded."""
    figures = Figures(large, lambda: end)

    assert sum(plan.documents for plan in asked(figures.counts)) == 0
    oldest = asked(lambda: figures.oldest(end))
    assert sum(plan.documents for plan in oldest) == 0
    assert sum(plan.keys for plan in oldest) < 500
    assert [plan.documents for plan in asked(lambda: figures.waiting_tasks(100))] == [100]
    last = large.find_one({"state": "pending"}, sort=[("priority", -1), ("run_at", -1)])
    assert last is not None
    in_front = asked(lambda: figures.in_front(Job(last), end, 50))
    assert sum(plan.documents for plan in in_front) == 0
    assert sum(plan.keys for plan in in_front) < 500
    assert [plan.documents <= MOST_TIMED for plan in asked(figures.timings)] == [True]


def test_tags(large: Collection[Document]) -> None:
    """The index of tags has a key for each tag, and none for a job without."""
    tagged = large.count_documents({"tags": {"$exists": True}})

    keys = large.database.command("validate", large.name)["keysPerIndex"]["fhj_tags"]

    assert 0 < tagged < JOBS // 10
    assert keys == 2 * tagged


@pytest.mark.parametrize(
    "given", [{"name": "rare"}, {"batch": "b1"}, {"tenant": "acme"}, {"tag": "rare"}]
)
def test_many(
    large: Collection[Document],
    batches: Collection[Document],
    asked: Asked,
    end: int,
    given: dict[str, str],
) -> None:
    """What is retried or deleted together is found by index, and by id."""
    admin = Admin(large, batches, lambda: end)
    which = JobFilter.read(**given, state="dead")
    before = admin.count(which)

    asked(lambda: admin.retry_many(which, most=10))
    asked(lambda: list(admin.delete_many(which, most=10)))
    assert admin.count(which) == before - 20


def test_one(
    large: Collection[Document], batches: Collection[Document], asked: Asked, end: int
) -> None:
    """What is asked of one job reads that job."""
    admin = Admin(large, batches, lambda: end)

    for question in (admin.find, admin.retry, admin.delete):
        for plan in asked(partial(question, "000003")):
            assert plan.documents <= 1


def test_prune(
    large: Collection[Document], batches: Collection[Document], asked: Asked, end: int
) -> None:
    """Q12: a step of pruning reads what it deletes, however much there is."""
    pruning = Pruning(large, batches, large.database["schedules"], lambda: end)
    before = large.count_documents({"state": "done"})

    plans = asked(lambda: pruning.prune("done", end, limit=100))

    assert sum(plan.documents for plan in plans) <= 200
    assert large.count_documents({"state": "done"}) == before - 100
