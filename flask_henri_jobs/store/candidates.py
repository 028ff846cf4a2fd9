"""Reading the jobs that are next, at a cost that does not grow with the backlog (section 9)."""

from __future__ import annotations

import heapq
import typing as t
from dataclasses import dataclass, field

from ..clock import steady_seconds
from ..job import PENDING, Document
from .documents import ANY_PRIORITY, IN_ORDER, one_batch
from .indexes import Index

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment

CLAIM = Index(
    "fhj_claim",
    {"state": 1, "queue": 1, "concurrency_key": 1, "priority": 1, "run_at": 1, "_id": 1},
)
"""Serves the claim in its order, the queues with work, the waiting keys, and recovery (B5)."""

MOST_QUEUES = 64
"""Queues a query: the planner merges at most 200 scans, and a null key costs two (B1)."""

MOST_STEPPED_OVER = 500
"""Documents that one look steps over before it remembers where it got to (B2)."""

REMEMBERED_SECONDS = 5.0
QUEUES_SECONDS = 1.0


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """A place in the order: right behind one job."""

    priority: int
    run_at: Moment
    id: str
    is_before: bool = False
    """Whether it is right before that job instead."""

    @classmethod
    def behind(cls, row: Document) -> Place:
        """Return the place behind a job."""
        return cls(row["priority"], row["run_at"], row["_id"])

    @classmethod
    def before(cls, row: Document) -> Place:
        """Return the place before a job."""
        return cls(row["priority"], row["run_at"], row["_id"], is_before=True)

    def onwards(self, now: Moment) -> Iterator[Document]:
        """Yield filters that together match what is due behind the place, in order."""
        due = {"$lte": now}
        on = "$gte" if self.is_before else "$gt"
        yield {"priority": self.priority, "run_at": self.run_at, "_id": {on: self.id}}
        yield {"priority": self.priority, "run_at": {"$gt": self.run_at} | due}
        yield {"priority": {"$gt": self.priority}, "run_at": due}


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look for candidates goes by.

    :param limit: How many a walk reads first; each page after that is twice as long.
    """

    now: Moment
    limit: int
    passing: Document | None


@dataclass(frozen=True, slots=True)
class _Memory:
    """How far a queue was stepped over.

    :param since: When that was: what is due later may stand in front of the place.
    :param until: When it is forgotten, in steady seconds.
    """

    place: Place
    since: Moment
    until: float


@dataclass(slots=True)
class Candidates:
    """Finds due jobs in their order: priority, then ``run_at``, then id, over all queues (Q2).

    A job that is not wanted (its task is unknown here, or paused) is stepped over. Where many of
    those stand in front, the place is remembered for some seconds, so that passing them costs
    once in that time and not on each look.
    """

    jobs: Collection[Document]
    steady: Callable[[], float] = steady_seconds
    is_clear: bool = False
    """Whether the last look had nothing to step over."""
    _memories: dict[str, _Memory] = field(default_factory=dict)
    _queues: tuple[str, ...] = ()
    _queues_until: float = 0.0

    INDEXES: t.ClassVar[tuple[Index, ...]] = (CLAIM,)

    def read(
        self,
        queues: Sequence[str] | None,
        at_most: int,
        now: Moment,
        wanted: Callable[[Document], bool],
        passing: Document | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> list[Document]:
        """Return up to so many due and unlimited jobs that are wanted, in order.

        :param queues: Take from these only; None takes from every queue that has work.
        :param passing: A filter of whatever may be wanted. Where many jobs are stepped over, the
            server passes on by it, and none of them is read here.
        :param enough: Asked after each job that is not wanted; it may end the look.
        """
        if at_most < 1:
            # To the server, a limit of none is no limit.
            return []
        named = self.queues_with_work() if queues is None else queues
        found: list[Document] = []
        stepped = 0
        for row in self._in_order(named, at_most, now, passing):
            if wanted(row):
                found.append(row)
                if len(found) == at_most:
                    break
                continue
            stepped += 1
            if stepped % MOST_STEPPED_OVER == 0:
                self._remember(named, Place.behind(row), now)
                if found:
                    break
            if enough():
                break
        self.is_clear = not (stepped or self._memories)
        return found

    def queues_with_work(self) -> tuple[str, ...]:
        """Return the queues that have waiting jobs, as of a second ago at most."""
        if self.steady() >= self._queues_until:
            found = self.jobs.distinct("queue", {"state": PENDING})
            self._queues = tuple(queue for queue in found if isinstance(queue, str))
            self._queues_until = self.steady() + QUEUES_SECONDS
        return self._queues

    def queues_known(self) -> tuple[str, ...]:
        """Return the queues that had waiting jobs when somebody last looked, or told of them."""
        return self._queues

    def learn(self, queues: Iterable[str]) -> None:
        """Take note of queues that have work."""
        self._queues += tuple(queue for queue in queues if queue not in self._queues)

    def look_for_new(self) -> None:
        """Forget which queues have work."""
        self._queues_until = 0.0

    def look_again(self) -> None:
        """Forget which queues have work, and what was stepped over."""
        self.look_for_new()
        self._memories.clear()

    def _in_order(
        self, queues: Sequence[str], at_most: int, now: Moment, passing: Document | None
    ) -> Iterable[Document]:
        parts = list(self._parts_of(queues))
        # Twice its share from each, so that many parts together read little more than one, and
        # seldom need a second page.
        limit = min(at_most, -(-2 * at_most // max(len(parts), 1)))
        look = _Look(now, limit, passing)
        walks = [self._walk(part, memory, look) for part, memory in parts]
        return walks[0] if len(walks) == 1 else heapq.merge(*walks, key=_order)

    def _parts_of(self, queues: Sequence[str]) -> Iterator[tuple[list[str], _Memory | None]]:
        """Yield the queues in parts that one query serves, by how far they were stepped over."""
        steady = self.steady()
        alike: dict[_Memory | None, list[str]] = {}
        for queue in queues:
            memory = self._memories.get(queue)
            if memory is not None and memory.until <= steady:
                memory = None
                del self._memories[queue]
            alike.setdefault(memory, []).append(queue)
        for memory, names in alike.items():
            parts = -(-len(names) // MOST_QUEUES)
            # Neighbours by name are often alike, and go to different parts.
            yield from ((names[part::parts], memory) for part in range(parts))

    def _walk(self, queues: list[str], memory: _Memory | None, look: _Look) -> Iterator[Document]:
        """Yield the due jobs of some queues in order, from a remembered place on."""
        now, limit, walked = look.now, look.limit, 0
        queue = {"queue": queues[0] if len(queues) == 1 else {"$in": queues}}
        after = memory.place if memory else None
        if memory:
            # What came since, and is more urgent than all that was stepped over.
            urgent = {"$lt": memory.place.priority}
            due = {"$gt": memory.since, "$lte": now}
            yield from self._find(queue | {"priority": urgent, "run_at": due}, MOST_STEPPED_OVER)
        while True:
            rows = self._page(queue, after, limit, now)
            yield from rows
            if len(rows) < limit:
                return
            after, limit = Place.behind(rows[-1]), min(2 * limit, MOST_STEPPED_OVER)
            walked += len(rows)
            if look.passing and walked >= MOST_STEPPED_OVER:
                after, walked = self._passed(queue, after, look), 0
                self._remember(queues, after, now)

    def _passed(self, queue: Document, after: Place, look: _Look) -> Place:
        """Return the place before the next job that may be wanted, or else behind all."""
        if rows := self._page(queue | t.cast(Document, look.passing), after, 1, look.now):
            return Place.before(rows[0])
        due = queue | {"run_at": {"$lte": look.now}}
        return Place.behind(self._find(due, 1, way=-1)[0])

    def _page(
        self, queue: Document, after: Place | None, limit: int, now: Moment
    ) -> list[Document]:
        if after is None:
            return self._find(queue | {"run_at": {"$lte": now}}, limit)
        rows: list[Document] = []
        for onwards in after.onwards(now):
            if len(rows) < limit:
                rows += self._find(queue | onwards, limit - len(rows))
        return rows

    def _find(self, which: Document, limit: int, way: int = 1) -> list[Document]:
        unlimited = {"state": PENDING, "concurrency_key": None, "priority": ANY_PRIORITY, **which}
        order = order_of(which, way)
        return list(self.jobs.find(unlimited, sort=order, hint=CLAIM.name, **one_batch(limit)))

    def _remember(self, queues: Sequence[str], place: Place, now: Moment) -> None:
        # The walk is in order over all of these queues: whatever stands before this was seen.
        for queue in queues:
            known = self._memories.get(queue)
            self._memories[queue] = _Memory(
                place=max(place, known.place) if known else place,
                since=known.since if known else now,
                until=known.until if known else self.steady() + REMEMBERED_SECONDS,
            )


def order_of(which: Document, way: int = 1) -> list[tuple[str, int]]:
    """Return the sort that has what a filter matches in the order of all jobs.

    The planner merges scans in order by the keys behind those that are given; with one of these in
    the sort as well it would read all that match, and sort them.

    :param way: -1 has the last first.
    """
    return [(key, way) for key, _ in IN_ORDER if isinstance(which.get(key, {}), dict)]


def _order(row: Document) -> tuple[t.Any, ...]:
    return row["priority"], row["run_at"], row["_id"]
