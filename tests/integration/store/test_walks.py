"""Going through many jobs."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.store import walks
from flask_henri_jobs.store.walks import Walk, older_than, place_of
from rows import row_of_state

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document
    from rows import Now


@pytest.fixture
def twelve(jobs: Collection[Document], now: Now) -> Collection[Document]:
    """Twelve done jobs, three to a moment, between jobs of other states."""
    rows = [row_of_state(f"{n:02}", "done", now() + n // 3, tenant="acme") for n in range(12)]
    others = [row_of_state(state, state, now() + 1) for state in ("pending", "dead")]
    jobs.insert_many([*rows, *others])
    return jobs


IN_ORDER = ["02", "01", "00", "05", "04", "03", "08", "07", "06", "11", "10", "09"]


@pytest.mark.parametrize("tenant", [None, "acme"])
@pytest.mark.parametrize("bound", [1, 2, 5, 12, 13, 100])
def test_every_job_once(
    twelve: Collection[Document], monkeypatch: pytest.MonkeyPatch, tenant: str | None, bound: int
) -> None:
    """A walk passes each job of its state once, in order, whatever the bound of a look."""
    monkeypatch.setattr(walks, "MOST_EXAMINED", bound)

    steps = list(Walk(twelve, "done", tenant).steps({}))

    assert [row["_id"] for rows in steps for row in rows] == IN_ORDER
    assert max(len(rows) for rows in steps) <= bound


def test_what_fits(twelve: Collection[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk comes past any number of jobs that do not fit."""
    monkeypatch.setattr(walks, "MOST_EXAMINED", 2)
    assert [row["_id"] for rows in Walk(twelve, "done").steps({"_id": "09"}) for row in rows] == [
        "09"
    ]


def test_deleting_on_the_way(twelve: Collection[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted or changed behind a walk does not move it."""
    monkeypatch.setattr(walks, "MOST_EXAMINED", 4)
    passed = []
    for rows in Walk(twelve, "done").steps({}):
        passed += [row["_id"] for row in rows]
        twelve.delete_many({"_id": {"$in": passed}})

    assert passed == IN_ORDER


def test_part_of_the_way(twelve: Collection[Document], now: Now) -> None:
    """A look goes from behind one place to another."""
    walk = Walk(twelve, "done")
    first = walk.look({}, at_most=4)

    rest = walk.look({}, behind=place_of(first[-1]), until=older_than(now() + 2))

    assert [row["_id"] for row in first] == IN_ORDER[:4]
    assert [row["_id"] for row in rest] == IN_ORDER[4:6]
    assert walk.look({}, until=older_than(now())) == []
    assert walk.look({}, behind=place_of(rest[-1]), until=place_of(first[-1])) == []


def test_other_tenants(twelve: Collection[Document], now: Now) -> None:
    """T2: a tenant's walk passes no job of another tenant, or of none."""
    twelve.insert_one(row_of_state("none", "done", now()))
    twelve.insert_one(row_of_state("other", "done", now(), tenant="other"))

    assert [row["_id"] for row in Walk(twelve, "done", "other").look({})] == ["other"]
