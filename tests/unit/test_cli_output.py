"""How values are shown to people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from flask_henri_jobs.cli.failures import OutOfReach
from flask_henri_jobs.cli.output import age, local, one_line, print_table, span, visible

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop.add", "shop.add"),
        ("Käse 🧀", "Käse 🧀"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x7f\x00", r"\x7f\x00"),
        ("admin\u202egpj.exe", r"admin\u202egpj.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\udcff", r"\udcff"),
        ("\u2028", r"\u2028"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    """What would steer the terminal, or hide there, is spelt out; all else is as it was."""
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.85, "850ms"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86_399, "23h"),
        (86_400, "1d"),
        (864_000, "10d"),
    ],
)
def test_span(seconds: float, text: str) -> None:
    """A duration is said in its largest whole unit."""
    assert span(timedelta(seconds=seconds)) == text


def test_ages() -> None:
    """A moment is in the past, in the future, or now."""
    assert age(NOW - timedelta(minutes=5), NOW) == "5m ago"
    assert age(NOW + timedelta(hours=2), NOW) == "in 2h"
    assert age(NOW - timedelta(milliseconds=900), NOW) == "now"
    assert age(None, NOW) == span(None) == local(None, NOW) == one_line(None) == "-"


def test_local_time_at_the_end_of_time() -> None:
    """A moment that has no local time is shown as it is."""
    last = datetime.max.replace(tzinfo=UTC)

    assert local(last, NOW).startswith("9999-12-31 23:59:59")


def test_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment is shown by the clock on the wall, with its zone and its age."""
    there = NOW.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")

    assert local(NOW, NOW + timedelta(days=3)) == f"{there} (3d ago)"


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns are as wide as their widest cell, and an empty table has its titles."""
    print_table(("ID", "STATE"), [("a", "done"), ("long\nid", None)])
    assert capsys.readouterr().out == "ID        STATE\na         done\nlong\\nid  -\n"

    print_table(("ID", "STATE"), [])
    assert capsys.readouterr().out == "ID  STATE\n"


def test_failures_show_no_password() -> None:
    """A connection string in a message keeps its password to itself, and nothing steers."""
    told = OutOfReach("No answer from mongodb://ann:hunter2@db/shop at all\x1b[2J.\nSee there.")

    assert told.format_message() == (
        "No answer from mongodb://ann:***@db/shop at all\\x1b[2J.\nSee there."
    )
    assert told.exit_code == 3
