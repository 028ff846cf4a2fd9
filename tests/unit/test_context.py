"""The job in hand."""

from __future__ import annotations

import typing as t
from datetime import UTC, datetime

import pytest

from flask_henri_jobs.context import RunningJob, current_job, entered
from flask_henri_jobs.errors import OutsideJob
from flask_henri_jobs.job import Job

RUN_AT = 1_800_000_000_000


def running(**fields: t.Any) -> RunningJob:
    return RunningJob(Job({"_id": "a", "attempts": 2, "run_at": RUN_AT, **fields}))


def test_outside_a_job() -> None:
    """Outside a job ``current_job`` is false, and asking it for anything says what to do."""
    assert not current_job
    assert repr(current_job) == "<no current job>"
    with pytest.raises(OutsideJob, match=r"current_job\.id was asked for outside a job"):
        _ = current_job.id


def test_inside_a_job() -> None:
    """Inside a job ``current_job`` stands for it, and afterwards no more."""
    with entered(running()):
        assert current_job
        assert (current_job.id, current_job.attempt) == ("a", 2)
        with entered(RunningJob(Job({"_id": "inner"}))):
            assert current_job.id == "inner"
        assert current_job.id == "a"
    assert not current_job


def test_due_at_is_run_at() -> None:
    """A job is due when it was to run."""
    assert running().due_at == datetime.fromtimestamp(RUN_AT / 1000, UTC)


@pytest.mark.parametrize("name", ["daily", "a:b", "recurring:x", "line\nbreak"])
def test_due_at_of_a_recurring_job(name: str) -> None:
    """S8: A recurring job knows its slot, which a retry does not move, whatever its name holds."""
    job = running(unique_key=f"recurring:{name}:1700000000000", run_at=RUN_AT)

    assert job.due_at == datetime.fromtimestamp(1_700_000_000, UTC)
