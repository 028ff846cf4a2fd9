"""What a place is, and how a row of a file becomes one."""

from __future__ import annotations

import csv
import io
import typing as t

COLUMNS = ["iata", "name", "city", "state", "country", "latitude", "longitude"]


class BadFile(Exception):
    """The file is no table of places."""


class BadRow(Exception):
    """The row does not describe a place."""


def rows_of(content: bytes) -> list[list[str]]:
    """Return the rows of a CSV file below its header. They are not looked at.

    :raises BadFile: It is not text, or another table.
    """
    try:
        text = content.decode("utf-8-sig")
        header, *rows = [cells for cells in csv.reader(io.StringIO(text, newline="")) if cells]
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise BadFile("That is not a CSV file in UTF-8 with a header.") from error
    if header != COLUMNS:
        raise BadFile(f"The header is {', '.join(header)}; it has to be {', '.join(COLUMNS)}.")
    return rows


def place_of(cells: list[str]) -> dict[str, t.Any]:
    """Return the place that a row describes.

    :raises BadRow: A cell that is needed is empty, or a coordinate is none.
    """
    cell = dict(zip(COLUMNS, cells, strict=True))
    for name in ("iata", "name", "country"):
        if not cell[name].strip():
            raise BadRow(f"{name} is empty")
    return {
        **cell,
        "latitude": _degrees(cell["latitude"], "latitude", 90),
        "longitude": _degrees(cell["longitude"], "longitude", 180),
    }


def _degrees(text: str, name: str, limit: int) -> float:
    try:
        degrees = float(text)
    except ValueError:
        raise BadRow(f"{name} is {text!r}, which is not a number") from None
    if not -limit <= degrees <= limit:
        raise BadRow(f"{name} is {text}, beyond {limit} degrees")
    return degrees
