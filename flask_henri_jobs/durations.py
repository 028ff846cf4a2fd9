"""What ``"5m"`` means."""

from __future__ import annotations

import re
import typing as t
from datetime import timedelta

from .errors import ConfigError

Duration: t.TypeAlias = str | float | timedelta
"""A ``timedelta``, seconds as a number, or text such as ``"250ms" "30s" "5m" "2h" "1d" "1w"``."""

ALLOWED = 'a timedelta, seconds as a number, or text such as "250ms", "30s", "5m", "2h", "1d", "1w"'
LONGEST = timedelta(days=36500)

_TEXT = re.compile(r"(\d{1,13}(?:\.\d{1,9})?)(ms|s|m|h|d|w)", re.ASCII)
_UNIT = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def to_duration(value: object, where: str) -> timedelta:
    """Return the duration that a value stands for; never negative, at most 100 years.

    :param where: The name of the setting or option, for the message.
    :raises ConfigError: The value is not a duration.
    """
    duration = _read(value)
    if duration is None or not timedelta(0) <= duration <= LONGEST:
        raise ConfigError(f"{where} is {value!r:.80}.", hint=f"Give {ALLOWED}.")
    return duration


def _read(value: object) -> timedelta | None:
    match value:
        case timedelta():
            return value
        case bool():
            return None
        case int() | float() if abs(value) <= LONGEST.total_seconds():
            return timedelta(seconds=value)
        case str() if match := _TEXT.fullmatch(value.strip()):
            return _times(float(match[1]), _UNIT[match[2]])
    return None


def _times(count: float, unit: timedelta) -> timedelta | None:
    try:
        return count * unit
    except OverflowError:
        return None


def millis(duration: timedelta) -> int:
    """Return a duration in whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))


def to_text(duration: timedelta) -> str:
    """Return a duration as people write it, in its largest whole unit: ``"90s"``, ``"2h"``."""
    if not duration:
        return "0s"
    for unit in ("w", "d", "h", "m", "s"):
        if duration % _UNIT[unit] == timedelta(0):
            return f"{duration // _UNIT[unit]}{unit}"
    return f"{millis(duration)}ms"
