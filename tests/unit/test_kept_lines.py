"""The log lines that a job keeps."""

from __future__ import annotations

import logging
import sys
import typing as t

import pytest

from flask_henri_jobs.job import Job
from flask_henri_jobs.kept_lines import MOST_BYTES, MOST_LINE_BYTES, MOST_NAME_BYTES, KeptLines

AT = 1_800_000_000_000


def record(message: str, *args: object, **fields: t.Any) -> logging.LogRecord:
    made = logging.LogRecord("shop", logging.INFO, "shop.py", 1, message, args, None)
    made.__dict__.update(fields)
    return made


def kept(most: int = 100, **row: t.Any) -> KeptLines:
    return KeptLines(Job({"_id": "a", "attempts": 2, **row}), most, lambda: AT)


def messages(lines: KeptLines) -> list[str]:
    return [line["message"] for line in lines.left()["logs"]["lines"]]


def test_line() -> None:
    """X3: a line has its moment by the server's clock, its attempt, level, logger and message."""
    lines = kept()
    lines.add(record("%d of %s", 3, "four"))

    line = {"at": AT, "attempt": 2, "level": "INFO", "logger": "shop", "message": "3 of four"}
    assert lines.left() == {"logs": {"lines": [line], "dropped": 0}}


def test_nothing_logged() -> None:
    """An attempt that logs nothing leaves nothing, and what was kept before stays."""
    before = {"lines": [{"message": "first"}], "dropped": 4}

    assert kept().left() == {}
    assert kept(logs=before).left() == {}


def test_lines_of_the_attempts_before() -> None:
    """The lines of earlier attempts come first, and are the first to go."""
    before = {"lines": [{"message": "a"}, {"message": "b"}], "dropped": 4}
    lines = kept(3, logs=before)
    for message in "cd":
        lines.add(record(message))

    assert messages(lines) == ["b", "c", "d"]
    assert lines.left()["logs"]["dropped"] == 5


def test_too_many_bytes() -> None:
    """A long message is cut in its middle, and all together have a bound."""
    lines = kept(1000)
    for number in range(40):
        lines.add(record(f"{number} {'ä' * MOST_LINE_BYTES}!"))

    texts = messages(lines)
    assert all(len(text.encode()) <= MOST_LINE_BYTES for text in texts)
    assert all(text.endswith("!") for text in texts)
    assert sum(len(text.encode()) for text in texts) <= MOST_BYTES
    assert len(texts) + lines.left()["logs"]["dropped"] == 40
    assert texts[-1].startswith("39 ")


def test_exception() -> None:
    """A line about an exception has its traceback."""
    try:
        int("no such shelf")
    except ValueError:
        with_it = record("failed", exc_info=sys.exc_info())
    lines = kept()
    lines.add(with_it)

    [text] = messages(lines)
    assert text.startswith("failed\nTraceback (most recent call last):\n")
    assert text.endswith("'no such shelf'")


def test_the_same_record_again() -> None:
    """A record that is given twice is kept once, and two of one text are two."""
    lines = kept()
    same = record("a")
    lines.add(same)
    lines.add(same)
    lines.add(record("a"))

    assert messages(lines) == ["a", "a"]


def test_arguments_that_do_not_fit() -> None:
    """A record that cannot be written is not kept."""
    lines = kept()
    with pytest.raises(TypeError):
        lines.add(record("%d", "three"))

    assert lines.left() == {}


def test_names_that_are_no_text() -> None:
    """X3: whatever a logger or a level is called, the line can be stored."""
    lines = kept()
    lines.add(record("here", name="shop\ud800", levelname="LOUD\ud800" * 1000))

    [line] = lines.left()["logs"]["lines"]
    assert line["logger"] == "shop\\ud800"
    assert len(line["level"].encode()) <= MOST_NAME_BYTES
