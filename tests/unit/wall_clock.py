"""Cron on a changing clock, worked out independently: somebody watches the clock, all day long.

The clock is read once a minute, from moments to readings only; there is neither croniter nor a
calculation from a reading back to a moment. :mod:`test_cron_clock_changes` tests this first, on
dates that were worked out by hand.
"""

from __future__ import annotations

import typing as t
from datetime import date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

if t.TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
MINUTES_PER_HOUR, MINUTES_PER_DAY = 60, 1440
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


class Pattern:
    """Five fields of ``*``, numbers, ranges and steps, asked of one reading at a time."""

    def __init__(self, expression: str) -> None:
        fields = expression.split()
        self.is_minutely, self.is_hourly = (field.startswith("*") for field in fields[:2])
        minutes, hours, *self._days = map(values_of, fields, BOUNDS)
        self._any_day, self._any_weekday = fields[2] == "*", fields[4] == "*"
        self._in_a_day = [
            minute // MINUTES_PER_HOUR in hours and minute % MINUTES_PER_HOUR in minutes
            for minute in range(MINUTES_PER_DAY)
        ]
        self._on_day: dict[int, bool] = {}

    def matches(self, reading: int) -> bool:
        """Tell whether the pattern names a reading, given in minutes since the year 1."""
        day, minute = divmod(reading, MINUTES_PER_DAY)
        if not self._in_a_day[minute]:
            return False
        if day not in self._on_day:
            self._on_day[day] = self._names_day(date.fromordinal(day))
        return self._on_day[day]

    def _names_day(self, day: date) -> bool:
        days, months, weekdays = self._days
        in_month, in_week = day.day in days, day.isoweekday() % 7 in weekdays
        either = (
            in_month if self._any_weekday else in_week if self._any_day else in_month or in_week
        )
        return day.month in months and either


def values_of(field: str, bounds: tuple[int, int]) -> set[int]:
    """Return the numbers that a field names."""
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first, last = bounds if span == "*" else (int(low), int(high or low))
        values.update(range(first, last + 1, int(step or 1)))
    return values


def due_between(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the moments after ``start`` and before ``end`` at which an expression is due."""
    return list(watch(Pattern(expression), readings(zone, start, end), start))


def watch(pattern: Pattern, shown: list[int], start: datetime) -> Iterator[datetime]:
    """Watch the clock minute by minute, and yield each moment at which a pattern is due."""
    may_repeat = pattern.is_minutely or pattern.is_hourly
    before = highest = shown[0]
    for minute, reading in enumerate(shown[1:], start=1):
        has_jumped = reading > before + 1
        if (has_jumped and makes_up_for(pattern, range(before + 1, reading))) or (
            pattern.matches(reading) and (may_repeat or reading > highest)
        ):
            yield start + minute * MINUTE
        before = reading
        highest = reading if reading > highest else highest  # noqa: FURB136 - max() takes longer


def makes_up_for(pattern: Pattern, skipped: range) -> bool:
    """Tell whether the pattern is due at the end of a gap for one of the readings in it."""
    for reading in filter(pattern.matches, skipped):
        hour = reading - reading % MINUTES_PER_HOUR
        is_whole_hour = hour in skipped and hour + MINUTES_PER_HOUR - 1 in skipped
        if not (pattern.is_minutely and is_whole_hour):
            return True
    return False


@cache
def readings(zone: str, start: datetime, end: datetime) -> list[int]:
    """Return what the clock shows, minute by minute, as minutes since the year 1."""
    clock = ZoneInfo(zone)
    seconds = range(int(start.timestamp()), int(end.timestamp()), 60)
    return [
        local.toordinal() * MINUTES_PER_DAY + local.hour * MINUTES_PER_HOUR + local.minute
        for local in (datetime.fromtimestamp(second, clock) for second in seconds)
    ]
