"""The starts that rates leave free, as one look for jobs goes by them (X4)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..rate import lane_of

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..rate import Lane, Rate
    from .rates import Rates


@dataclass(slots=True)
class Allowance:
    """The starts of one bucket that are free, and how many lines may take one."""

    left: int
    lines: int = 0


@dataclass(slots=True)
class Starts:
    """The starts that the rates of lanes leave free, each bucket asked about once in a look."""

    rates: Rates
    groups: Mapping[str, Lane]
    at_most: int
    _allowances: dict[str, Allowance] = field(default_factory=dict)

    def are_spent(self, key: str) -> bool:
        """Whether a key is known to have no start free."""
        lane = lane_of(key, self.groups)
        return lane is not None and lane.is_rated and self.rates.is_spent(lane.rate_bucket(key))

    def look_at(self, keys: Iterable[str]) -> None:
        """See what is free for some keys, in one question for all that are not known."""
        buckets: dict[str, Rate] = {}
        for key in keys:
            lane = lane_of(key, self.groups)
            if lane is not None and lane.rate is not None:
                buckets[lane.rate_bucket(key)] = lane.rate
        self.rates.look(buckets, self.at_most)

    def has_one_for(self, key: str) -> bool:
        """Whether one more line of a key finds a start."""
        allowance = self.of(key)
        if allowance is None:
            return True
        allowance.lines += 1
        return allowance.lines <= allowance.left

    def of(self, key: str) -> Allowance | None:
        """Return what is free for a key; None where no rate bounds it."""
        lane = lane_of(key, self.groups)
        if lane is None or lane.rate is None:
            return None
        bucket = lane.rate_bucket(key)
        if bucket not in self._allowances:
            free = self.rates.free(bucket, lane.rate, self.at_most)
            self._allowances[bucket] = Allowance(free)
        return self._allowances[bucket]
