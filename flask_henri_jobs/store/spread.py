"""How runners that race for the same jobs get out of one another's way (B3)."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from ..job import Document

WIDEST = 8
"""A job is taken at most so many claims early: that is what order means among several runners."""


@dataclass(slots=True)
class Spread:
    """How many times as many candidates are read as are taken.

    Every runner reads the same jobs first. One that loses most of them reads more, and takes a
    part of those at random; the parts are aligned, so that two runners have all in common or
    nothing.

    :param chance: Returns a number from 0 to below the given one.
    """

    width: int = 1
    chance: Callable[[int], int] = random.randrange

    def part_of(self, rows: list[Document], most: int) -> list[Document]:
        """Return the part of these candidates that is to be taken, in their order."""
        parts = -(-len(rows) // most) if most else 1
        if parts <= 1:
            return rows
        at = self.chance(min(parts, self.width)) * most
        return rows[at : at + most]

    def went(self, *, asked: int, won: int) -> None:
        """Note how many of the jobs that were asked for were won."""
        if not asked:
            return
        if 2 * won < asked:
            self.width = min(2 * self.width, WIDEST)
        elif won == asked:
            self.width = max(self.width // 2, 1)
