"""The options that several commands have, and what their values may be."""

from __future__ import annotations

import json
import sys
import typing as t
from datetime import datetime, timedelta

import click

from ..checks import checked_name
from ..durations import to_duration
from ..errors import ConfigError
from ..job import DEAD_REASONS, STATES
from .failures import Misused

if t.TYPE_CHECKING:
    from collections.abc import Callable

F = t.TypeVar("F", bound="Callable[..., t.Any]")

MOST_ON_A_PAGE = 1000
MOST_OFFSET = 1_000_000

DURATION = "Give seconds, or 250ms, 30s, 5m, 2h, 1d, 1w."


class Name(click.ParamType):
    """The name of a queue, a task, a tenant, or an id."""

    name = "text"

    def convert(
        self, value: t.Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name as it is."""
        try:
            return checked_name(value, "The name")
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class Span(click.ParamType):
    """A duration."""

    name = "duration"

    def convert(
        self, value: t.Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the duration; a number alone is seconds."""
        try:
            return to_duration(_seconds(value), "The duration")
        except ConfigError:
            self.fail(f"{value!r} is no duration. {DURATION}", param, ctx)


class Moment(click.ParamType):
    """A moment, in ISO 8601 and with its offset from UTC."""

    name = "moment"

    def convert(
        self, value: t.Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the moment as an aware datetime."""
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no moment. Give one like 2030-01-31T09:00Z.", param, ctx)
        if moment.utcoffset() is None:
            self.fail(
                f"{value!r} names no moment without a time zone. Add Z for UTC, or +02:00.",
                param,
                ctx,
            )
        return moment


class Json(click.ParamType):
    """A JSON value; ``-`` reads it from the standard input."""

    name = "json"

    def convert(
        self, value: t.Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> t.Any:
        """Return what the text says."""
        text = sys.stdin.read() if value == "-" else value
        try:
            return json.loads(text, parse_constant=_refused)
        except RecursionError:
            self.fail("The JSON has too many levels.", param, ctx)
        except ValueError as error:
            self.fail(f"This is not JSON: {error}. Quote it as a whole.", param, ctx)


NAME, SPAN, MOMENT, JSON = Name(), Span(), Moment(), Json()

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
    limit = click.IntRange(1, MOST_ON_A_PAGE)
    offset = click.IntRange(0, MOST_OFFSET)
    function = click.option("--offset", type=offset, default=0, help="Leave out the first.")(
        function
    )
    return click.option(
        "--limit", type=limit, default=50, show_default=True, help="Show at most so many."
    )(function)


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


def _seconds(value: str) -> str | float:
    try:
        return float(value)
    except ValueError:
        return value


def _refused(constant: str) -> t.NoReturn:
    raise ValueError(f"{constant} is no JSON number")
