"""Choosing the next jobs among limited and unlimited ones, with a permit for each limited (L2)."""

from __future__ import annotations

import heapq
import itertools
import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ..job import PENDING, Document
from .documents import is_due

if t.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..limit import Limit
    from .claims import Wish
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
        shares: Mapping[str, Sequence[str]],
        wish: Wish,
        *,
        now: Moment,
        token: str,
    ) -> Choice:
        """Return the next jobs, each limited one with a permit that was taken for it.

        A job with a key whose task has no limit any more, or is unknown here, needs no permit.

        :param unlimited: The next unlimited jobs of each share, in order.
        :param shares: The queues that are served together, by the names of the shares.
        """
        share_of = {queue: share for share, queues in shares.items() for queue in queues}
        heads = self._heads(unlimited, share_of, wish, now) if wish.at_most else []
        if not heads and len(shares) == 1:
            return Choice(list(itertools.takewhile(wish.takes, unlimited)))
        lines = self._lines(heads, wish.limits, wish.at_most, now)
        picked = _picked([*unlimited, *lines], wish, share_of)
        limited = [pick for pick in picked if isinstance(pick, _Pick)]
        permits = self._permits_for(limited, wish.runner, token)
        free = [pick.head.id for pick in limited if pick.slot is None]
        rows = [pick for pick in picked if not isinstance(pick, _Pick)]
        found = {row["_id"]: row for row in [*rows, *self._read([*permits, *free], now)]}
        ids = [pick.head.id if isinstance(pick, _Pick) else pick["_id"] for pick in picked]
        return Choice([found[one] for one in ids if one in found], permits)

    def adopt(self, ids: Sequence[str], group: str, now: Moment) -> None:
        """Give waiting jobs of a limited task that have no key the group's own bucket (L5).

        They were stored before the limit was declared, or by another program.
        """
        self.jobs.update_many(
            {"_id": {"$in": list(ids)}, "state": PENDING, "concurrency_key": None},
            {"$set": {"concurrency_key": group, "updated_at": now}, "$inc": {"revision": 1}},
        )
        self.keys.look_again()

    def _heads(
        self,
        unlimited: list[Document],
        share_of: Mapping[str, str],
        wish: Wish,
        now: Moment,
    ) -> list[Head]:
        heads = [head for head in self.keys.heads(share_of, now) if wish.wanted(head.as_row)]
        return _worth_asking(heads, unlimited, wish.at_most, share_of)

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

    def _permits_for(self, picked: list[_Pick], runner: str, token: str) -> dict[str, str]:
        """Take the permits for what was picked. Return those that were free, by job."""
        for pick in picked:
            self.keys.taken(pick.head)
        return self.permits.take(
            [(pick.head.key, pick.slot, pick.head.id) for pick in picked if pick.slot is not None],
            runner=runner,
            token=token,
        )

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


class _Pick(t.NamedTuple):
    """A limited job that was picked, and a slot where it needs one."""

    head: Head
    slot: int | None


def _worth_asking(
    heads: list[Head], unlimited: list[Document], at_most: int, share_of: Mapping[str, str]
) -> list[Head]:
    """Return the heads that may be among the first so many jobs of their share."""
    rows: dict[str, list[Document]] = defaultdict(list)
    for row in unlimited:
        rows[share_of[row["queue"]]].append(row)
    last = {
        share: _order(found[at_most - 1]) for share, found in rows.items() if len(found) >= at_most
    }
    asked: Counter[str] = Counter()
    worth = []
    for head in heads:
        share = share_of[head.queue]
        if asked[share] < MOST_KEYS_ASKED and (share not in last or head.order < last[share]):
            asked[share] += 1
            worth.append(head)
    return worth


def _picked(
    firsts: list[Document | _Line], wish: Wish, share_of: Mapping[str, str]
) -> list[Document | _Pick]:
    """Return the first jobs: of each share in its order, and the shares by turns."""
    picked: list[Document | _Pick] = []
    waiting: dict[str, list[tuple[t.Any, int, Document | _Line]]] = defaultdict(list)
    for number, first in enumerate(firsts):
        # The number keeps rows and lines from being compared.
        waiting[share_of[_queue(first)]].append((_place(first), number, first))
    for line in waiting.values():
        heapq.heapify(line)
    while waiting and len(picked) < wish.at_most + wish.ahead:
        share = wish.queues.next(waiting)
        _, number, first = heapq.heappop(waiting[share])
        if not isinstance(first, _Line):
            if not wish.takes(first):
                break
            picked.append(first)
        elif len(picked) < wish.at_most and wish.takes(first.head.as_row):
            picked.append(_Pick(first.head, first.slots.pop()))
            if first.next():
                heapq.heappush(waiting[share], (_place(first), number, first))
        if not waiting[share]:
            del waiting[share]
    return picked


def _queue(first: Document | _Line) -> str:
    return first.head.queue if isinstance(first, _Line) else str(first["queue"])


def _place(first: Document | _Line) -> tuple[t.Any, ...]:
    return first.head.order if isinstance(first, _Line) else _order(first)


def _order(row: Document) -> tuple[t.Any, ...]:
    return row["priority"], row["run_at"], row["_id"]
