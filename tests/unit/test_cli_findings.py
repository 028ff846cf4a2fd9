"""What ``flask jobs check`` finds without asking the database."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.app_state import AppState
from flask_henri_jobs.cli.findings import configuration_findings
from flask_henri_jobs.settings import Settings

URI = "mongodb://db/shop"


def nothing() -> None:
    """Do what the tasks of this file do."""


def found(jobs: HenriJobs, client: t.Any = None, **config: t.Any) -> list[tuple[str, str]]:
    """Return what each finding is about, and how it begins."""
    keys = {f"HENRI_JOBS_{name.upper()}": value for name, value in config.items()}
    settings = Settings.from_config(keys, app_name="shop", instance_path="instance")
    findings = configuration_findings(AppState(settings, client), jobs.tasks)
    assert all(finding["hint"] for finding in findings)
    return [(finding["about"], finding["message"].partition(":")[0]) for finding in findings]


@pytest.fixture
def jobs() -> HenriJobs:
    jobs = HenriJobs()
    jobs.task(name="shop.print")(nothing)
    return jobs


def test_nothing_wrong(jobs: HenriJobs) -> None:
    """With a database of its own and a task, nothing is found."""
    assert found(jobs, uri=URI) == []
    assert found(jobs, uri=URI, queues=["default", "low"]) == []


def test_embedded_databases(jobs: HenriJobs) -> None:
    """An embedded database is found, asked for or not; the application's own client is none."""
    assert found(jobs) == [("settings", "HENRI_JOBS_URI is not set")]
    assert found(jobs, uri="disk") == [("settings", "HENRI_JOBS_URI is 'disk'")]
    assert found(jobs, client=object) == []


def test_a_backoff_that_does_not_fit_the_settings(jobs: HenriJobs) -> None:
    """It is found that a task waits longer than the settings allow."""
    jobs.task(name="shop.mail", backoff={"base": "2m"})(nothing)

    (finding,) = found(jobs, uri=URI, backoff={"base": "1s", "max": "1m"})
    assert finding == (
        "tasks",
        "backoff= of shop.mail has a base of 2m and a max of 1m.",
    )


def test_no_tasks() -> None:
    """It is found that no task is declared."""
    assert found(HenriJobs(), uri=URI) == [("tasks", "No task is declared")]


def test_task_of_the_module_that_was_run(jobs: HenriJobs) -> None:
    """A task that is named after ``__main__`` is found."""
    jobs.task(name="__main__.mail")(nothing)

    (finding,) = found(jobs, uri=URI)
    assert finding[1].startswith("The task __main__.mail is declared in the module that was run")


def test_queue_that_is_left_out(jobs: HenriJobs) -> None:
    """A task is found whose queue the workers of this application do not take."""
    jobs.task(name="shop.low", queue="low")(nothing)

    assert [message for _, message in found(jobs, uri=URI, queues=["default"])] == [
        "The task shop.low goes to the queue 'low', which is not in HENRI_JOBS_QUEUES."
    ]


def test_schedule_of_an_unknown_task(jobs: HenriJobs) -> None:
    """A schedule is found whose task is not declared, and one whose task is, is not."""
    schedules = {
        "nightly": {"cron": "@daily", "task": "shop.print"},
        "weekly": {"every": "1w", "task": "shop.prune"},
    }

    assert found(jobs, uri=URI, schedules=schedules) == [("schedules", "The schedule 'weekly'")]
