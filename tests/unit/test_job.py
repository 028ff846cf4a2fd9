"""What a job shows of its row."""

from __future__ import annotations

import json
import typing as t
from datetime import UTC, datetime, timedelta

import pytest

from flask_henri_jobs.errors import ConfigError, JobFailed
from flask_henri_jobs.job import DEAD_REASONS, Document, Job, keeps_key
from flask_henri_jobs.store.documents import new_row

NOW = 1_764_560_000_123
MOMENT = datetime(2025, 12, 1, 3, 33, 20, 123_000, UTC)


def row(**fields: t.Any) -> Document:
    made = new_row(
        id="a",
        name="mail",
        args='{"user_id":7}',
        now=NOW,
        run_at=NOW,
        queue="default",
        priority=0,
        max_attempts=5,
    )
    return made | fields


def test_new_job() -> None:
    """A new row reads as a waiting job, without what is absent when unused."""
    job = Job(row())

    assert (job.id, job.name, job.queue, job.state) == ("a", "mail", "default", "pending")
    assert job.args == {"user_id": 7}
    assert job.run_at == job.created_at == MOMENT
    assert (job.attempts, job.max_attempts, job.history) == (0, 5, [])
    for absent in (
        "unique_key",
        "tenant",
        "batch_id",
        "error",
        "result",
        "result_error",
        "duration",
        "dead_reason",
    ):
        assert getattr(job, absent) is None
    assert not {"unique_key", "concurrency_key", "batch_id", "tenant"} & job.row.keys()


def test_numbers_of_a_henri_runner() -> None:
    """Numbers that JavaScript wrote arrive as floats, and read as what they are."""
    history = [{"at": float(NOW), "attempt": 1.0, "duration": 12.5, "message": "no", "runner": "h"}]
    job = Job(
        row(
            run_at=float(NOW),
            attempts=2.0,
            priority=-1.0,
            timeout_ms=30_000.0,
            history=json.dumps(history),
        )
    )

    assert job.run_at == MOMENT
    assert (job.attempts, job.priority) == (2, -1)
    assert isinstance(job.attempts, int)
    assert job.timeout == timedelta(seconds=30)
    assert job.history[0] == {
        "at": MOMENT,
        "attempt": 1,
        "duration": timedelta(milliseconds=12.5),
        "message": "no",
        "runner": "h",
    }


@pytest.mark.parametrize("reason", DEAD_REASONS)
def test_dead_reason(reason: str) -> None:
    """A dead job shows its reason; one of henri's, which has none, has failed."""
    assert Job(row(state="dead", dead_reason=reason)).dead_reason == reason
    assert Job(row(state="dead")).dead_reason == "failed"
    assert Job(row(state="pending", dead_reason=reason)).dead_reason is None


class OneRow:
    """A source of one row, which has changed since."""

    def __init__(self, now: Document) -> None:
        self.now = now

    def row_of(self, job_id: str) -> Document:
        assert job_id == "a"
        return self.now

    def wait_for_end(self, job_id: str, timeout: float | None) -> Document:
        assert (job_id, timeout) == ("a", 2.0)
        return self.now


def test_refresh() -> None:
    """``refresh`` takes a new snapshot into the same object."""
    job = Job(row(), OneRow(row(state="running")))

    assert job.refresh() is job
    assert job.state == "running"


@pytest.mark.parametrize("timeout", [2.0, timedelta(seconds=2), "2s"])
def test_wait(timeout: float | timedelta | str) -> None:
    """``wait`` returns a done job's result."""
    job = Job(row(), OneRow(row(state="done", result='{"n":1}')))

    assert job.wait(timeout) == {"n": 1}
    assert job.state == "done"


@pytest.mark.parametrize("timeout", [-1, "soon", True])
def test_wait_for_no_duration(timeout: t.Any) -> None:
    """A timeout that is no duration is refused, and nothing is asked."""
    with pytest.raises(ConfigError, match=r"^timeout is"):
        Job(row(), OneRow(row(state="done"))).wait(timeout)


def test_wait_for_a_job_that_dies() -> None:
    """``wait`` raises where the job is dead, with the error that killed it."""
    job = Job(row(), OneRow(row(state="dead", error_message="ValueError: no")))

    with pytest.raises(JobFailed, match="ValueError: no"):
        job.wait(2)


def test_a_job_that_was_not_read() -> None:
    """A job without a source cannot be read anew, and says so."""
    with pytest.raises(RuntimeError, match="was not read from a database"):
        Job(row()).refresh()


def test_to_dict() -> None:
    """``to_dict`` is JSON: moments as ISO 8601 with an offset, durations as ``…_ms``."""
    shown = Job(
        row(
            state="dead",
            started_at=NOW,
            duration_ms=20,
            args='{"at":{"$henri":"datetime"}}',
            history=json.dumps(
                [{"at": NOW, "attempt": 1, "duration": 20, "message": "m", "runner": None}]
            ),
        )
    ).to_dict()

    assert json.loads(json.dumps(shown)) == shown
    assert shown["started_at"] == "2025-12-01T03:33:20.123000+00:00"
    assert (shown["duration_ms"], shown["timeout_ms"], shown["finished_at"]) == (20, None, None)
    assert shown["args"] == {"at": {"$henri": "datetime"}}
    assert shown["history"] == [
        {
            "at": "2025-12-01T03:33:20.123000+00:00",
            "attempt": 1,
            "duration_ms": 20,
            "message": "m",
            "runner": None,
        }
    ]


def test_equality() -> None:
    """Two snapshots are equal where they show the same, and hash by the job's id."""
    assert Job(row()) == Job(row())
    assert Job(row()) != Job(row(state="done"))
    assert Job(row()) != "a"
    assert hash(Job(row())) == hash(Job(row(state="done")))


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("recurring:daily:1", True),
        ("batch:b", True),
        ("after:a", True),
        ("mail:recurring:x", False),
        ("batches", False),
        (None, False),
    ],
)
def test_own_keys(key: str | None, kept: bool) -> None:
    """Q7: Only the keys that the queue writes itself stay with a row that ended."""
    assert keeps_key(key) is kept
