"""What a batch is, and how it ends: values alone."""

from __future__ import annotations

import json
import typing as t
from datetime import UTC, datetime

import pytest

from flask_henri_jobs.batch import (
    Batch,
    Counts,
    callback_key,
    callbacks_after,
    final_counts,
    summary,
)
from flask_henri_jobs.finishing import stored_options
from flask_henri_jobs.store.documents import new_row

NOW = 1_800_000_000_000


def row(**fields: t.Any) -> dict[str, t.Any]:
    return {"_id": "b", "name": None, "total": 4, "done": 0, "failed": 0, "sealed_at": NOW} | fields


@pytest.mark.parametrize(
    ("counted", "found", "failed"),
    [
        pytest.param((4, 1), (3, 1), 1, id="nothing is gone"),
        pytest.param((0, 0), (4, 0), 0, id="the counters are short, and nothing is gone"),
        pytest.param((9, 5), (4, 0), 0, id="the counters are too high, and nothing is gone"),
        pytest.param((4, 0), (3, 0), 0, id="a member that was counted as done is gone"),
        pytest.param((4, 1), (3, 0), 1, id="a member that was counted as dead is gone"),
        pytest.param((3, 0), (3, 0), 1, id="a member that was never counted is gone"),
        pytest.param((2, 0), (1, 1), 2, id="one counted as done is gone, and one never counted"),
        pytest.param((0, 0), (0, 0), 4, id="all are gone, and nobody counted"),
    ],
)
def test_final_counts(counted: tuple[int, int], found: tuple[int, int], failed: int) -> None:
    """B2: done is failed and succeeded together, and total; a member that is gone has ended."""
    batch = row(done=counted[0], failed=counted[1])

    assert final_counts(batch, *found) == Counts(total=4, done=4, failed=failed)


def test_more_members_than_were_sealed() -> None:
    """A member that slipped in beside the seal is counted at the end."""
    assert final_counts(row(total=2), 2, 1) == Counts(total=3, done=3, failed=1)


def test_numbers_of_henri() -> None:
    """What a henri runner counted arrives as floats, and is counted on."""
    assert final_counts(row(total=4.0, done=4.0, failed=1.0), 3, 0) == Counts(4, 4, 1)


@pytest.mark.parametrize(
    ("failed", "due"), [(0, ["callback", "on_success"]), (1, ["callback", "on_failure"])]
)
def test_callbacks(failed: int, due: list[str]) -> None:
    """B2: the callback always follows, and one of the two others."""
    batch = row(callback="a", on_success="b", on_failure="c")

    assert callbacks_after(batch, Counts(4, 4, failed)) == due
    assert callbacks_after(row(callback=None), Counts(4, 4, failed)) == []


def test_callback_keys() -> None:
    """B2: each callback has a unique key of its own."""
    keys = [callback_key("b", field) for field in ("callback", "on_success", "on_failure")]
    assert keys == ["batch:b", "batch:b:success", "batch:b:failure"]


def test_summary() -> None:
    """B2: a callback is told the id, the name and the counts."""
    assert summary(row(name="import"), Counts(4, 4, 1)) == {
        "id": "b",
        "name": "import",
        "total": 4,
        "done": 4,
        "failed": 1,
        "succeeded": 3,
    }


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"sealed_at": None}, "open"),
        ({"sealed_at": NOW}, "running"),
        ({"sealed_at": NOW, "finished_at": NOW}, "finished"),
    ],
)
def test_state(fields: dict[str, t.Any], state: str) -> None:
    """A batch is open, running or finished."""
    assert Batch(row(**fields)).state == state


def test_to_dict_is_json() -> None:
    """A batch is shown with its attribute names, and moments as ISO 8601."""
    shown = Batch(row(done=3, failed=1, created_at=NOW, tenant="acme")).to_dict()

    assert json.loads(json.dumps(shown)) == shown
    assert shown["created_at"] == "2027-01-15T08:00:00+00:00"
    assert (shown["succeeded"], shown["state"], shown["tenant"]) == (2, "running", "acme")


def test_not_from_a_database() -> None:
    """A batch that was made by hand says that it cannot be read anew."""
    with pytest.raises(RuntimeError, match="not read from a database"):
        Batch(row()).refresh()


def test_stored_options() -> None:
    """The options of a callback are stored with every default, by the names that henri has."""
    job = new_row(
        id="c",
        name="report",
        args="{}",
        now=NOW,
        run_at=NOW + 300_000,
        queue="low",
        priority=5,
        max_attempts=3,
        timeout_ms=30_000,
        tags=["order:42"],
    )

    assert json.loads(stored_options(job, NOW, at=None, tenant="acme")) == {
        "maxAttempts": 3,
        "priority": 5,
        "queue": "low",
        "tags": ["order:42"],
        "tenant": "acme",
        "timeout": 30_000,
        "wait": 300_000,
    }


def test_stored_moment() -> None:
    """A callback's moment is stored as such: it does not begin to count at the batch's end."""
    at = datetime(2027, 1, 15, 9, tzinfo=UTC)
    job = new_row(
        id="c", name="r", args="{}", now=NOW, run_at=NOW, queue="q", priority=0, max_attempts=1
    )

    options = json.loads(stored_options(job, NOW, at=at, tenant=None))

    assert options["at"] == round(at.timestamp() * 1000)
    assert "wait" not in options
