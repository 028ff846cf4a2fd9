"""``docs/reference/cli.md`` shows the commands as they are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from flask_henri_jobs.cli import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
ENTRY = re.compile(
    r"^### flask jobs ([\w -]+)\n\n```text\n(Usage: .*?)\n```\n\n(?=\S)", re.MULTILINE | re.DOTALL
)


def each_command() -> dict[str, click.Command]:
    """Return every command by what is written after ``flask jobs``, those of groups too."""
    each: dict[str, click.Command] = {}
    for command in COMMANDS:
        if isinstance(command, click.Group):
            each |= {f"{command.name} {name}": one for name, one in command.commands.items()}
        else:
            each[str(command.name)] = command
    return each


EACH = each_command()


def help_of(name: str) -> str:
    """Return what ``--help`` prints on a terminal of 80 columns."""
    with click.Context(EACH[name], info_name=f"flask jobs {name}", terminal_width=80) as ctx:
        return EACH[name].get_help(ctx)


def test_every_command_has_an_entry() -> None:
    """Each command has a heading, its help and a text, and each heading is a command."""
    headings = re.findall(r"^### flask jobs ([\w -]+)$", PAGE.read_text(), re.MULTILINE)

    assert sorted(headings) == sorted(EACH)
    assert headings == [name for name, _ in ENTRY.findall(PAGE.read_text())]


@pytest.mark.parametrize("name", EACH)
def test_entries_are_the_help(name: str) -> None:
    """The page has the very help of each command."""
    assert dict(ENTRY.findall(PAGE.read_text()))[name] == help_of(name)


@pytest.mark.parametrize("command", EACH.values(), ids=list(EACH))
def test_everything_is_explained(command: click.Command) -> None:
    """Each command says what it does, each option what it is for, and each has ``--json``."""
    assert command.help
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)
    assert "--json" in [name for option in options for name in option.opts]
