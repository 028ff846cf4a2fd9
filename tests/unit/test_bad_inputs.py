"""Every bad input is refused, in the words that ``tests/bad_inputs.py`` lists."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask

from bad_inputs import (
    BAD_FILTERS,
    BAD_IDS,
    BAD_OPTIONS,
    BAD_PAUSES,
    BAD_SETTINGS,
    BAD_TASK_OPTIONS,
)
from flask_henri_jobs import HenriJobs
from flask_henri_jobs.errors import ConfigError, InvalidFilter
from flask_henri_jobs.settings import Settings

if t.TYPE_CHECKING:
    from flask_henri_jobs import Task


def mail(user_id: t.Any, *, subject: str = "Hello") -> None: ...


@pytest.fixture
def jobs() -> t.Iterator[HenriJobs]:
    """The extension in an app context; nobody listens at its address."""
    app = Flask("shop")
    app.config["HENRI_JOBS_URI"] = "mongodb://127.0.0.1:1/"
    jobs = HenriJobs(app)
    with app.app_context():
        yield jobs


@pytest.fixture
def task(jobs: HenriJobs) -> Task[..., None]:
    return jobs.task(name="mail")(mail)


@pytest.mark.parametrize(("config", "message"), BAD_SETTINGS)
def test_bad_settings(config: dict[str, t.Any], message: str) -> None:
    """A bad setting is refused by its name, with what is allowed."""
    with pytest.raises(ConfigError) as refused:
        Settings.from_config(config, app_name="shop", instance_path="instance")

    assert str(refused.value) == message


@pytest.mark.parametrize(("options", "message"), BAD_TASK_OPTIONS)
def test_bad_task_options(jobs: HenriJobs, options: dict[str, t.Any], message: str) -> None:
    """A bad option of a task is refused at its declaration, and the task is not declared."""
    with pytest.raises(ConfigError) as refused:
        jobs.task(name="mail", **options)(mail)

    assert str(refused.value) == message
    assert "mail" not in jobs.tasks


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options(
    jobs: HenriJobs, task: Task[..., None], options: dict[str, t.Any], message: str
) -> None:
    """A bad option of an enqueue is refused by ``using`` and ``jobs.enqueue`` alike."""
    with pytest.raises(ConfigError) as refused:
        task.using(**options)
    assert str(refused.value) == message

    with pytest.raises(ConfigError) as refused:
        jobs.enqueue("henri/task", **options)
    assert str(refused.value) == message


@pytest.mark.parametrize(("filters", "message"), BAD_FILTERS)
def test_bad_filters(jobs: HenriJobs, filters: dict[str, t.Any], message: str) -> None:
    """Q9: A filter that is not text is refused, before the database is asked."""
    for ask in (jobs.list, jobs.count, jobs.retry_all, jobs.delete_all):
        with pytest.raises(InvalidFilter) as refused:
            ask(**filters)
        assert str(refused.value) == message


@pytest.mark.parametrize(("which", "message"), BAD_PAUSES)
def test_bad_pauses(jobs: HenriJobs, which: dict[str, t.Any], message: str) -> None:
    """X4: What is paused and resumed is one queue, task or tenant, by its name."""
    for verb, ask in (("pause", jobs.pause), ("resume", jobs.resume)):
        with pytest.raises(InvalidFilter) as refused:
            ask(**which)
        assert str(refused.value) == message.replace("jobs.pause", f"jobs.{verb}")


@pytest.mark.parametrize(("job_id", "message"), BAD_IDS)
def test_bad_ids(jobs: HenriJobs, job_id: t.Any, message: str) -> None:
    """Q9: An id that is not text is refused, before the database is asked."""
    for ask in (jobs.get, jobs.retry, jobs.delete, jobs.cancel, jobs.explain):
        with pytest.raises(InvalidFilter) as refused:
            ask(job_id)
        assert str(refused.value) == message
