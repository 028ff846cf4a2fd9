"""The options of a task and of an enqueue."""

from __future__ import annotations

import inspect
import typing as t
from datetime import UTC, datetime, timedelta

import pytest

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.options import (
    EnqueueOptions,
    Overrides,
    TaskDefaults,
    TaskOptions,
)
from flask_henri_jobs.refused_options import (
    CELERY_ENQUEUE,
    CELERY_TASK,
)

AT = datetime(2030, 1, 1, tzinfo=UTC)


def names_of(options: t.Any) -> set[str]:
    return set(inspect.get_annotations(options))


def test_nothing_given() -> None:
    """Without options, everything is left to the task and the settings."""
    assert Overrides.read({}) == Overrides()
    assert TaskDefaults.read({}, "the task a") == TaskDefaults()


def test_none_is_not_given() -> None:
    """None leaves an option out, but for a key of None and a tenant of None, which mean none."""
    everything = dict.fromkeys(names_of(EnqueueOptions))
    assert Overrides.read(everything) == Overrides(never_unique=True, no_tenant=True)
    assert TaskDefaults.read(dict.fromkeys(names_of(TaskOptions)), "the task a") == TaskDefaults()


def test_what_is_read() -> None:
    """Options are kept in their exact types."""
    read = Overrides.read({"wait": "5m", "expires": 60, "queue": "low", "on_conflict": "raise"})

    assert read == Overrides(
        wait=timedelta(minutes=5),
        expires=timedelta(minutes=1),
        queue="low",
        on_conflict="raise",
    )


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        ({"queue": "a"}, {"priority": 1}, {"queue": "a", "priority": 1}),
        ({"queue": "a"}, {"queue": "b"}, {"queue": "b"}),
        ({"queue": "a"}, {"queue": None}, {}),
        ({"wait": "5m"}, {"at": AT}, {"at": AT}),
        ({"at": AT}, {"wait": "5m"}, {"wait": "5m"}),
        ({"at": AT}, {"wait": None}, {"at": AT}),
        ({"unique": None}, {"queue": "a"}, {"unique": None, "queue": "a"}),
        ({"unique": None}, {"unique": "k"}, {"unique": "k"}),
        ({"unique": "k"}, {"unique": None}, {"unique": None}),
        ({"on_conflict": "raise"}, {"unique": "k"}, {"on_conflict": "raise", "unique": "k"}),
        ({"tags": ("a",)}, {"tags": ["b", "c", "b"]}, {"tags": ("b", "c")}),
        ({"tags": ("a",)}, {"tags": None}, {}),
        ({"expires": AT}, {"id": "a"}, {"expires": AT, "id": "a"}),
    ],
)
def test_chained(first: dict[str, t.Any], then: dict[str, t.Any], both: dict[str, t.Any]) -> None:
    """Options over others are as if both were given, and the later word wins."""
    before = Overrides.read(first)

    assert before.merged(then) == Overrides.read(both)
    assert before == Overrides.read(first)


@pytest.mark.parametrize("name", sorted(CELERY_TASK))
def test_celery_options_of_a_task(name: str) -> None:
    """Celery's names are refused with ours."""
    with pytest.raises(ConfigError) as refused:
        TaskDefaults.read({name: 1}, "the task a")

    assert str(refused.value) == (
        f"There is no option {name}= of the task a; it is Celery's. {CELERY_TASK[name]}"
    )


@pytest.mark.parametrize("name", sorted(CELERY_ENQUEUE))
def test_celery_options_of_an_enqueue(name: str) -> None:
    """Celery's names are refused with ours."""
    with pytest.raises(ConfigError, match=f"There is no option {name}= of an enqueue; it is Cel"):
        Overrides.read({name: 1})


def test_each_option_is_in_one_list() -> None:
    """An option is known, or refused as Celery's."""
    assert not names_of(TaskOptions) & CELERY_TASK.keys()
    assert not names_of(EnqueueOptions) & CELERY_ENQUEUE.keys()


@pytest.mark.parametrize("name", ["batch", "recurring", "after", "batch:7"])
def test_names_of_the_queues_own(name: str) -> None:
    """Q7: a task whose unique keys would look like the queue's own is refused."""
    with pytest.raises(ConfigError, match="which is the queue's own"):
        TaskDefaults.read({"name": name}, f"the task {name}")

    assert TaskDefaults.read({"name": "batches"}, "the task batches").name == "batches"
