"""Which limited work is next, at a cost by the number of keys and not by the backlog (L4)."""

from __future__ import annotations

import heapq
import typing as t
from dataclasses import dataclass, field

from ..clock import steady_seconds
from ..job import PENDING, Document
from .candidates import CLAIM
from .documents import IN_ORDER, one_batch

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pymongo.collection import Collection

    from ..clock import Moment

SHORTEST_MEMORY = 0.01
MEMORY_PER_COST = 20.0
"""What was read is used for so many times the time that reading it took: a twentieth of a
runner's time goes into looking."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """A due job of a key: the first, or the next behind one that is being taken."""

    key: str
    queue: str
    priority: int
    run_at: Moment
    id: str

    @property
    def order(self) -> tuple[int, Moment, str]:
        """Its place among all jobs (Q2)."""
        return self.priority, self.run_at, self.id


@dataclass(slots=True)
class _Known:
    """What was read of a queue.

    :param heads: What is left of it, in order and by key.
    :param until: When it is read again, at the latest.
    :param size: How many heads there were.
    """

    heads: dict[str, Head]
    until: float
    size: int

    def is_good(self, now: float) -> bool:
        """Whether it is used for longer: most of what was read is there still, or there was none.

        What comes behind a head that was taken is not known.
        """
        return now < self.until and (not self.size or 8 * len(self.heads) > self.size)


@dataclass(slots=True)
class WaitingKeys:
    """Finds the first due job of every key that has one."""

    jobs: Collection[Document]
    steady: Callable[[], float] = steady_seconds
    _known: dict[str, _Known] = field(default_factory=dict)
    _are_freed: bool = False

    def heads(self, queues: Iterable[str], now: Moment) -> Iterator[Head]:
        """Yield the first due job of every key in some queues, in their order."""
        of_each = [self._of(queue, now) for queue in queues]
        return heapq.merge(*of_each, key=lambda head: head.order)

    def taken(self, head: Head) -> None:
        """Note that a job is no longer its key's first; what comes after it is read in time."""
        known = self._known.get(head.queue)
        if known is not None:
            known.heads.pop(head.key, None)

    def behind(self, head: Head, at_most: int, now: Moment) -> list[Head]:
        """Return the next due jobs of a head's key in its queue."""
        due = {"state": PENDING, "concurrency_key": head.key, "run_at": {"$lte": now}}
        rows = self.jobs.find(
            {"queue": head.queue, **due},
            dict.fromkeys(("concurrency_key", "queue", "priority", "run_at"), True),
            sort=IN_ORDER,
            hint=CLAIM.name,
            # The head itself is the first of them, unless it was taken.
            **one_batch(at_most + 1),
        )
        return [_to_head(row) for row in rows if row["_id"] != head.id][:at_most]

    def freed(self) -> None:
        """Note that keys have slots free which had none when they were read."""
        self._are_freed = True

    def look_again_if_freed(self) -> bool:
        """Forget what was read if keys were freed since. Return whether it is forgotten."""
        forgotten = self._are_freed
        if forgotten:
            self.look_again()
        return forgotten

    def look_again(self) -> None:
        """Forget what was read."""
        self._are_freed = False
        self._known.clear()

    def _of(self, queue: str, now: Moment) -> list[Head]:
        known = self._known.get(queue)
        if known is None or not known.is_good(self.steady()):
            known = self._known[queue] = self._read(queue, now)
        return list(known.heads.values())

    def _read(self, queue: str, now: Moment) -> _Known:
        began = self.steady()
        rows = self.jobs.aggregate(_heads_of(queue, now), hint=CLAIM.name)
        heads = [
            _to_head({"queue": queue, "concurrency_key": row["_id"], **row["head"]}) for row in rows
        ]
        heads.sort(key=lambda head: head.order)
        ended = self.steady()
        until = ended + max(SHORTEST_MEMORY, MEMORY_PER_COST * (ended - began))
        return _Known({head.key: head for head in heads}, until, len(heads))


def _heads_of(queue: str, now: Moment) -> list[Document]:
    """Return a pipeline that jumps from key to key in the index: a DISTINCT_SCAN (B6).

    It reads no document: what it returns is in the index. Without ``run_at`` in the match, a job
    of the future would hide a due one of its key.
    """
    # $gt "" and not $type "string", which the planner does not take for a range.
    due = {
        "state": PENDING,
        "queue": queue,
        "concurrency_key": {"$gt": ""},
        "run_at": {"$lte": now},
    }
    head = {"_id": "$_id", "priority": "$priority", "run_at": "$run_at"}
    return [
        {"$match": due},
        {"$sort": CLAIM.keys},
        {"$group": {"_id": "$concurrency_key", "head": {"$first": head}}},
    ]


def _to_head(row: Document) -> Head:
    return Head(
        key=row["concurrency_key"],
        queue=row["queue"],
        priority=int(row["priority"]),
        run_at=int(row["run_at"]),
        id=row["_id"],
    )
