"""``docs/reference/cli.md`` shows the commands as they are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from flask_henri_jobs.cli import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
ENTRY = re.compile(
    r"^### flask jobs (\w+)\n\n```text\n(Usage: .*?)\n```\n\n(?=\S)", re.MULTILINE | re.DOTALL
)


def help_of(command: click.Command) -> str:
    """Return what ``--help`` prints on a terminal of 80 columns."""
    name = f"flask jobs {command.name}"
    with click.Context(command, info_name=name, terminal_width=80) as ctx:
        return command.get_help(ctx)


def test_every_command_has_an_entry() -> None:
    """Each command has a heading, its help and a text, and each heading is a command."""
    headings = re.findall(r"^### flask jobs (\w+)$", PAGE.read_text(), re.MULTILINE)

    assert sorted(headings) == sorted(str(command.name) for command in COMMANDS)
    assert headings == [name for name, _ in ENTRY.findall(PAGE.read_text())]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_entries_are_the_help(command: click.Command) -> None:
    """The page has the very help of each command."""
    assert dict(ENTRY.findall(PAGE.read_text()))[command.name] == help_of(command)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_everything_is_explained(command: click.Command) -> None:
    """Each command says what it does, each option what it is for, and each has ``--json``."""
    assert command.help
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)
    assert "--json" in [name for option in options for name in option.opts]
