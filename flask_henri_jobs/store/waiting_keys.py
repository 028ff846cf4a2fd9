"""Which limited work is next, at a cost by the number of keys and not by the backlog (L4)."""

from __future__ import annotations

import heapq
import typing as t
from dataclasses import dataclass, field

from ..clock import steady_seconds
from ..job import PENDING, Document
from .candidates import CLAIM, Place, order_of
from .documents import ANY_PRIORITY, IN_ORDER, one_batch

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pymongo.collection import Collection

    from ..clock import Moment

SHORTEST_MEMORY = 0.01
MEMORY_PER_COST = 20.0
"""What was read is used for so many times the time that reading it took: a twentieth of a
runner's time goes into looking."""

MOST_KEYS_WALKED = 64
"""Keys that one look walks along, where their first jobs are not wanted; the next goes on."""

FEW = 20
STEPPED_SECONDS = 5.0
"""How long a place is remembered behind jobs of a key that are not wanted (B2)."""


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

    @property
    def place(self) -> Place:
        """The place right behind it."""
        return Place(*self.order)


@dataclass(frozen=True, slots=True)
class Sieve:
    """Which limited jobs a look is for, where some are held back.

    :param keys: Whether any job of a key may be wanted; asked first, and costs nothing.
    :param rows: Whether a job is wanted, by its name, queue and tenant.
    :param passing: A filter of the jobs that are.
    """

    keys: Callable[[str], bool]
    rows: Callable[[Document], bool]
    passing: Document


@dataclass(frozen=True, slots=True)
class _Step:
    """How far the jobs of a key were stepped over.

    :param until: When that is forgotten, in steady seconds.
    """

    place: Place
    until: float


