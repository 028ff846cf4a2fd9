"""What a cron expression may say, and when it is due on a calendar without clock changes (S4).

A gate stands before croniter, which accepts what people write and do not mean. It reads every
field itself and hands on plain lists of numbers, so that croniter only walks the calendar. What a
change of the clock does to a reading of it is said in :mod:`.clock_changes`.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from datetime import datetime

from croniter import croniter

from .errors import ConfigError

if t.TYPE_CHECKING:
    from collections.abc import Iterator

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

LONGEST = 512
"""In characters; more than any expression needs."""

_PART = re.compile(
    r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,4}))?", re.ASCII
)
_DRAWN = re.compile(r"[HR](\(.*)?(/.*)?", re.ASCII | re.IGNORECASE)
_QUARTZ = re.compile(r"\?|L|L?W|\d+[LW]|L\d|.+#.+", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields of an expression.

    :param highest: The highest number that may be written; ``7`` is one more name for Sunday.
    :param size: How many different values there are.
    :param cyclic: Whether a range may run over the end, as ``sat-mon`` does.
    """

    name: str
    lowest: int
    highest: int
    size: int
    names: tuple[str, ...] = ()
    cyclic: bool = False

    def read(self, text: str) -> frozenset[int]:
        """Return the values that a field's text stands for.

        :raises ConfigError: The text means nothing here, or not what it seems to mean.
        """
        return frozenset(self._wrap(value) for part in self._parts(text) for value in part)

    def warnings(self, text: str) -> list[str]:
        """Say which steps do not come out even, and which values they really stand for."""
        said = []
        for part, values in zip(text.split(","), self._parts(text), strict=True):
            # What begins with "*" begins anew after its end. A range may also stop on its end.
            ends = (values.stop,) if part.startswith("*") else (values.stop, values.stop - 1)
            if all((end - values.start) % values.step for end in ends):
                due = ", ".join(self._name(self._wrap(value)) for value in values)
                said.append(
                    f"{part!r} does not come out even in the {self.name} field:"
                    f" it stands for {due}, and begins anew after that."
                )
        return said

    def _parts(self, text: str) -> list[range]:
        parts = text.split(",")
        if len(parts) > 1 and (parts[0] == "*" or any("*" in part for part in parts[1:])):
            raise self._refused(
                text, "has a '*' among other values.", "Write the '*' first or alone."
            )
        return [self._part(part) for part in parts]

    def _part(self, text: str) -> range:
        match = _PART.fullmatch(text)
        if match is None or _DRAWN.fullmatch(text) or _QUARTZ.fullmatch(text):
            raise self._unreadable(text)
        step = self._step(text, match)
        if match["star"]:
            return range(self.lowest, self.lowest + self.size, step)
        first = self._value(match["first"])
        if match["last"] is None:
            return range(first, first + 1)
        return self._range(text, first, self._value(match["last"]), step)

    def _step(self, text: str, match: re.Match[str]) -> int:
        if match["step"] is None:
            return 1
        step = int(match["step"])
        if not match["star"] and match["last"] is None:
            first = self._value(match["first"])
            meant = f"{first}-{self.highest}/{step}" if first < self.highest else first
            raise self._refused(
                text, "has a step and no range.", f"Write '{meant}', or the values one by one."
            )
        if not 1 <= step <= self.highest:
            raise self._refused(
                text,
                f"has the step {step}, and a step here is from 1 to {self.highest}.",
                "A longer interval belongs to the next field, or is an 'every'.",
            )
        return step

    def _range(self, text: str, first: int, last: int, step: int) -> range:
        if last in (first, self._wrap(first)):
            raise self._refused(
                text,
                "is a range from a value to itself.",
                f"Write '{self._name(last)}' for that value alone, '*' for all.",
            )
        first = self._wrap(first)
        if last < first and not self.cyclic:
            raise self._refused(
                text,
                "is a range that runs backwards.",
                f"Write '{_span(first, self.highest)},{_span(self.lowest, last)}'"
                " if both ends are meant.",
            )
        return range(first, last + 1 + (self.size if last < first else 0), step)

    def _value(self, text: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.lowest
        if not text.isdigit():
            raise self._unreadable(text)
        if len(text) > 2 or not self.lowest <= int(text) <= self.highest:
            raise self._refused(text, "is out of range.", f"Write {self._allowed()}.")
        return int(text)

    def _wrap(self, value: int) -> int:
        return (value - self.lowest) % self.size + self.lowest

    def _name(self, value: int) -> str:
        return self.names[self._wrap(value) - self.lowest] if self.names else str(value)

    def _allowed(self) -> str:
        named = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.lowest} to {self.highest}{named}"

    def _unreadable(self, text: str) -> ConfigError:
        if _DRAWN.fullmatch(text):
            reason = "would be another time in each process."
        elif _QUARTZ.fullmatch(text):
            reason = "is of Quartz, not of cron."
        else:
            reason = "cannot be read."
        return self._refused(
            text, reason, f"Write {self._allowed()}: a value, 'a,b', 'a-b', 'a-b/n', '*' or '*/n'."
        )

    def _refused(self, text: str, reason: str, hint: str) -> ConfigError:
        return ConfigError(f"{text!r:.40} in the {self.name} field {reason}", hint=hint)


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if first < last else f"{first}"


