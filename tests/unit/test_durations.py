"""What stands for a duration, and how one is written."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from flask_henri_jobs.durations import ALLOWED, LONGEST, millis, to_duration, to_text
from flask_henri_jobs.errors import ConfigError

WHOLE_MILLISECONDS = st.integers(0, millis(LONGEST)).map(lambda ms: timedelta(milliseconds=ms))


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("1w", timedelta(weeks=1)),
        ("1.5h", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        (" 5m ", timedelta(minutes=5)),
        (0, timedelta(0)),
        (90, timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(hours=3), timedelta(hours=3)),
        ("36500d", LONGEST),
        (LONGEST.total_seconds(), LONGEST),
    ],
)
def test_what_stands_for_a_duration(value: object, duration: timedelta) -> None:
    """A timedelta, seconds as a number, and text with a unit stand for a duration."""
    assert to_duration(value, "wait") == duration


@pytest.mark.parametrize(
    "value",
    [
        "",
        "5",
        "m",
        "5 m",
        "5M",
        "5min",
        "-5s",
        "1h30m",
        "1e3s",
        "\N{ARABIC-INDIC DIGIT FIVE}s",
        "5s\n5s",
        "nans",
        "36501d",
        "9999999999999w",
        -1,
        -0.001,
        float("nan"),
        float("inf"),
        float("-inf"),
        10**400,
        True,
        None,
        b"5s",
        ["5s"],
        {"seconds": 5},
        timedelta(seconds=-1),
        timedelta.max,
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_what_stands_for_none(value: object) -> None:
    """Anything else is refused, by the name of the setting and with what is allowed."""
    with pytest.raises(ConfigError, match=r"^wait is .*" + re.escape(f". Give {ALLOWED}.")):
        to_duration(value, "wait")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=1), "1ms"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(seconds=90), "90s"),
        (timedelta(seconds=120), "2m"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=6), "6d"),
        (timedelta(days=7), "1w"),
        (LONGEST, "36500d"),
    ],
)
def test_how_a_duration_is_written(duration: timedelta, text: str) -> None:
    """A duration is written in the largest unit that it is a whole number of."""
    assert to_text(duration) == text


@given(WHOLE_MILLISECONDS)
def test_what_is_written_is_read(duration: timedelta) -> None:
    """Any duration of whole milliseconds is read back from its text as it was."""
    assert to_duration(to_text(duration), "wait") == duration


@given(WHOLE_MILLISECONDS)
def test_milliseconds_are_exact(duration: timedelta) -> None:
    """A duration of whole milliseconds survives being stored as milliseconds."""
    assert timedelta(milliseconds=millis(duration)) == duration
