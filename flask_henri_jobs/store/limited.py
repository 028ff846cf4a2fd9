"""Choosing the next jobs among limited and unlimited ones, with a permit for each limited (L2)."""

from __future__ import annotations

import heapq
import typing as t
from dataclasses import dataclass, field

from ..job import PENDING, Document
from .documents import is_due

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..limit import Limit
    from .permits import Permits
    from .waiting_keys import Head, WaitingKeys

MOST_KEYS_ASKED = 1000


@dataclass(slots=True)
class Choice:
    """What a runner would take: rows in their order, and the permits it holds for some."""

    rows: list[Document]
    permits: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitedWork:
    """Merges limited work into unlimited work by the order of all jobs (Q2).

    A key that is full holds back its own jobs and nobody else's, however many there are (L4).
    """

    jobs: Collection[Document]
    permits: Permits
    keys: WaitingKeys

    def choose(
        self,
        unlimited: list[Document],
        queues: Iterable[str],
        limits: Mapping[str, Limit],
        wanted: Callable[[Document], bool],
        *,
        at_most: int,
        now: Moment,
        runner: str,
        token: str,
    ) -> Choice:
        """Return the next jobs, each limited one with a permit that was taken for it.

        :param unlimited: The next unlimited jobs, in order; there may be more than ``at_most``.
        :param at_most: No limited job is taken that is not among the first so many of all.
        :param limits: The limits by the names of their tasks. A job with a key whose task has
            none any more, or is unknown here, needs no permit.
        """
        if not at_most:
            return Choice(unlimited)
        heads = [head for head in self.keys.heads(queues, now) if wanted(head.as_row)]
        heads = _worth_asking(heads, unlimited, at_most)
        if not heads:
            return Choice(unlimited)
        rows, picked = _merged(unlimited, self._lines(heads, limits, at_most, now), at_most)
        permits = self.permits.take(
            [(head.key, slot, head.id) for head, slot in picked if slot is not None],
            runner=runner,
            token=token,
        )
        for head, _ in picked:
            self.keys.taken(head)
        free = [head.id for head, slot in picked if slot is None]
        found = self._read([*permits, *free], now)
        return Choice(sorted([*rows, *found], key=_order), permits)

    def adopt(self, ids: Sequence[str], group: str, now: Moment) -> None:
        """Give waiting jobs of a limited task that have no key the group's own bucket (L5).

        They were stored before the limit was declared, or by another program.
        """
        self.jobs.update_many(
            {"_id": {"$in": list(ids)}, "state": PENDING, "concurrency_key": None},
            {"$set": {"concurrency_key": group, "updated_at": now}, "$inc": {"revision": 1}},
        )
        self.keys.look_again()

    def _lines(
        self, heads: list[Head], limits: Mapping[str, Limit], at_most: int, now: Moment
    ) -> list[_Line]:
        most = {head.key: limits[head.name].most for head in heads if head.name in limits}
        free = self.permits.free(most) if most else {}
        lines = []
        for head in heads:
            slots: list[int | None] = (
                [*self._shuffled(free[head.key])] if head.key in free else [None] * at_most
            )
            if slots:
                lines.append(_Line(head, slots, self.keys, limits, now))
        return lines

    def _shuffled(self, slots: list[int]) -> list[int]:
        # Runners that choose at the same time choose different slots, as far as there are any.
        return self.permits.random(slots, len(slots))

    def _read(self, ids: list[str], now: Moment) -> list[Document]:
        return list(self.jobs.find(is_due(now) | {"_id": {"$in": ids}})) if ids else []


@dataclass(slots=True)
class _Line:
    """The due jobs of one key, as far as there are slots for them."""

    head: Head
    slots: list[int | None]
    keys: WaitingKeys
    limits: Mapping[str, Limit]
    now: Moment
    _behind: list[Head] | None = None

    def next(self) -> bool:
        """Go to the key's next job. Return whether there is one, and a slot for it."""
        if not self.slots:
            return False
        if self._behind is None:
            self._behind = self.keys.behind(self.head, self._names(), len(self.slots), self.now)
        if not self._behind:
            return False
        self.head = self._behind.pop(0)
        return True

    def _names(self) -> list[str]:
        """Return the tasks whose jobs this key may have: those of its head's group."""
        limit = self.limits.get(self.head.name)
        if limit is None:
            return [self.head.name]
        return [name for name, other in self.limits.items() if other.group == limit.group]


def _worth_asking(heads: list[Head], unlimited: list[Document], at_most: int) -> list[Head]:
    """Return the heads that may be among the first so many jobs."""
    if len(unlimited) >= at_most:
        last = _order(unlimited[at_most - 1])
        heads = [head for head in heads if head.order < last]
    return heads[:MOST_KEYS_ASKED]


def _merged(
    unlimited: list[Document], lines: list[_Line], at_most: int
) -> tuple[list[Document], list[tuple[Head, int | None]]]:
    """Return unlimited rows, and the heads among the first so many of all with a slot for each."""
    rows: list[Document] = []
    picked: list[tuple[Head, int | None]] = []
    waiting: list[tuple[t.Any, int, _Line | Document]] = [
        (_order(row), number, row) for number, row in enumerate(unlimited)
    ]
    waiting += [
        (line.head.order, len(unlimited) + number, line) for number, line in enumerate(lines)
    ]
    heapq.heapify(waiting)
    while waiting:
        _, number, first = heapq.heappop(waiting)
        if not isinstance(first, _Line):
            rows.append(first)
            continue
        if len(rows) + len(picked) >= at_most:
            continue
        picked.append((first.head, first.slots.pop()))
        if first.next():
            heapq.heappush(waiting, (first.head.order, number, first))
    return rows, picked


def _order(row: Document) -> tuple[t.Any, ...]:
    return row["priority"], row["run_at"], row["_id"]
