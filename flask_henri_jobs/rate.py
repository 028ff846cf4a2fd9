"""What ``rate=`` means: how many jobs of a task begin in a time, counted by which key (X4)."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from .checks import shown
from .durations import millis, to_duration, to_text
from .errors import ConfigError
from .limit import Key, bucket_of, read_group

if t.TYPE_CHECKING:
    from datetime import timedelta

    from .limit import Limit

MOST_STARTS = 10_000
SHORTEST_MS, LONGEST_MS = 1_000, 31 * 86_400_000

LEEWAY_PART = 50
SHORTEST_LEEWAY_MS, LONGEST_LEEWAY_MS = 20, 250

RateOption: t.TypeAlias = str | Mapping[str, t.Any]

_TEXT = re.compile(r"(\d{1,9})\s*/\s*(\d{0,9}\s*(?:ms|s|m|h|d|w))", re.ASCII)
_HINT = 'Give starts in a time, such as "10/s", "100/m" or "5000/1h".'


@dataclass(frozen=True, slots=True)
class Rate:
    """A bound on how many jobs of a group begin in any stretch of time of one length.

    :param group: Whose starts are counted together; tasks of one group agree on the rate.
    :param most: How many of one bucket begin in that time.
    :param window: How long it is, in milliseconds.
    :param key: What divides the group into buckets, as that of a limit does.
    """

    group: str
    most: int
    window: int
    key: Key | None = None

    @classmethod
    def read(cls, option: object, task: str, parameters: t.Collection[str]) -> Rate:
        """Return the rate that a task's ``rate=`` stands for.

        :param parameters: The names of the task's arguments.
        :raises ConfigError: It is no such thing, or names an argument that there is not.
        """
        where = f"rate= of the task {task}"
        if not isinstance(option, Mapping):
            return cls(task, *_starts(option, where))
        hint = 'Give {"limit": "100/m", ...}.'
        group, starts, key = read_group(option, where, task, parameters, hint)
        return cls(group, *_starts(starts, f"{where}['limit']"), key)

    @property
    def leeway(self) -> int:
        """How many milliseconds after it was counted a start may begin.

        It is counted that much later than it is, so that no two starts are ever too close.
        """
        part = self.window // LEEWAY_PART
        return max(SHORTEST_LEEWAY_MS, min(part, LONGEST_LEEWAY_MS))

    def bucket(self, args: Mapping[str, t.Any], defaults: Mapping[str, t.Any]) -> str:
        """Return what a job with these arguments is counted by: ``group`` or ``group:value``."""
        return bucket_of(self.group, self.key, args, defaults)

    def __str__(self) -> str:
        """Return it as it is written: ``100/1m``."""
        return f"{self.most}/{to_text(_span(self.window))}"


@dataclass(frozen=True, slots=True)
class Start:
    """A start that is counted.

    :param slot: The id of what stands for it.
    :param until: The steady seconds until which the job may begin under it.
    """

    slot: str
    until: float


@dataclass(frozen=True, slots=True)
class Lane:
    """What holds back the jobs of one group, whose key is ``group`` or ``group:value``.

    A job has one key, by which it is found: that of its task's limit, or else of its rate.

    :param most: How many of one key run at once; None bounds that not.
    """

    group: str
    most: int | None
    rate: Rate | None

    @classmethod
    def of(cls, limit: Limit | None, rate: Rate | None) -> Lane | None:
        """Return the lane of a task with a limit, a rate or both; None where it has neither."""
        if limit is not None:
            return cls(limit.group, limit.most, rate)
        return None if rate is None else cls(rate.group, None, rate)

    @property
    def is_rated(self) -> bool:
        """Whether its jobs are counted as they begin."""
        return self.rate is not None

    def rate_bucket(self, key: str | None) -> str:
        """Return what a job with a key is counted by in the lane's rate."""
        assert self.rate is not None
        begin = f"{self.group}:"
        if self.rate.key is None or key is None or not key.startswith(begin):
            return self.rate.group
        return f"{self.rate.group}:{key.removeprefix(begin)}"


def refuse_other_key(limit: Limit | None, rate: Rate | None, task: str) -> None:
    """Refuse a limit and a rate of one task that divide its jobs in different ways.

    A job that may not begin would stand in front of others that may.

    :raises ConfigError: They do.
    """
    if limit and rate and rate.key is not None and rate.key != limit.key:
        raise ConfigError(
            f"concurrency= and rate= of the task {task} have different keys.",
            hint="Give both the same key, or the rate none.",
        )


def lane_of(key: str, groups: Mapping[str, Lane]) -> Lane | None:
    """Return what holds back the jobs of a key."""
    group = group_of(key, groups)
    return None if group is None else groups[group]


def group_of(key: str, groups: Mapping[str, Lane]) -> str | None:
    """Return the group of a key, ``group`` or ``group:value``: the longest that is known."""
    while key not in groups:
        key, colon, _ = key.rpartition(":")
        if not colon:
            return None
    return key


def _starts(value: object, where: str) -> tuple[int, int]:
    """Return how many starts in how many milliseconds a text stands for."""
    found = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(f"{where} is {shown(value)}.", hint=_HINT)
    most, time = int(found[1]), found[2].replace(" ", "")
    window = millis(to_duration(time if time[0].isdigit() else f"1{time}", where))
    if not 1 <= most <= MOST_STARTS:
        raise ConfigError(
            f"{where} is {shown(value)}.", hint=f"Give 1 to {MOST_STARTS:_} starts in a time."
        )
    if not SHORTEST_MS <= window <= LONGEST_MS:
        raise ConfigError(
            f"{where} is {shown(value)}.",
            hint="Give a time of 1 second to 31 days: 10/s in place of 1/100ms.",
        )
    return most, window


def _span(window: int) -> timedelta:
    return to_duration(window / 1000, "a rate")
