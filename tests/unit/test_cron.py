"""The gate before croniter, expression by expression."""

from __future__ import annotations

import itertools
from datetime import datetime

import pytest

from flask_henri_jobs.cron import Cron
from flask_henri_jobs.errors import ConfigError

NEW_YEAR = "2025-01-01 00:00"  # a Wednesday

#: An expression, and its first readings after a Wednesday's midnight.
ACCEPTED = [
    ("* * * * *", "2025-01-01 00:01", "2025-01-01 00:02"),
    ("*/1 * * * *", "2025-01-01 00:01", "2025-01-01 00:02"),
    ("0 * * * *", "2025-01-01 01:00", "2025-01-01 02:00"),
    ("30 * * * *", "2025-01-01 00:30", "2025-01-01 01:30"),
    ("59 * * * *", "2025-01-01 00:59", "2025-01-01 01:59"),
    ("*/15 * * * *", "2025-01-01 00:15", "2025-01-01 00:30", "2025-01-01 00:45"),
    ("*/45 * * * *", "2025-01-01 00:45", "2025-01-01 01:00", "2025-01-01 01:45"),
    ("*/59 * * * *", "2025-01-01 00:59", "2025-01-01 01:00"),
    ("10-50/15 * * * *", "2025-01-01 00:10", "2025-01-01 00:25", "2025-01-01 00:40"),
    ("5,35 * * * *", "2025-01-01 00:05", "2025-01-01 00:35", "2025-01-01 01:05"),
    ("*/30,45 * * * *", "2025-01-01 00:30", "2025-01-01 00:45", "2025-01-01 01:00"),
    ("1-3,2-4 0 * * *", "2025-01-01 00:01", "2025-01-01 00:02", "2025-01-01 00:03"),
    ("0-59 0 * * *", "2025-01-01 00:01", "2025-01-01 00:02"),
    ("59,0 * * * *", "2025-01-01 00:59", "2025-01-01 01:00"),
    ("0 9 * * *", "2025-01-01 09:00", "2025-01-02 09:00"),
    ("00 09 * * *", "2025-01-01 09:00", "2025-01-02 09:00"),
    ("0 */5 * * *", "2025-01-01 05:00", "2025-01-01 10:00", "2025-01-01 15:00"),
    ("0 */23 * * *", "2025-01-01 23:00", "2025-01-02 00:00", "2025-01-02 23:00"),
    ("0 9-17/4 * * *", "2025-01-01 09:00", "2025-01-01 13:00", "2025-01-01 17:00"),
    ("0 22-23,0-2 * * *", "2025-01-01 01:00", "2025-01-01 02:00", "2025-01-01 22:00"),
    ("0 0 1 * *", "2025-02-01 00:00", "2025-03-01 00:00"),
    ("0 0 31 * *", "2025-01-31 00:00", "2025-03-31 00:00", "2025-05-31 00:00"),
    ("0 0 */2 * *", "2025-01-03 00:00", "2025-01-05 00:00"),
    ("0 0 */31 * *", "2025-02-01 00:00", "2025-03-01 00:00"),
    ("0 0 28-31 2 *", "2025-02-28 00:00", "2026-02-28 00:00"),
    ("0 0 30,31 2,3 *", "2025-03-30 00:00", "2025-03-31 00:00", "2026-03-30 00:00"),
    ("0 0 29 2 *", "2028-02-29 00:00", "2032-02-29 00:00"),
    ("0 0 1-31 * *", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("0 0 1 jan *", "2026-01-01 00:00", "2027-01-01 00:00"),
    ("0 0 1 JAN,Jul *", "2025-07-01 00:00", "2026-01-01 00:00"),
    ("0 0 1 mar-may *", "2025-03-01 00:00", "2025-04-01 00:00", "2025-05-01 00:00"),
    ("0 0 1 nov-feb *", "2025-02-01 00:00", "2025-11-01 00:00", "2025-12-01 00:00"),
    ("0 0 1 nov-feb/2 *", "2025-11-01 00:00", "2026-01-01 00:00", "2026-11-01 00:00"),
    ("0 0 1 */5 *", "2025-06-01 00:00", "2025-11-01 00:00", "2026-01-01 00:00"),
    ("0 0 1 12 *", "2025-12-01 00:00", "2026-12-01 00:00"),
    ("0 0 * * 0", "2025-01-05 00:00", "2025-01-12 00:00"),
    ("0 0 * * 7", "2025-01-05 00:00", "2025-01-12 00:00"),
    ("0 0 * * sun", "2025-01-05 00:00", "2025-01-12 00:00"),
    ("0 0 * * mon-fri", "2025-01-02 00:00", "2025-01-03 00:00", "2025-01-06 00:00"),
    ("0 0 * * MON-5", "2025-01-02 00:00", "2025-01-03 00:00", "2025-01-06 00:00"),
    ("0 0 * * sat-mon", "2025-01-04 00:00", "2025-01-05 00:00", "2025-01-06 00:00"),
    ("0 0 * * fri-mon/2", "2025-01-03 00:00", "2025-01-05 00:00", "2025-01-10 00:00"),
    ("0 0 * * 5-7", "2025-01-03 00:00", "2025-01-04 00:00", "2025-01-05 00:00"),
    ("0 0 * * 7-2", "2025-01-05 00:00", "2025-01-06 00:00", "2025-01-07 00:00"),
    ("0 0 * * 0-7", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("0 0 * * mon-sun", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("0 0 * * */7", "2025-01-05 00:00", "2025-01-12 00:00"),
    ("0 0 * * */2", "2025-01-02 00:00", "2025-01-04 00:00", "2025-01-05 00:00"),
    ("0 0 13 * fri", "2025-01-03 00:00", "2025-01-10 00:00", "2025-01-13 00:00"),
    ("0 0 13 * 0-6", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("0 0 1-31 * fri", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("0 0 31 4,5 mon", "2025-04-07 00:00", "2025-04-14 00:00"),
    ("@hourly", "2025-01-01 01:00", "2025-01-01 02:00"),
    ("@daily", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("@midnight", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("@weekly", "2025-01-05 00:00", "2025-01-12 00:00"),
    ("@monthly", "2025-02-01 00:00", "2025-03-01 00:00"),
    ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
    ("@annually", "2026-01-01 00:00", "2027-01-01 00:00"),
    ("@DAILY", "2025-01-02 00:00", "2025-01-03 00:00"),
    ("  0\t9  * * *\n", "2025-01-01 09:00", "2025-01-02 09:00"),
]

#: An expression, and what its refusal says.
REFUSED = [
    ("", "has 0 fields, not five"),
    ("   ", "has 0 fields, not five"),
    (None, "is a NoneType, not text"),
    (b"0 0 * * *", "is a bytes, not text"),
    (5, "is a int, not text"),
    ("* " * 30_000, "has 60000 characters"),
    ("7", "has 1 field, not five"),
    ("0 0 * *", "has 4 fields, not five"),
    ("0 0 * * * *", "has 6 fields, not five"),
    ("0 0 0 * * * 2030", "has 7 fields, not five"),
    ("0 0 * * *\n0 1 * * *", "has 10 fields, not five"),
    ("@reboot", "no such nickname"),
    ("@every 5m", "no such nickname"),
    ("@daily 5", "no such nickname"),
    ("9-9 * * * *", "'9-9' in the minute field is a range from a value to itself. Write '9'"),
    ("0 9-9 * * *", "'9-9' in the hour field is a range from a value to itself"),
    ("0 0 1-1 * *", "'1-1' in the day-of-month field is a range from a value to itself"),
    ("0 0 1 1-1 *", "month field is a range from a value to itself. Write 'jan'"),
    ("0 0 * * sun-sun", "is a range from a value to itself. Write 'sun'"),
    ("0 0 * * 7-7", "is a range from a value to itself. Write 'sun'"),
    ("0 0 * * 7-0", "is a range from a value to itself. Write 'sun'"),
    ("9-9/2 * * * *", "is a range from a value to itself"),
    ("50-10 * * * *", "runs backwards. Write '50-59,0-10'"),
    ("0 22-2 * * *", "runs backwards. Write '22-23,0-2'"),
    ("0 23-0 * * *", "runs backwards. Write '23,0'"),
    ("0 0 28-3 * *", "runs backwards. Write '28-31,1-3'"),
    ("*/90 * * * *", "has the step 90, and a step here is from 1 to 59"),
    ("*/60 * * * *", "has the step 60"),
    ("*/0 * * * *", "has the step 0"),
    ("0 */24 * * *", "has the step 24, and a step here is from 1 to 23"),
    ("0 0 */32 * *", "has the step 32"),
    ("0 0 1 */13 *", "has the step 13"),
    ("0 0 * * */8", "has the step 8"),
    ("59/15 * * * *", "has a step and no range. Write '59', or the values one by one"),
    ("6/1 * * * *", "has a step and no range. Write '6-59/1'"),
    ("0 6/1 * * *", "has a step and no range. Write '6-23/1'"),
    ("*/99999 * * * *", "cannot be read"),
    ("*/-5 * * * *", "cannot be read"),
    ("*/1.5 * * * *", "cannot be read"),
    ("60 * * * *", "'60' in the minute field is out of range. Write 0 to 59."),
    ("0 24 * * *", "out of range"),
    ("0 0 0 * *", "out of range. Write 1 to 31."),
    ("0 0 32 * *", "out of range"),
    ("0 0 1 0 *", "out of range. Write 1 to 12 or jan to dec."),
    ("0 0 1 13 *", "out of range"),
    ("0 0 * * 8", "out of range. Write 0 to 7 or sun to sat."),
    ("007 * * * *", "out of range"),
    ("0-60 * * * *", "out of range"),
    ("-1 * * * *", "cannot be read"),
    ("+1 * * * *", "cannot be read"),
    ("1_0 * * * *", "cannot be read"),
    ("\u0663 * * * *", "cannot be read"),
    ("1- * * * *", "cannot be read"),
    ("1,,2 * * * *", "cannot be read"),
    (",1 * * * *", "cannot be read"),
    ("1-5-9 * * * *", "cannot be read"),
    ("** * * * *", "cannot be read"),
    ("mon * * * *", "cannot be read"),
    ("0 0 * * monday", "cannot be read"),
    ("0 0 1 january *", "cannot be read"),
    ("R * * * *", "would be another time in each process"),
    ("R(0-10) * * * *", "would be another time in each process"),
    ("H * * * *", "would be another time in each process"),
    ("H/15 * * * *", "would be another time in each process"),
    ("0 h * * *", "would be another time in each process"),
    ("0 0 L * *", "is of Quartz"),
    ("0 0 15W * *", "is of Quartz"),
    ("0 0 ? * mon", "is of Quartz"),
    ("0 0 * * fri#2", "is of Quartz"),
    ("0 0 * * 5L", "is of Quartz"),
    ("5,* * * * *", "has a '*' among other values"),
    ("*,5 * * * *", "has a '*' among other values"),
    ("7,*/15 * * * *", "has a '*' among other values"),
    ("0 0 30 2 *", "no month that it names has a day 30"),
    ("0 0 31 feb,apr,jun,sep,nov *", "no month that it names has a day 31"),
    ("0 0 30 2 fri", "no month that it names has a day 30"),
    ("0 0 */2 * fri", "some crons read that as 'or', others as 'and'"),
    ("0 0 13 * */2", "some crons read that as 'or', others as 'and'"),
]


def readings(expression: str, after: str, count: int) -> list[str]:
    found = Cron.read(expression).readings_after(datetime.fromisoformat(after))
    return [reading.isoformat(" ", "minutes") for reading in itertools.islice(found, count)]


@pytest.mark.parametrize(("expression", "expected"), [(row[0], row[1:]) for row in ACCEPTED])
def test_accepted(expression: str, expected: tuple[str, ...]) -> None:
    """S4: What the gate lets through is due when its writer means it to be."""
    assert readings(expression, NEW_YEAR, len(expected)) == list(expected)


@pytest.mark.parametrize(
    ("expression", "reason"), REFUSED, ids=[f"{row[0]!r:.30}" for row in REFUSED]
)
def test_refused(expression: object, reason: str) -> None:
    """S4: What is not meant as it is written is refused with the reason, and in few words."""
    with pytest.raises(ConfigError) as refused:
        Cron.read(expression)
    assert reason in str(refused.value)
    assert refused.value.hint
    assert len(str(refused.value)) < 400


def test_leap_day_over_a_century() -> None:
    """S4: The 29th of February is found over the eight years around 2100, which has none."""
    expected = ["2096-02-29 00:00", "2104-02-29 00:00", "2108-02-29 00:00"]
    assert readings("0 0 29 2 *", "2096-01-01 00:00", 3) == expected
    assert readings("0 0 29 2 *", "2096-02-29 00:00", 1) == expected[1:2]


def test_strictly_later() -> None:
    """S5: A reading is never its own successor, and seconds do not count."""
    assert readings("0 9 * * *", "2025-01-01 09:00", 1) == ["2025-01-02 09:00"]
    assert readings("0 9 * * *", "2025-01-01 08:59:59.999999", 1) == ["2025-01-01 09:00"]
    assert readings("0 9 * * *", "2025-01-01 09:00:30", 1) == ["2025-01-02 09:00"]


def test_text_is_kept() -> None:
    """The expression is stored as it was written, but for its spaces."""
    assert Cron.read(" 0  9 * *\tMON ").text == "0 9 * * MON"
    assert Cron.read("@daily").text == "@daily"


@pytest.mark.parametrize(
    ("expression", "minutely", "hourly"),
    [
        ("* * * * *", True, True),
        ("*/15 2 * * *", True, False),
        ("0 */2 * * *", False, True),
        ("0-59/5 2 * * *", False, False),
        ("@hourly", False, True),
        ("@daily", False, False),
    ],
)
def test_kinds(expression: str, minutely: bool, hourly: bool) -> None:
    """S5: A pattern is minutely or hourly when that field begins with ``*``."""
    cron = Cron.read(expression)
    assert (cron.is_minutely, cron.is_hourly) == (minutely, hourly)


@pytest.mark.parametrize(
    ("expression", "part", "due"),
    [
        ("*/45 * * * *", "'*/45' does not come out even in the minute field", "0, 45,"),
        ("*/59 * * * *", "'*/59'", "0, 59,"),
        ("10-50/15 * * * *", "'10-50/15'", "10, 25, 40,"),
        ("0 */5 * * *", "'*/5' does not come out even in the hour field", "0, 5, 10, 15, 20,"),
        ("0 0 */10 * *", "day-of-month field", "1, 11, 21, 31,"),
        ("0 0 1 */5 *", "month field", "jan, jun, nov,"),
        ("0 0 * * */2", "day-of-week field", "sun, tue, thu, sat,"),
        ("3,10-20/15 * * * *", "'10-20/15'", "10,"),
    ],
)
def test_uneven_step_warns(expression: str, part: str, due: str) -> None:
    """S4: A step that does not divide warns, and says when the expression is really due."""
    (warning,) = Cron.read(expression).warnings()
    assert part in warning
    assert f"stands for {due}" in warning


@pytest.mark.parametrize(
    "expression",
    ["*/15 * * * *", "0 */6 * * *", "0 9-17/2 * * *", "0-59/15 * * * *", "0 0 1 */3 *", "@daily"],
)
def test_even_step_does_not_warn(expression: str) -> None:
    """A step that divides its field, or ends on the end of its range, is as it seems."""
    assert Cron.read(expression).warnings() == []
