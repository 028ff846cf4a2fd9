"""Schedules that are declared with tasks and in the settings, and what is refused at once (S4)."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask

from flask_henri_jobs import ConfigError, HenriJobs
from flask_henri_jobs.declared import declared_schedules, problems_of
from flask_henri_jobs.schedule import Schedule
from flask_henri_jobs.settings import Settings


def settings(**schedules: t.Any) -> Settings:
    read = {name: Schedule.read(name, **definition) for name, definition in schedules.items()}
    return Settings(schedules=read)


@pytest.fixture
def jobs() -> HenriJobs:
    jobs = HenriJobs()

    @jobs.task(name="report", cron="0 9 * * mon-fri", timezone="Europe/Paris", overlap="skip")
    def report(days: int = 1) -> None:
        pass

    @jobs.task(name="clean", every="30s", misfire="skip")
    def clean() -> None:
        pass

    @jobs.task(name="mail")
    def mail(user_id: int) -> None:
        pass

    return jobs


def test_a_task_that_recurs(jobs: HenriJobs) -> None:
    """S1: a task's options are a schedule of its name; a task without them has none."""
    declared = declared_schedules(settings(), jobs.tasks)
    assert declared == {
        "clean": Schedule(name="clean", task="clean", spec="every:30000", misfire="skip"),
        "report": Schedule(
            name="report",
            task="report",
            spec="cron:0 9 * * mon-fri",
            timezone="Europe/Paris",
            overlap="skip",
        ),
    }


def test_the_settings_win(jobs: HenriJobs) -> None:
    """S1: an entry of the settings takes the place of the task's own, as a whole."""
    given = settings(report={"every": "1h"}, other={"task": "mail", "cron": "@daily"})
    declared = declared_schedules(given, jobs.tasks)
    assert sorted(declared) == ["clean", "other", "report"]
    assert (declared["report"].spec, declared["report"].overlap) == ("every:3600000", "allow")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "*/90 * * * *"}, "The schedule 'x': "),
        ({"every": "0.5s"}, "every is 500ms"),
        ({"every": "1m", "cron": "@daily"}, "both of 'cron' and 'every'"),
        ({"timezone": "Europe/Paris"}, "neither of 'cron' and 'every'"),
        ({"overlap": "skip"}, "neither of 'cron' and 'every'"),
        ({"every": "1m", "timezone": "Europe/Paris"}, "has no time zone"),
        ({"cron": "@daily", "timezone": "Europe/Pariss"}, "Did you mean 'Europe/Paris'"),
        ({"every": "1m", "overlap": "never"}, "overlap is 'never'"),
        ({"every": "1m", "misfire": True}, "misfire is True"),
    ],
)
def test_bad_options(options: dict[str, t.Any], message: str) -> None:
    """S4: the decorator refuses a bad schedule, and names it."""
    with pytest.raises(ConfigError, match="The schedule 'x'") as refused:
        HenriJobs().task(name="x", **options)(lambda: None)
    assert message in str(refused.value)


def test_a_task_that_needs_arguments() -> None:
    """S4: a task that cannot be called without arguments cannot recur by its own options."""

    def mail(user_id: int) -> None:
        pass

    with pytest.raises(ConfigError, match="The schedule 'x' calls its task without arguments"):
        HenriJobs().task(name="x", every="1m")(mail)


def test_bad_settings() -> None:
    """S4: a bad entry of the settings fails the app's start, and is named."""
    app = Flask("shop")
    app.config["HENRI_JOBS_SCHEDULES"] = {"nightly": {"cron": "0 0 30 2 *"}}
    with pytest.raises(ConfigError, match="The schedule 'nightly': "):
        HenriJobs(app)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"task": "gone"}, "The schedule 'x': No task is named 'gone'"),
        ({"task": "mail"}, "The schedule 'x': The task mail does not take these arguments"),
        ({"task": "mail", "args": {"id": 7}}, "The schedule 'x': The task mail does not take"),
        ({"task": "mail", "args": {"user_id": object()}}, "The schedule 'x': args.user_id"),
    ],
)
def test_what_cannot_be_fired(jobs: HenriJobs, definition: dict[str, t.Any], message: str) -> None:
    """S4: a schedule whose task is unknown, or takes other arguments, is a problem of its own."""
    given = settings(x={"every": "1m", **definition}, fine={"task": "clean", "every": "1m"})
    [problem] = problems_of(declared_schedules(given, jobs.tasks), jobs.tasks, given)
    assert str(problem).startswith(message)
