"""What a declaration makes of a function."""

from __future__ import annotations

import functools
import runpy
import sys
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest

from flask_henri_jobs import ConfigError, HenriJobs, Task
from flask_henri_jobs.backoff import Backoff
from flask_henri_jobs.task import default_name

HERE = f"{Path(__file__)}:"


@pytest.fixture
def jobs() -> HenriJobs:
    return HenriJobs()


def mail(user_id: int, *, subject: str = "Hello") -> str:
    """Write to somebody."""
    return f"{subject} {user_id}"


def test_bare(jobs: HenriJobs) -> None:
    """``@jobs.task`` makes a task that is called as the function is, and looks like it."""
    task = jobs.task(mail)

    assert isinstance(task, Task)
    assert task(7, subject="Hi") == "Hi 7"
    assert (task.__name__, task.__doc__, task.__wrapped__) == ("mail", mail.__doc__, mail)  # type: ignore[attr-defined]
    assert task.function is mail
    assert repr(task) == f"<Task {__name__}.mail>"


def test_with_options(jobs: HenriJobs) -> None:
    """``@jobs.task(...)`` keeps its options, each in its exact type."""
    task = jobs.task(
        name="mail",
        queue="low",
        priority=-3,
        max_attempts=1,
        unique=("user_id",),
        expires="10m",
        backoff={"base": "1s"},
        retry_on=ConnectionError,
        discard_on=(ValueError, KeyError),
    )(mail)

    assert task.name == "mail"
    assert (task.defaults.queue, task.defaults.priority) == ("low", -3)
    assert task.defaults.expires == timedelta(minutes=10)
    policy = task.policy(Backoff(factor=9, jitter=0))
    assert policy.backoff == Backoff(base=timedelta(seconds=1), factor=9, jitter=0)
    assert policy.retry_on == (ConnectionError,)
    assert policy.discard_on == (ValueError, KeyError)


def test_default_name(jobs: HenriJobs) -> None:
    """A task is named after its module and function; one inside a factory, after both functions."""

    @jobs.task
    def inside() -> None: ...

    assert jobs.task(mail).name == f"{__name__}.mail"
    assert inside.name == f"{__name__}.test_default_name.inside"


def test_name_in_a_script(tmp_path: Path) -> None:
    """A task of a module that runs as a script has the name by which a worker imports it."""
    script = tmp_path / "shop.py"
    script.write_text(
        "from flask_henri_jobs import HenriJobs\n"
        "jobs = HenriJobs()\n"
        "@jobs.task\n"
        "def mail(): ...\n"
        "NAME = mail.name\n"
    )

    assert runpy.run_path(str(script), run_name="__main__")["NAME"] == "shop.mail"


def test_name_in_a_module_that_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m shop`` names its tasks as an import of ``shop`` does."""
    package = tmp_path / "henri_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("__main__", "app"):
        (package / f"{name}.py").write_text(
            "from flask_henri_jobs.task import default_name\n"
            "def mail(): ...\n"
            "NAME = default_name(mail)\n"
        )
    monkeypatch.syspath_prepend(tmp_path)

    ran = runpy.run_module("henri_shop.app", run_name="__main__", alter_sys=True)
    assert ran["NAME"] == "henri_shop.app.mail"
    ran = runpy.run_module("henri_shop", run_name="__main__", alter_sys=True)
    assert ran["NAME"] == "henri_shop.mail"
    sys.modules.pop("henri_shop")


@pytest.mark.parametrize("function", [lambda: None, functools.partial(mail, 7)])
def test_nameless(jobs: HenriJobs, function: t.Any) -> None:
    """A function without a name of its own needs ``name=``."""
    with pytest.raises(ConfigError, match=r"has no name of its own\. Say name="):
        jobs.task(function)

    assert jobs.task(name="nameless")(function).name == "nameless"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("", "is empty"), (7, "is an int, and text is due"), ("a\nb", r"is 'a\nb'")],
)
def test_bad_name(jobs: HenriJobs, name: t.Any, problem: str) -> None:
    """A bad name is refused with the place of the function."""
    with pytest.raises(ConfigError) as refused:
        jobs.task(name=name)(mail)

    line = mail.__code__.co_firstlineno
    assert str(refused.value).startswith(f"name= of the task at {HERE}{line} {problem}. Give")


@pytest.mark.parametrize("given", ["mail", 7])
def test_not_a_function(jobs: HenriJobs, given: t.Any) -> None:
    """What is no function is refused, with both ways to write it."""
    with pytest.raises(ConfigError, match=r"Say @jobs\.task or @jobs\.task\(name=\.\.\.\)"):
        jobs.task(given)


def test_generators(jobs: HenriJobs) -> None:
    """A generator function is refused: its job would be done with nothing performed."""

    def lines() -> t.Iterator[str]:
        yield "a"

    async def pages() -> t.AsyncIterator[str]:
        yield "a"

    for function in (lines, pages):
        with pytest.raises(ConfigError, match=r"is a generator\. Have it do its work"):
            jobs.task(function)
    assert len(jobs.tasks) == 0


def test_async(jobs: HenriJobs) -> None:
    """An ``async def`` function is a task, and calling it makes its coroutine."""

    @jobs.task
    async def fetch() -> bytes:
        return b""

    coroutine = fetch()
    with pytest.raises(StopIteration) as returned:
        coroutine.send(None)
    assert returned.value.value == b""


def test_unique_names_an_argument(jobs: HenriJobs) -> None:
    """``unique`` names arguments that have a name of their own."""

    def gather(*ids: int, **others: int) -> None: ...

    for name in ("id", "ids", "others"):
        with pytest.raises(ConfigError, match=f"names '{name}', which is not one of its arguments"):
            jobs.task(name="gather", unique=name)(gather)


def test_default_name_is_stable() -> None:
    """The same function has the same name, whatever decorates it."""

    @functools.wraps(mail)
    def wrapped(*args: t.Any, **kwargs: t.Any) -> str:
        return mail(*args, **kwargs)

    assert default_name(wrapped) == default_name(mail) == f"{__name__}.mail"
