"""S5 on the days when clocks are changed, against an independent computation."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from flask_henri_jobs.clock_changes import moments_after
from flask_henri_jobs.cron import Cron
from flask_henri_jobs.schedule import Schedule

from .wall_clock import due_between

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

#: A zone, an expression, a period in UTC, and the moments in it; each worked out by hand from the
#: changes that ``zdump -v`` prints for the zone.
BY_HAND = {
    # New York, 2024-03-10 07:00 UTC: from 02:00 to 03:00.
    "a time that is skipped is due at the end of the gap": (
        ("America/New_York", "30 2 * * *", "2024-03-09 12:00", "2024-03-11 12:00"),
        ("2024-03-10 07:00", "2024-03-11 06:30"),
    ),
    "two times that are skipped are due once": (
        ("America/New_York", "15,45 2 * * *", "2024-03-09 12:00", "2024-03-11 06:20"),
        ("2024-03-10 07:00", "2024-03-11 06:15"),
    ),
    "an hourly pattern is due once more at the end of the gap": (
        ("America/New_York", "30 * * * *", "2024-03-10 06:00", "2024-03-10 09:00"),
        ("2024-03-10 06:30", "2024-03-10 07:00", "2024-03-10 07:30", "2024-03-10 08:30"),
    ),
    # New York, 2024-11-03 06:00 UTC: from 02:00 to 01:00.
    "a fixed time in the repeated hour is due once": (
        ("America/New_York", "30 1 * * *", "2024-11-03 00:00", "2024-11-04 12:00"),
        ("2024-11-03 05:30", "2024-11-04 06:30"),
    ),
    "an hourly pattern is due in both hours": (
        ("America/New_York", "30 * * * *", "2024-11-03 04:45", "2024-11-03 07:45"),
        ("2024-11-03 05:30", "2024-11-03 06:30", "2024-11-03 07:30"),
    ),
    # Paris, 2024-03-31 01:00 UTC: from 02:00 to 03:00.
    "a minutely pattern is not due when its whole hour is skipped": (
        ("Europe/Paris", "*/15 2 * * *", "2024-03-30 12:00", "2024-04-01 00:10"),
        ("2024-04-01 00:00",),
    ),
    # Paris, 2024-10-27 01:00 UTC: from 03:00 to 02:00.
    "a minutely pattern of one hour is due in both hours": (
        ("Europe/Paris", "*/30 2 * * *", "2024-10-26 12:00", "2024-10-27 12:00"),
        ("2024-10-27 00:00", "2024-10-27 00:30", "2024-10-27 01:00", "2024-10-27 01:30"),
    ),
    "a list of hours is of fixed times": (
        ("Europe/Paris", "0 2,3 * * *", "2024-10-26 12:00", "2024-10-27 12:00"),
        ("2024-10-27 00:00", "2024-10-27 02:00"),
    ),
    # Lord Howe, 2024-10-05 15:30 UTC: from 02:00 to 02:30.
    "a time in a skipped half hour is due at its end": (
        ("Australia/Lord_Howe", "15 2 * * *", "2024-10-05 00:00", "2024-10-06 16:00"),
        ("2024-10-05 15:30", "2024-10-06 15:15"),
    ),
    "a minutely pattern is due when a part of its hour is there": (
        ("Australia/Lord_Howe", "*/20 2 * * *", "2024-10-05 00:00", "2024-10-06 12:00"),
        ("2024-10-05 15:30", "2024-10-05 15:40"),
    ),
    # Lord Howe, 2024-04-06 15:00 UTC: from 02:00 to 01:30.
    "a fixed time in a repeated half hour is due once": (
        ("Australia/Lord_Howe", "45 1 * * *", "2024-04-06 00:00", "2024-04-07 12:00"),
        ("2024-04-06 14:45",),
    ),
    "an hourly pattern is due in both half hours": (
        ("Australia/Lord_Howe", "45 * * * *", "2024-04-06 14:00", "2024-04-06 16:30"),
        ("2024-04-06 14:45", "2024-04-06 15:15", "2024-04-06 16:15"),
    ),
    # Havana, 2024-03-10 05:00 UTC: from 00:00 to 01:00.
    "a midnight that is skipped": (
        ("America/Havana", "@daily", "2024-03-10 00:00", "2024-03-11 12:00"),
        ("2024-03-10 05:00", "2024-03-11 04:00"),
    ),
    # Havana, 2024-11-03 05:00 UTC: from 01:00 to 00:00.
    "a midnight that comes twice": (
        ("America/Havana", "@daily", "2024-11-03 00:00", "2024-11-04 12:00"),
        ("2024-11-03 04:00", "2024-11-04 05:00"),
    ),
    # Apia, 2011-12-30 10:00 UTC: from the 30th, 00:00, to the 31st, 00:00.
    "a day that does not exist": (
        ("Pacific/Apia", "0 9 * * *", "2011-12-29 12:00", "2011-12-31 12:00"),
        ("2011-12-29 19:00", "2011-12-30 10:00", "2011-12-30 19:00"),
    ),
    "a minutely pattern on the day that does not exist": (
        ("Pacific/Apia", "*/30 9-17 30 12 *", "2011-12-29 00:00", "2012-01-02 00:00"),
        (),
    ),
    # Sao Paulo, 2018-11-04 03:00 UTC: from 00:00 to 01:00.
    "a midnight that does not exist": (
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-04 00:00", "2018-11-05 12:00"),
        ("2018-11-04 03:00", "2018-11-05 02:00"),
    ),
    # Sao Paulo, 2018-02-18 02:00 UTC: from the 18th, 00:00, back to the 17th, 23:00.
    "the last hour of a day that comes twice": (
        ("America/Sao_Paulo", "30 23 * * *", "2018-02-17 12:00", "2018-02-19 12:00"),
        ("2018-02-18 01:30", "2018-02-19 02:30"),
    ),
}

#: A zone, a day from which 400 days hold its changes, and what is special about them.
ZONES = {
    "America/New_York": "2024-01-20",
    "Europe/Paris": "2024-01-20",
    "Australia/Lord_Howe": "2024-01-20",  # half an hour
    "America/Havana": "2024-01-20",  # at midnight
    "Pacific/Apia": "2011-03-01",  # a day that does not exist
    "America/Sao_Paulo": "2018-01-15",  # a midnight that does not exist
}

#: A pattern of each kind, at the hours and weekdays on which these zones change their clocks.
PATTERNS = [
    "15 0-4,23 * * *",  # fixed, in every hour that is skipped or comes twice
    "45 * * * 0,5-6",  # hourly
    "*/30 0-4,23 * * 0,5-6",  # minutely
    "0 0 1-7,30 * 0",  # midnight, on days of the month or of the week
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def found_between(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    due = (moment.at for moment in moments_after(Cron.read(expression), ZoneInfo(zone), start))
    return list(itertools.takewhile(lambda at: at < end, due))


@pytest.mark.parametrize("case", BY_HAND)
def test_independent_computation(case: str) -> None:
    """The independent computation agrees with dates that were worked out by hand."""
    (zone, expression, start, end), expected = BY_HAND[case]
    expression = expression.replace("@daily", "0 0 * * *")
    assert due_between(expression, zone, utc(start), utc(end)) == list(map(utc, expected))


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case: str) -> None:
    """S5: The rules for clock changes hold on dates that were worked out by hand."""
    (zone, expression, start, end), expected = BY_HAND[case]
    assert found_between(expression, zone, utc(start), utc(end)) == list(map(utc, expected))


@pytest.mark.parametrize("zone", ZONES)
def test_400_days(zone: str) -> None:
    """S5: Over 400 days each pattern is due at the minutes of the independent computation."""
    start = utc(ZONES[zone])
    end = start + timedelta(days=400)
    for expression in PATTERNS:
        expected = due_between(expression, zone, start, end)
        assert len(expected) > 100
        assert found_between(expression, zone, start, end) == expected, expression


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("America/New_York", "2024-03-10 07:00"),
        ("America/New_York", "2024-11-03 06:00"),
        ("Europe/Paris", "2024-03-31 01:00"),
        ("Europe/Paris", "2024-10-27 01:00"),
        ("Australia/Lord_Howe", "2024-10-05 15:30"),
        ("Australia/Lord_Howe", "2024-04-06 15:00"),
        ("America/Havana", "2024-03-10 05:00"),
        ("America/Havana", "2024-11-03 05:00"),
        ("Pacific/Apia", "2011-12-30 10:00"),
        ("America/Sao_Paulo", "2018-11-04 03:00"),
        ("America/Sao_Paulo", "2018-02-18 02:00"),
        ("Antarctica/Troll", "2024-03-31 01:00"),  # two hours
        ("Antarctica/Troll", "2024-10-27 01:00"),
    ],
)
def test_every_minute_around_a_change(zone: str, change: str) -> None:
    """S5: Whenever a runner looks, the next moment is the first of those that are still to come."""
    around = timedelta(minutes=150)
    start, end = utc(change) - around, utc(change) + around
    for expression in ("* * * * *", "7 * * * *", "*/20 0-4,23 * * *", "10,40 0-4,23 * * *"):
        schedule = Schedule.read("report", cron=expression, timezone=zone)
        expected = due_between(expression, zone, start, end)
        assert found_between(expression, zone, start, end) == expected, expression
        for minute in range(0, 240, 11):
            now = start + timedelta(minutes=minute, seconds=minute % 60)
            first = next(at for at in expected if at > now)
            assert (
                schedule.next_after((now - EPOCH) // MILLISECOND) == (first - EPOCH) // MILLISECOND
            )
