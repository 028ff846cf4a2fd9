"""The options that several commands have, and what their values may be."""

from __future__ import annotations

import json
import re
import sys
import typing as t
from datetime import datetime, timedelta

import click

from ..checks import checked_name
from ..durations import to_duration
from ..errors import ConfigError
from ..job import DEAD_REASONS, STATES
from ..queues import QueueSelection
from ..store.lookup import MOST_OFFSET, MOST_ON_A_PAGE
from .failures import Misused

if t.TYPE_CHECKING:
    from collections.abc import Callable

F = t.TypeVar("F", bound="Callable[..., t.Any]")


class Value(click.ParamType):  # type: ignore[type-arg]
    """What a function reads out of a text.

    :param name: Stands for the value in the command's help.
    :param read: Returns the value. What it refuses, the command was called wrongly with.
    """

    def __init__(self, name: str, read: Callable[[str], t.Any]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: t.Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> t.Any:
        """Return the value that a text stands for."""
        try:
            return self._read(value)
        except (ConfigError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _name(text: str) -> str:
    return checked_name(text, "The name")


def _queues(text: str) -> QueueSelection:
    return QueueSelection.read(text, "The list")


def _duration(text: str) -> timedelta:
    """Return a duration; a number alone is seconds."""
    try:
        return to_duration(_seconds(text), "The duration")
    except ConfigError:
        raise ValueError(
            f"{text!r} is no duration. Give seconds, or 250ms, 30s, 5m, 2h, 1d, 1w."
        ) from None


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+) ?([kmg]?)i?b?", text.strip().lower())
    if found is None or not int(found[1]):
        raise ValueError(f"{text!r} is no size. Give one like 512MB or 2GB.")
    return int(int(found[1]) * 1024 ** " kmg".index(found[2] or " "))


def _seconds(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _moment(text: str) -> datetime:
    """Return a moment, which must say its offset from UTC (Q9)."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no moment. Give one like 2030-01-31T09:00Z.") from None
    if moment.utcoffset() is None:
        raise ValueError(f"{text!r} names no moment without a time zone. Add Z for UTC, or +02:00.")
    return moment


def _json(text: str) -> t.Any:
    """Return what JSON says; ``-`` has it read from the standard input."""
    try:
        return json.loads(sys.stdin.read() if text == "-" else text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("The JSON has too many levels.") from None
    except ValueError as error:
        raise ValueError(f"This is not JSON: {error}. Quote it as a whole.") from None


def _no_number(constant: str) -> t.NoReturn:
    raise ValueError(f"{constant} is no JSON number")


NAME = Value("text", _name)
QUEUES = Value("queues", _queues)
SPAN = Value("duration", _duration)
SIZE = Value("size", _bytes)
MOMENT = Value("moment", _moment)
JSON = Value("json", _json)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")


def filters(*names: str) -> Callable[[F], F]:
    """Give a command some of the options that select jobs. What is left out is None."""

    def declare(function: F) -> F:
        for name in reversed(names):
            function = _FILTERS[name](function)
        return function

    return declare


def page(function: F) -> F:
    """Give a command the options that say which part of a long list is shown."""
    return _LIMIT(_OFFSET(function))


_LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, MOST_ON_A_PAGE),
    default=50,
    show_default=True,
    help="Show at most so many.",
)
_OFFSET = click.option(
    "--offset",
    type=click.IntRange(0, MOST_OFFSET),
    default=0,
    help="Leave out so many at the start.",
)


def agreed(question: str, yes: bool) -> None:
    """Return where ``--yes`` was given, or a person at the terminal says so; end otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misused(f"{question} There is nobody to ask here. Say --yes.")
    click.confirm(question, abort=True, err=True)


_FILTERS: dict[str, Callable[[t.Any], t.Any]] = {
    "state": click.option("--state", type=click.Choice(STATES), help="Only those in this state."),
    "queue": click.option("-q", "--queue", type=NAME, help="Only those of this queue."),
    "name": click.option("-n", "--name", type=NAME, help="Only those of this task."),
    "tenant": click.option("--tenant", type=NAME, help="Only those of this tenant."),
    "batch": click.option("--batch", type=NAME, help="Only those of the batch with this id."),
    "tag": click.option("--tag", type=NAME, help="Only those with this tag."),
    "reason": click.option(
        "--reason", type=click.Choice(DEAD_REASONS), help="Only those dead for this reason."
    ),
}

ALL_FILTERS = tuple(_FILTERS)
