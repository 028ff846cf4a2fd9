"""What a runner asks of a claim."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ..log import logger
from ..queues import QueueTurns

if t.TYPE_CHECKING:
    from collections.abc import Callable, Collection as Names, Mapping

    from ..job import Document
    from ..pause import Paused
    from ..rate import Lane

MOST_ATTEMPTS = 2**53
"""What a number has to be below that is counted up: other programs have them as doubles."""

MOST_TOLD = 100

MOST_ADOPTED = 1_000
"""Jobs that are given their key at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Which jobs a runner would take.

    :param runner: Its id.
    :param queues: The queues that it takes from, and whose turn it is.
    :param at_most: How many: one for each free thread.
    :param ahead: How many more, while all threads are at work.
    :param limited_ahead: How many of those may be limited: a permit that waits is concurrency lost.
    :param short_groups: The groups of limits whose jobs are short enough to be taken ahead.
    :param takes: Asked of each job in turn; the first that is not ends the claim.
    :param wanted: Whether it would take a job, by its row; one that it would not is stepped over.
    :param lanes: What holds back the jobs of tasks with a limit or a rate, by their names.
    :param rung: The queues that it was woken for, and is in a hurry for.
    :param simple: The tasks without a limit or a rate of which it takes any job, where nothing else
        is in its hands.
    """

    runner: str
    at_most: int
    ahead: int = 0
    limited_ahead: int = 0
    short_groups: Names[str] = ()
    queues: QueueTurns = field(default_factory=QueueTurns)
    takes: Callable[[Document], bool] = lambda _: True
    wanted: Callable[[Document], bool] = lambda _: True
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    rung: frozenset[str] = frozenset()
    simple: Names[str] = ()


class Keyless:
    """Tells the jobs of limited tasks that have no key from unlimited ones (L5)."""

    def __init__(self, wish: Wish, paused: Paused) -> None:
        self.found: dict[str, list[str]] = defaultdict(list)
        self.odd: list[Document] = []
        self._wish = wish
        self._paused = paused

    def is_unlimited(self, row: Document) -> bool:
        """Whether a job has no limit and no rate, and is wanted."""
        if not is_sound(row):
            self.odd.append(row)
            return False
        if self._paused.holds(row):
            return False
        lane = self._wish.lanes.get(row["name"])
        if lane is None:
            return self._wish.wanted(row)
        self.found[lane.group].append(row["_id"])
        return False

    def are_many(self) -> bool:
        """Whether so many were found that they are given their keys first."""
        return sum(map(len, self.found.values())) >= MOST_ADOPTED


class OddJobs:
    """Says of jobs that they are passed by, of each once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, rows: list[Document]) -> None:
        """Say it of those of which it was not said."""
        for row in rows:
            name = repr(row["_id"])
            if name not in self._told and len(self._told) < MOST_TOLD:
                self._told.add(name)
                logger.error(
                    "The job %s is passed by: its %s is of no type that a job has. Delete it, or"
                    " mend it in the database.",
                    name,
                    ", ".join(spoilt_in(row)),
                )


def is_sound(row: Document) -> bool:
    """Whether a job can be claimed; one that some other program spoilt must stop no other."""
    return not spoilt_in(row)


def spoilt_in(row: Mapping[str, t.Any]) -> list[str]:
    """Return the fields for which a waiting job is claimed by nobody."""
    spoilt = [name for name, types in _TEXTS.items() if not isinstance(row.get(name), types)]
    spoilt += [name for name in _NUMBERS if not is_number(row.get(name))]
    if "attempts" not in spoilt and abs(row["attempts"]) >= MOST_ATTEMPTS:
        spoilt.append("attempts")
    return spoilt


def is_number(value: object) -> bool:
    """Whether a stored value is a number for the server too, which counts none from true or NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_TEXTS: dict[str, tuple[type, ...]] = {
    "_id": (str,),
    "name": (str,),
    "args": (str, type(None)),
    "queue": (str,),
    "tenant": (str, type(None)),
}
_NUMBERS = ("priority", "run_at", "attempts")
