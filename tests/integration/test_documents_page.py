"""``docs/reference/documents.md`` names what is stored, and nothing else."""

from __future__ import annotations

import logging
import re
import typing as t
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pytest

from flask_henri_jobs import Batch, HenriJobs, Job, current_job
from flask_henri_jobs.building import BatchOptions
from flask_henri_jobs.job import Field
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.store.transactions import TransactionRaced
from flask_henri_jobs.store.wish import Wish
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask_henri_jobs.job import Document
    from integration.conftest import MakeApp

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "documents.md"
COLLECTIONS = {
    "Jobs": "henri_jobs",
    "Permits": "henri_jobs_limits",
    "Rates": "henri_jobs_rates",
    "Pauses": "henri_jobs_pauses",
    "Batches": "henri_jobs_batches",
    "Schedules": "henri_jobs_schedules",
    "Runners": "henri_jobs_runners",
}
KINDS: dict[str, type] = {
    "text": str,
    "int": int,
    "moment": int,
    "date": datetime,
    "bool": bool,
    "list of text": list,
    "document": dict,
}


def documented() -> dict[str, dict[str, str]]:
    """Return the kind that the page gives each field, by collection."""
    sections = re.split(r"(?m)^## ", PAGE.read_text())[1:]
    rows = {section.splitlines()[0]: section for section in sections}
    return {
        COLLECTIONS[title]: dict(
            re.findall(
                r"(?m)^\| `(\w+)` \| (text|int|moment|date|bool|list of text|document) \|", section
            )
        )
        for title, section in rows.items()
    }


Seen = dict[str, dict[str, list[t.Any]]]

UNSTORED = frozenset({"headers"})
"""What is read, and not written yet."""


@pytest.fixture(scope="module")
def pages() -> dict[str, dict[str, str]]:
    return documented()


@pytest.fixture
def jobs(make_app: MakeApp) -> Iterator[HenriJobs]:
    app = make_app(HENRI_JOBS_SCHEDULES={"declared": {"task": "record", "every": "1h"}})
    jobs = HenriJobs(app)
    with app.app_context():
        yield jobs
    jobs.state_of(app).close()


def test_every_stored_field_has_an_entry(jobs: HenriJobs, pages: dict[str, dict[str, str]]) -> None:
    """Section 3: whatever the queue does, it stores the fields of the page, each of its kind."""
    seen: Seen = {name: defaultdict(list) for name in pages}

    def look() -> None:
        for collection, fields in seen.items():
            for row in jobs.database[collection].find():
                for name, value in row.items():
                    fields[name].append(value)

    _live(jobs, look)

    assert {name: sorted(fields) for name, fields in seen.items()} == {
        name: sorted(fields) for name, fields in pages.items()
    }
    for collection, fields in seen.items():
        for name, values in fields.items():
            kind = KINDS[pages[collection][name]]
            assert all(isinstance(value, kind) for value in values if value is not None), name


def test_every_attribute_reads_a_field_of_the_page(pages: dict[str, dict[str, str]]) -> None:
    """Section 3: what an attribute of a job or batch reads is on the page."""
    for owner, collection in ((Job, "henri_jobs"), (Batch, "henri_jobs_batches")):
        read = {one.key for one in vars(owner).values() if isinstance(one, Field)}
        assert read - UNSTORED <= pages[collection].keys()


def test_indexes_are_those_of_the_page(jobs: HenriJobs) -> None:
    """Q13: the page has each index, with its keys in order, and no other."""
    entries = re.findall(r"(?m)^\| `(\w+)` \| `([^`]+)`(, unique)? \|", PAGE.read_text())
    declared = [
        (index.name, _told(index.keys), ", unique" if index.options.get("unique") else "")
        for _, indexes in jobs.state.store._declared()
        for index in indexes
    ]

    assert sorted(entries) == sorted(declared)


def _told(keys: dict[str, int]) -> str:
    return ", ".join(key if way == 1 else f"{key} {way}" for key, way in keys.items())


def _live(jobs: HenriJobs, look: t.Callable[[], None]) -> None:
    """Bring the queue into every state that stores a field, and look at it in each."""

    @jobs.task(
        name="record",
        concurrency={"limit": 1, "group": "records"},
        rate="100/m",
        store_result=True,
        keep_logs=True,
    )
    def record(batch: Document | None = None) -> object:
        logging.getLogger("shop").warning("recorded")
        current_job.set_progress(1, 2, "half")
        # Its line among the runners is written by another thread.
        wait_until(lambda: bool(jobs.runners()), "the runner to be listed")
        look()
        return object() if batch else 7

    @jobs.task(name="fail", max_attempts=1, expires="1h", unique=True, redact=("number",))
    def fail(number: int = 0) -> None:
        raise ValueError(number)

    @jobs.task(name="end", max_attempts=1)
    def end(batch_id: str) -> None:
        jobs.batches.cancel(batch_id)
        look()

    @jobs.task(name="conflict")
    def conflict() -> None:
        with current_job.transaction():
            raise TransactionRaced("Somebody was quicker.")

    conflict.delay()
    jobs.pause(queue="elsewhere")
    record.using(tags=("order:42",)).delay()
    _lose_one(jobs)
    callbacks = BatchOptions(callback=record, on_success=record, on_failure=record)
    with jobs.batch(**callbacks | BatchOptions(name="all", tenant="acme")) as batch:
        batch.add(end, batch.id)
    fail.delay()
    fail.using(on_conflict="replace").delay()
    _schedule(jobs)
    look()
    jobs.run_worker(once=True)
    look()


def _schedule(jobs: HenriJobs) -> None:
    jobs.schedules.add(
        "own",
        task="fail",
        cron="@daily",
        timezone="Europe/Paris",
        args={"number": 2},
        queue="low",
        priority=3,
        overlap="skip",
        misfire="skip",
    )
    jobs.schedules.pause("own")
    jobs.schedules.run_now("own")


def _lose_one(jobs: HenriJobs) -> None:
    """Have a job be recovered from a process that died."""
    store = jobs.state.store
    store.claims.take(Wish(runner="host:1:gone", queues=QueueTurns(), at_most=1))
    assert store.leases.recover_from("host:1:gone", "was killed by signal 9")
