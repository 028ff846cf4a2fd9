"""A task whose claim is gone is told to end, since what it does counts no more (A9)."""

from __future__ import annotations

import time
import typing as t
from datetime import timedelta

from flask_henri_jobs import HenriJobs, current_job, signals
from flask_henri_jobs.errors import JobLost
from flask_henri_jobs.settings import Settings

if t.TYPE_CHECKING:
    import pytest
    from flask import Flask

    from .conftest import Perform


def test_lost(jobs: HenriJobs, perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another runner has the job: JobLost is raised in the task, its ``finally`` runs, and its
    outcome is dropped and told as lost."""
    monkeypatch.setattr(Settings, "heartbeat", property(lambda _: timedelta(seconds=0.05)))
    told: list[str] = []
    seen: list[object] = []

    def lost(_app: Flask, job: t.Any) -> None:
        told.append(job.id)

    @jobs.task
    def work() -> None:
        others = {"$set": {"claim_token": "another's", "claimed_by": "host:2:another"}}
        jobs.state.store.admin.jobs.update_one({"_id": current_job.id}, others)
        try:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                time.sleep(0.001)
        except JobLost as error:
            seen.append(type(error))
            raise
        finally:
            seen.append("finally")

    with signals.job_lost.connected_to(lost):
        job = perform(work.delay())

    assert seen == [JobLost, "finally"]
    assert told == [job.id]
    assert (job.state, job.row["claim_token"]) == ("running", "another's")
    assert job.history == []
