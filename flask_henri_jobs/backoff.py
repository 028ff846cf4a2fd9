"""How long a failed job waits for its next attempt (Q5)."""

from __future__ import annotations

import random
import sys
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import InitVar, asdict, dataclass, fields
from datetime import timedelta
from functools import partial

from .checks import checked_mapping, checked_number, shown
from .durations import to_duration, to_text
from .errors import ConfigError

EXAMPLE = '{"base": "5s", "factor": 4, "max": "1h", "jitter": 0.15}'


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """The waits between the attempts of a failing job.

    :param base: The wait after the first failure.
    :param factor: Each later wait is this many times the one before.
    :param max: No wait is longer than this.
    :param jitter: The share of a wait that is drawn at random, so that jobs
        that failed together do not come back together.
    :param where: How the user calls this value, for the message.
    :raises ConfigError: A value is out of its bounds.
    """

    base: timedelta = timedelta(seconds=5)
    factor: float = 4.0
    max: timedelta = timedelta(hours=1)
    jitter: float = 0.15
    where: InitVar[str] = "Backoff"

    def __post_init__(self, where: str) -> None:
        # Text is read here, so that a backoff keeps its bounds however it was made.
        keep = partial(object.__setattr__, self)
        keep("base", to_duration(self.base, f"{where}['base']"))
        keep("max", to_duration(self.max, f"{where}['max']"))
        keep("factor", checked_number(self.factor, f"{where}['factor']", 1, 1000))
        keep("jitter", checked_number(self.jitter, f"{where}['jitter']", 0, 1))
        if self.base > self.max:
            raise ConfigError(
                f"{where} has a base of {to_text(self.base)} and a max of {to_text(self.max)}.",
                hint="Give a max that is no shorter than the base.",
            )

    @classmethod
    def read(cls, value: object, where: str, default: Backoff | None = None) -> Backoff:
        """Return the backoff that a setting or an option stands for.

        :param value: A :class:`Backoff`, or a mapping with some of its fields, such as
            ``{"base": "5s", "factor": 4, "max": "1h", "jitter": 0.15}``.
        :param default: Where the fields that are not given come from.
        :raises ConfigError: It is neither, has an unknown key, or is out of bounds.
        """
        if isinstance(value, Backoff):
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{where} is {shown(value)}.",
                hint=f"Give a mapping such as {EXAMPLE}.",
            )
        given: dict[str, t.Any] = checked_mapping(
            value, where, [field.name for field in fields(cls)]
        )
        return cls(**{**asdict(default or cls()), **given}, where=where)

    def wait_after(self, attempt: int, random: Callable[[], float] = random.random) -> timedelta:
        """Return the wait that follows the given attempt, counted from 1.

        :param random: Draws from 0 to 1; 0 gives the longest wait.
        """
        seconds = min(self.base.total_seconds() * self._growth(attempt), self.max.total_seconds())
        return timedelta(seconds=seconds * (1 - self.jitter * random()))

    def _growth(self, attempt: int) -> float:
        try:
            return self.factor ** (attempt - 1)
        except OverflowError:
            # A job with very many attempts. Not infinity: a base of zero stays zero.
            return sys.float_info.max
