"""``docs/how-to/from-celery.md`` has a row for everything that Celery has."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from celery_names import CALL, COMMANDS, DECORATOR, SETTINGS, WORKER
from flask_henri_jobs.cli import COMMANDS as OURS
from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.options import EnqueueOptions, TaskOptions
from flask_henri_jobs.refused_options import refuse_for_enqueue, refuse_for_task
from flask_henri_jobs.setting_readers import READERS

if t.TYPE_CHECKING:
    import click

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "from-celery.md").read_text()


def left_of(title: str) -> list[str]:
    """Return what stands as code in the first column of a section's table."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| (`.+?) \| .+ \|$", section)
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row)]


def is_covered(name: str, entries: list[str]) -> bool:
    """Whether a name, or its beginning with a star behind it, is among the entries."""
    return any(
        re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", entry)
        or (entry.endswith("*") and name.startswith(entry[:-1]))
        for entry in entries
    )


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Arguments of the decorator", DECORATOR),
        ("Calls", CALL),
        ("Commands", [*WORKER, *COMMANDS]),
        ("Settings", SETTINGS),
    ],
)
def test_every_name_has_a_row(title: str, names: list[str]) -> None:
    """Whatever of Celery somebody looks for, the page has it."""
    entries = left_of(title)

    assert [name for name in names if not is_covered(name, entries)] == []


def test_what_stands_for_it_is_there() -> None:
    """Each setting, command and option that the page names is one of ours."""
    settings = {f"HENRI_JOBS_{name.upper()}" for name in READERS}
    commands = {str(command.name): command for command in OURS}
    worker = {opt for param in commands["worker"].params for opt in param.opts}
    right = "\n".join(re.findall(r"(?m)^\| .+ \| (.+) \|$", PAGE))

    assert set(re.findall(r"HENRI_JOBS_\w+", PAGE)) - settings == set()
    assert set(re.findall(r"flask jobs (\w+)", PAGE)) - commands.keys() == set()
    others = {"--json", *options_of(commands["list"]), *options_of(commands["delete"])}
    assert set(re.findall(r"`(--[\w-]+)", right)) - worker - others == set()


@pytest.mark.parametrize(("celery", "ours"), [("time_limit", "timeout"), ("rate_limit", "rate")])
def test_what_there_is_not_yet(celery: str, ours: str) -> None:
    """The page says "none yet" of what there is not, and the word for it as soon as there is."""
    rows = re.findall(rf"(?m)^\| .*(?:{celery}|{celery.replace('_', '-')}).* \| (.+) \|$", PAGE)
    is_there = ours in TaskOptions.__annotations__

    assert [row for row in rows if is_there and row.startswith("none yet")] == []
    assert any(row.startswith("none yet") for row in rows) is not is_there


def options_of(command: click.Command) -> set[str]:
    return {opt for param in command.params for opt in param.opts}


@pytest.mark.parametrize("name", [name for name in DECORATOR if name not in {"name", "run"}])
def test_decorator_says_what_to_write(name: str) -> None:
    """An argument of Celery's decorator is one of ours, or is refused with what to say instead."""
    known = TaskOptions.__annotations__
    if name not in known:
        with pytest.raises(ConfigError, match=r"it is Celery's\. \w+"):
            refuse_for_task({name: None}, known, "the task mail")


@pytest.mark.parametrize("name", [name for name in CALL if name not in {"args", "kwargs"}])
def test_call_says_what_to_write(name: str) -> None:
    """An argument of Celery's call is one of ours, or is refused with what to say instead."""
    known = EnqueueOptions.__annotations__
    if name not in known:
        with pytest.raises(ConfigError, match=r"it is Celery's\. \w+"):
            refuse_for_enqueue({name: None}, known)
