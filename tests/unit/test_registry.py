"""The tasks that are known, by name."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs import ConfigError, HenriJobs, UnknownTask


@pytest.fixture
def jobs() -> HenriJobs:
    return HenriJobs()


def first() -> None: ...


def second() -> None: ...


def place(function: t.Any) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno}"


def test_known(jobs: HenriJobs) -> None:
    """A declared task is found by its name; names come in order."""
    b, a = jobs.task(name="b")(first), jobs.task(name="a")(second)

    assert jobs.tasks["b"] is b
    assert jobs.tasks.find("a") is a
    assert list(jobs.tasks) == ["a", "b"]
    assert "a" in jobs.tasks
    assert len(jobs.tasks) == 2


def test_unknown(jobs: HenriJobs) -> None:
    """A name that is not known is told with the one that is like it, or where to look."""
    jobs.task(name="shop.mail")(first)

    assert jobs.tasks.find("shop.male") is None
    with pytest.raises(UnknownTask) as refused:
        jobs.tasks["shop.male"]
    assert str(refused.value) == "No task is named 'shop.male'. Did you mean 'shop.mail'?"
    with pytest.raises(UnknownTask) as refused:
        jobs.tasks["resize"]
    assert str(refused.value) == (
        "No task is named 'resize'. Is the module that declares it in HENRI_JOBS_IMPORTS?"
    )


def test_clash(jobs: HenriJobs) -> None:
    """Two functions under one name are refused with both places, and the first stays."""
    task = jobs.task(name="mail")(first)

    with pytest.raises(ConfigError) as refused:
        jobs.task(name="mail")(second)
    assert str(refused.value) == (
        f"Two tasks are named 'mail': one at {place(first)}, one at {place(second)}."
        " Give one of them another name=."
    )
    assert jobs.tasks["mail"] is task


def test_declared_again(jobs: HenriJobs) -> None:
    """The same function may be declared again, as a reload or a second app of a factory does."""

    def create_app() -> t.Any:
        @jobs.task(name="mail")
        def mail() -> None: ...

        return mail

    create_app()
    again = create_app()

    assert jobs.tasks["mail"] is again


def test_apart() -> None:
    """Two ``HenriJobs`` may have tasks of one name."""
    jobs, reports = HenriJobs(), HenriJobs(collection="reports")

    assert jobs.task(name="mail")(first) is not reports.task(name="mail")(second)
