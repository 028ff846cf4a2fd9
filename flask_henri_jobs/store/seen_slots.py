"""What a process knows of the slots of one bucket between two questions about it (X4)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

if t.TYPE_CHECKING:
    from ..clock import Moment

NEVER = float("inf")


@dataclass(slots=True)
class SeenSlots:
    """The slots of a bucket that were taken the longest ago, with what was done here since.

    :param taken: When each was taken; 0 for one that is not there yet, and free as well.
    :param beyond: No slot that was not seen was taken before that; ``NEVER`` where all were seen.
    :param window: How long after it was taken a slot is free again, in milliseconds.
    :param until: The steady seconds until which this holds: others may take from the bucket too.
    :param few_until: The same, where fewer are free than are of use.
    """

    taken: dict[int, Moment]
    beyond: float
    window: int
    until: float
    few_until: float

    def free(self, now: Moment) -> list[int]:
        """Return the slots that are free, those first that are there already."""
        free = [slot for slot, at in self.taken.items() if at + self.window <= now]
        return sorted(free, key=lambda slot: not self.taken[slot])

    def may_have_more(self, now: Moment) -> bool:
        """Whether a slot that was not seen may be free by now."""
        return self.beyond + self.window <= now

    def next_free_at(self, now: Moment) -> float:
        """Return when the next slot is free that is not yet; ``NEVER`` where all are."""
        times = [at + self.window for at in (*self.taken.values(), self.beyond)]
        return min((at for at in times if at > now), default=NEVER)