@dataclass(slots=True)
class _Known:
    """What was read of a queue.

    :param heads: What is left of it, in order and by key.
    :param until: When it is read again, at the latest.
    :param size: How many heads there were.
    :param is_short: Whether a head was taken, behind which others of its key may wait.
    """

    heads: dict[str, Head]
    until: float
    size: int
    is_short: bool = False

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
    _steps: dict[tuple[str, str], _Step] = field(default_factory=dict)
    _are_freed: bool = False

    def heads(
        self, queues: Iterable[str], now: Moment, sieve: Sieve | None = None
    ) -> Iterator[Head]:
        """Yield the first due job of every key in some queues, in their order.

        :param sieve: Yield the first that is wanted. Those before it are stepped over, which
            costs once in some seconds and not on each look.
        """
        of_each = [self._of(queue, now, sieve) for queue in queues]
        return heapq.merge(*of_each, key=lambda head: head.order)

    def taken(self, head: Head) -> None:
        """Note that a job is no longer its key's first; what comes after it is read in time."""
        known = self._known.get(head.queue)
        if known is not None:
            known.heads.pop(head.key, None)
            known.is_short = True

    def look_in(self) -> float:
        """Return in how many seconds a look sees what came behind the heads that were taken."""
        now = self.steady()
        short = {queue: known.until for queue, known in self._known.items() if known.is_short}
        for queue, until in short.items():
            if until <= now:
                # The next look reads it, where that queue still has work; it waits for no more.
                del self._known[queue]
        return max(0.0, min(short.values()) - now) if short else float("inf")

    def behind(
        self, head: Head, at_most: int, now: Moment, sieve: Sieve | None = None
    ) -> list[Head]:
        """Return the next due jobs of a head's key in its queue, those that are wanted."""
        if sieve is not None:
            rows = self._page(head, head.place, max(at_most, FEW), now)
            return [_to_head(row) for row in rows if sieve.rows(row)][:at_most]
        found = self.jobs.find(
            _due_of(head, now),
            _IN_INDEX,
            sort=IN_ORDER,
            hint=CLAIM.name,
            # The head itself is the first of them, unless it was taken.
            **one_batch(at_most + 1),
        )
        return [_to_head(row) for row in found if row["_id"] != head.id][:at_most]

    def freed(self) -> None:
        """Note that keys have slots free which had none when they were read."""
        self._are_freed = True

    def look_again_if_freed(self) -> bool:
        """Forget what was read if keys were freed since. Return whether it is forgotten."""
        forgotten = self._are_freed
        if forgotten:
            self.look_again()
        return forgotten

    def look_for_new(self) -> None:
        """Forget what was read."""
        self._are_freed = False
        self._known.clear()

    def look_again(self) -> None:
        """Forget what was read, and what was stepped over."""
        self.look_for_new()
        self._steps.clear()

    def _of(self, queue: str, now: Moment, sieve: Sieve | None) -> list[Head]:
        known = self._known.get(queue)
        if known is None or not known.is_good(self.steady()):
            known = self._known[queue] = self._read(queue, now, sieve)
        return list(known.heads.values())

    def _read(self, queue: str, now: Moment, sieve: Sieve | None) -> _Known:
        began = self.steady()
        rows = self.jobs.aggregate(_heads_of(queue, now), hint=CLAIM.name)
        heads = [
            _to_head({"queue": queue, "concurrency_key": row["_id"], **row["head"]}) for row in rows
        ]
        if sieve is not None:
            heads = self._wanted(heads, now, sieve)
        heads.sort(key=lambda head: head.order)
        ended = self.steady()
        until = ended + max(SHORTEST_MEMORY, MEMORY_PER_COST * (ended - began))
        return _Known({head.key: head for head in heads}, until, len(heads))

    def _wanted(self, heads: list[Head], now: Moment, sieve: Sieve) -> list[Head]:
        """Return the heads that are wanted; in place of each other one, its key's first that is."""
        heads = [head for head in heads if sieve.keys(head.key)]
        rows = self.jobs.find({"_id": {"$in": [head.id for head in heads]}}, _JUDGED)
        wanted = {row["_id"] for row in rows if sieve.rows(row)}
        held = [head for head in heads if head.id not in wanted]
        # Those that were walked along the longest ago, or never, come first.
        held.sort(key=self._walked_until)
        further = [self._first_wanted(head, now, sieve) for head in held[:MOST_KEYS_WALKED]]
        return [
            *(head for head in heads if head.id in wanted),
            *(head for head in further if head is not None),
        ]

    def _walked_until(self, head: Head) -> float:
        step = self._steps.get((head.queue, head.key))
        return step.until if step else 0.0

    def _first_wanted(self, head: Head, now: Moment, sieve: Sieve) -> Head | None:
        """Return a key's first job that is wanted, walking along from a remembered place."""
        step = self._steps.get((head.queue, head.key))
        place = head.place
        until = self.steady() + STEPPED_SECONDS
        if step is not None and step.until > self.steady() and step.place > place:
            place, until = step.place, step.until
        rows = self._page(head, place, 1, now, sieve.passing)
        place = Place.before(rows[0]) if rows else self._end(head, now)
        self._steps[head.queue, head.key] = _Step(place, until)
        return _to_head(rows[0]) if rows else None

    def _end(self, head: Head, now: Moment) -> Place:
        """Return the place behind the last due job of a key."""
        last = list(
            self.jobs.find(
                _due_of(head, now), _JUDGED, sort=_BACKWARDS, hint=CLAIM.name, **one_batch(1)
            )
        )
        return Place.behind(last[0]) if last else head.place

    def _page(
        self,
        head: Head,
        after: Place,
        limit: int,
        now: Moment,
        passing: Document | None = None,
    ) -> list[Document]:
        """Return the next due jobs of a key, by what a sieve goes by."""
        key = {"state": PENDING, "queue": head.queue, "concurrency_key": head.key}
        key |= passing or {}
        rows: list[Document] = []
        for onwards in after.onwards(now):
            if len(rows) < limit:
                which = key | onwards
                rows += self.jobs.find(
                    which,
                    _JUDGED,
                    sort=order_of(which),
                    hint=CLAIM.name,
                    **one_batch(limit - len(rows)),
                )
        return rows


_IN_INDEX = dict.fromkeys(("concurrency_key", "queue", "priority", "run_at"), True)
_BACKWARDS = [(key, -1) for key, _ in IN_ORDER]
_JUDGED = _IN_INDEX | {"name": True, "tenant": True}


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
        "priority": ANY_PRIORITY,
        "run_at": {"$lte": now},
    }
    head = {"_id": "$_id", "priority": "$priority", "run_at": "$run_at"}
    return [
        {"$match": due},
        {"$sort": CLAIM.keys},
        {"$group": {"_id": "$concurrency_key", "head": {"$first": head}}},
    ]


def _due_of(head: Head, now: Moment) -> Document:
    """Return a filter of the due jobs of a head's key in its queue."""
    of_key = {"state": PENDING, "queue": head.queue, "concurrency_key": head.key}
    return of_key | {"priority": ANY_PRIORITY, "run_at": {"$lte": now}}


def _to_head(row: Document) -> Head:
    return Head(
        key=row["concurrency_key"],
        queue=row["queue"],
        priority=int(row["priority"]),
        run_at=int(row["run_at"]),
        id=row["_id"],
    )
