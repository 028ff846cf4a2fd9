"""What people and programs are shown: tables, JSON, ages, local times, colours."""

from __future__ import annotations

import json
import os
import shutil
import sys
import typing as t
import unicodedata
from datetime import timedelta

import click

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ..job import JobProgress

STATE = "STATE"
"""The title of the column that is coloured."""

NOTHING = "-"

_COLOURS = {"pending": "yellow", "running": "blue", "done": "green", "dead": "red"}
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that move the cursor, turn the text around, or are no characters."""

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def print_json(value: object) -> None:
    """Print a value for programs. All but ASCII is escaped, which any terminal can show."""
    click.echo(json.dumps(value, indent=2))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people, and for ``cut`` and ``grep``: a line a row, and never more.

    On a terminal a line ends where the terminal does; elsewhere it is whole.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    state = list(titles).index(STATE) if STATE in titles else None
    for row in [list(titles), *cells]:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo(_coloured(_cut(padded, most), state, row))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, a line each."""
    width = max(map(len, facts))
    for name, value in facts.items():
        shown = one_line(value)
        if name.upper() == STATE:
            shown = in_colour(shown, _COLOURS.get(shown))
        click.echo(f"{name.ljust(width)}  {shown}")


def print_block(title: str, text: str) -> None:
    """Print a text of several lines, indented below its title."""
    click.echo(f"\n{title}")
    for line in text.splitlines():
        click.echo(f"  {visible(line)}")


def tell(message: str) -> None:
    """Tell people something that is no part of the output."""
    for line in message.splitlines():
        click.echo(visible(line), err=True)


def one_line(value: object) -> str:
    """Return a value on one line, in which nothing reaches the terminal but what is visible."""
    return NOTHING if value is None or value == "" else visible(str(value))


def visible(text: str) -> str:
    r"""Return a text in which what would steer the terminal is spelt out: ``\x1b[2J``.

    So is what the terminal's encoding does not have.

    Names, arguments and error messages come from wherever the application's data comes from.
    """
    if text.isascii() and text.isprintable():
        return text
    spelt_out = "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _INVISIBLE
        else character
        for character in text
    )
    encoding = sys.stdout.encoding or "ascii"
    return spelt_out.encode(encoding, "backslashreplace").decode(encoding)


def in_colour(text: str, colour: str | None) -> str:
    """Return a text in a colour, where there is a terminal and ``NO_COLOR`` does not forbid it."""
    if colour is None or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, fg=colour)


def span(duration: timedelta | None) -> str:
    """Return a duration as people say it, in its largest unit: ``850ms``, ``12s``, ``3d``."""
    if duration is None:
        return NOTHING
    if duration < timedelta(seconds=1):
        return f"{duration // timedelta(milliseconds=1)}ms"
    seconds = int(duration.total_seconds())
    unit, length = next((unit, length) for unit, length in _UNITS if seconds >= length)
    return f"{seconds // length}{unit}"


def how_far(progress: JobProgress | None) -> str:
    """Return a job's progress in few characters: ``40%``, or ``7`` where no total was given."""
    if progress is None:
        return NOTHING
    done, total = progress["done"], progress["total"]
    # Never rounded up: what is at 100% has nothing left to do.
    return f"{int(100 * done / total)}%" if total else amount(done)


def amount(number: float) -> str:
    """Return a number as people read it: ``1,234,567``, ``0.25``."""
    return f"{number:,.12g}"


def age(moment: datetime | None, now: datetime) -> str:
    """Return how far a moment is from now: ``5m ago``, ``now``, ``in 2h``."""
    if moment is None:
        return NOTHING
    if abs(moment - now) < timedelta(seconds=1):
        return "now"
    return f"{span(now - moment)} ago" if moment < now else f"in {span(moment - now)}"


def local(moment: datetime | None, now: datetime) -> str:
    """Return a moment by the clock on the wall, and how far it is from now."""
    if moment is None:
        return NOTHING
    try:
        there = moment.astimezone()
    except OverflowError:
        # The last day there is has no local time west of Greenwich, nor the first one east.
        there = moment
    return f"{there:%Y-%m-%d %H:%M:%S %Z} ({age(moment, now)})"


def _cut(cells: list[str], most: int | None) -> list[str]:
    """Return the cells of one line, without what would not fit on it."""
    fitting: list[str] = []
    left = most
    for cell in cells:
        if left is None:
            fitting.append(cell)
            continue
        if left <= 0:
            break
        fitting.append(cell if len(cell) <= left else f"{cell[: left - 1]}{_mark()}")
        left -= len(cell) + 2
    return fitting


def _mark() -> str:
    """Return what stands where a line was cut."""
    return "…" if visible("…") == "…" else "~"


def _coloured(cells: list[str], state: int | None, row: Sequence[str]) -> str:
    if state is not None and state < len(cells):
        cells[state] = in_colour(cells[state], _COLOURS.get(row[state]))
    return "  ".join(cells).rstrip()