MINUTE = Field("minute", 0, 59, 60)
HOUR = Field("hour", 0, 23, 24)
DAY = Field("day-of-month", 1, 31, 31)
MONTH = Field("month", 1, 12, 12, MONTHS, cyclic=True)
WEEKDAY = Field("day-of-week", 0, 7, 7, WEEKDAYS, cyclic=True)
FIELDS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression that has passed the gate.

    :param text: The expression as it was written, with single spaces.
    :param calendar: The same in plain lists of numbers, which is all that croniter sees.
    """

    text: str
    calendar: str

    @classmethod
    def read(cls, expression: object) -> Cron:
        """Return the expression that a text stands for.

        :raises ConfigError: The expression is refused; the message says why, and the hint what to
            write instead.
        """
        text = _one_line(expression)
        try:
            fields = _fields(text)
            values = [field.read(each) for field, each in zip(FIELDS, fields, strict=True)]
            _check_days(fields, values)
        except ConfigError as refused:
            raise ConfigError(
                f"the cron expression {text!r:.80} is refused: {refused.message}", hint=refused.hint
            ) from None
        return cls(text, " ".join(map(_listed, FIELDS, fields, values)))

    @property
    def is_minutely(self) -> bool:
        """Whether the minute field begins with ``*`` (S5)."""
        return _fields(self.text)[0].startswith("*")

    @property
    def is_hourly(self) -> bool:
        """Whether the hour field begins with ``*`` (S5)."""
        return _fields(self.text)[1].startswith("*")

    def readings_after(self, reading: datetime) -> Iterator[datetime]:
        """Yield the naive readings of the clock at which the expression is due, in their order."""
        # The longest wait of all is from one 29th of February to the next.
        walk = croniter(self.calendar, reading, datetime, max_years_between_matches=8)
        while True:
            yield walk.get_next()

    def warnings(self) -> list[str]:
        """Say which steps do not come out even, with the values at which they are really due."""
        fields = zip(FIELDS, _fields(self.text), strict=True)
        return [said for field, text in fields for said in field.warnings(text)]


def _one_line(expression: object) -> str:
    if not isinstance(expression, str):
        raise ConfigError(
            f"the cron expression is a {type(expression).__name__}, not text.",
            hint="Write five fields, such as '0 9 * * mon-fri'.",
        )
    if len(expression) > LONGEST:
        raise ConfigError(
            f"the cron expression has {len(expression)} characters.",
            hint=f"At most {LONGEST} are read.",
        )
    return " ".join(expression.split())


def _fields(text: str) -> list[str]:
    fields = NICKNAMES.get(text.lower(), text).split()
    if text.startswith("@") and len(fields) != len(FIELDS):
        raise ConfigError(
            "there is no such nickname.",
            hint=f"Write one of {', '.join(NICKNAMES)}, or give 'every'.",
        )
    if len(fields) == len(FIELDS):
        return fields
    raise ConfigError(
        f"it has {len(fields)} field{'s' * (len(fields) != 1)}, not five.",
        hint="Write minute, hour, day of month, month and day of week."
        " For seconds give 'every' instead of 'cron'.",
    )


def _check_days(fields: list[str], values: list[frozenset[int]]) -> None:
    _, _, day, _, weekday = fields
    _, _, days, months, _ = values
    if min(days) > max(DAYS_OF_MONTH[month - 1] for month in months):
        raise ConfigError(
            f"no month that it names has a day {min(days)}, so that day never comes.",
            hint="Name a day that the months have, or leave the day-of-month field '*'.",
        )
    if "*" not in (day, weekday) and "*" in (day[0], weekday[0]):
        raise ConfigError(
            "its day-of-month and day-of-week fields are both given and one begins with '*':"
            " some crons read that as 'or', others as 'and'.",
            hint="Write the days one by one, which is 'or', or leave one field '*'.",
        )


def _listed(field: Field, text: str, values: frozenset[int]) -> str:
    # A day field that names every day still stands beside the other one with "or".
    whole = len(values) == field.size and (text.startswith("*") or field not in (DAY, WEEKDAY))
    return "*" if whole else ",".join(map(str, sorted(values)))
