"""Choosing the next jobs among limited and unlimited ones, with a permit for each limited (L2)."""

from __future__ import annotations

import heapq
import itertools
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ..job import PENDING, Document
from ..pause import NOTHING_PAUSED
from ..queues import Turn
from ..rate import group_of, lane_of
from .documents import is_due
from .pauses import not_held
from .rates import Wanted
from .starts import Starts
from .waiting_keys import Sieve

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Job
    from ..pause import Paused
    from ..rate import Lane
    from .permits import Permits
    from .rates import Rates
    from .starts import Allowance
    from .waiting_keys import Head, WaitingKeys
    from .wish import Wish

KEYS_AT_ONCE = 64
"""Keys whose free slots are asked for in one question."""


@dataclass(slots=True)
class Choice:
    """What a runner would take.

    :param rows: The jobs in their order.
    :param permits: The permits that it holds for some of them, by their ids.
    :param turns: Their turns of the queues, by their ids, where those have weights.
    """

    rows: list[Document]
    permits: dict[str, str] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitedWork:
    """Merges limited work into unlimited work by the order of all jobs (Q2).

    A key that is full holds back its own jobs and nobody else's, however many there are (L4).
    """

    jobs: Collection[Document]
    permits: Permits
    keys: WaitingKeys
    rates: Rates

    def look_in(self) -> float:
        """Return in how many seconds a look may bring what the last one could not."""
        return min(self.keys.look_in(), self.rates.look_in())

    def look_again(self) -> None:
        """Forget what was read of keys and rates."""
        self.keys.look_again()
        self.rates.look_again()

    def choose(
        self,
        unlimited: list[Document],
        shares: Mapping[str, Sequence[str]],
        wish: Wish,
        *,
        now: Moment,
        token: str,
        paused: Paused = NOTHING_PAUSED,
    ) -> Choice:
        """Return the next jobs, each limited one with a permit that was taken for it.

        A job with a key whose group has no limit here any more needs no permit.

        :param unlimited: The next unlimited jobs of each share, in order.
        :param shares: The queues that are served together, by the names of the shares.
        :param paused: What is stepped over; no queue that is paused is among the shares.
        """
        share_of = {queue: share for share, queues in shares.items() for queue in queues}
        sieve = _sieve(paused, wish) if paused.holds_some_of_a_queue else None
        lines = self._lines(unlimited, shares, wish, now, sieve)
        if len(unlimited) + len(lines) < wish.at_most and self.keys.look_again_if_freed():
            lines = self._lines(unlimited, shares, wish, now, sieve)
        if not lines and len(shares) == 1:
            return Choice(list(itertools.takewhile(wish.takes, unlimited)))
        places = _picked([*unlimited, *lines], wish, share_of)
        picked = [place.job for place in places]
        limited = [pick for pick in picked if isinstance(pick, _Pick)]
        permits = self._permits_for(limited, wish.runner, token)
        free = [pick.head.id for pick in limited if pick.slot is None]
        found = {row["_id"]: row for row in self._read([*permits, *free], wish, now)}
        found |= {row["_id"]: row for row in picked if not isinstance(row, _Pick)}
        rows = [found[_id(pick)] for pick in picked if _id(pick) in found]
        turns = {_id(place.job): place.turn for place in places if place.turn}
        return Choice(list(itertools.takewhile(wish.takes, rows)), permits, turns)

    def permit_of(self, row: Document, wish: Wish, token: str) -> dict[str, str] | None:
        """Take the permit that one job needs. Return it by the job's id; None where all are held.

        A job without a key, or of a group that has no limit here, needs none.
        """
        lane = wish.lanes.get(row["name"])
        key = row.get("concurrency_key") or (lane.group if lane else None)
        lane = lane_of(key, _groups(wish)) if key else None
        if key is None or lane is None:
            return {}
        if lane.rate and not self.rates.free(lane.rate_bucket(key), lane.rate, 1):
            return None
        if lane.most is None:
            return {}
        slots = self._shuffled(self.permits.free({key: lane.most})[key])
        wanted = [(key, slot, row["_id"]) for slot in slots[:1]]
        return self.permits.take(wanted, runner=wish.runner, token=token) or None

    def count_starts(self, jobs: Sequence[Job], wish: Wish) -> None:
        """Count a start for each claimed job whose task has a rate, as far as there are any (X4).

        They are counted after the claim: a job that others took would have spent one.
        """
        wanted = [
            Wanted(lane.rate_bucket(job.concurrency_key), lane.rate, job)
            for job in jobs
            if (lane := wish.lanes.get(job.name)) is not None and lane.rate is not None
        ]
        starts = self.rates.take(wanted) if wanted else {}
        for one in wanted:
            one.job.start = starts.get(one.job.row["_id"])

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
        self,
        unlimited: list[Document],
        shares: Mapping[str, Sequence[str]],
        wish: Wish,
        now: Moment,
        sieve: Sieve | None,
    ) -> list[_Line]:
        """Return the keys of each share that have a slot free, as far as they may be reached."""
        lines: list[_Line] = []
        slots: dict[str, list[int | None]] = {}
        starts = Starts(self.rates, _groups(wish), _sought(wish))
        self.rates.begin_look()
        for queues in shares.values():
            rows = [row for row in unlimited if row["queue"] in queues]
            heads = self.keys.heads(queues, now, sieve)
            # Where no thread is free, a limited job still ends what is claimed ahead of it.
            reach = wish.at_most + wish.limited_ahead or len(rows)
            if rows and len(rows) >= reach:
                last = _order(rows[reach - 1])
                heads = itertools.takewhile(_comes_before(last), heads)
            lines += [
                _Line(head, free, starts.of(head.key), self.keys, now, sieve)
                for head, free in self._with_slots(heads, slots, starts, wish)
            ]
        return lines

    def _with_slots(
        self,
        heads: Iterator[Head],
        slots: dict[str, list[int | None]],
        starts: Starts,
        wish: Wish,
    ) -> list[tuple[Head, list[int | None]]]:
        """Return the first keys with a slot free, and a start, each with its free slots.

        :param slots: What is known of keys so far.
        """
        lines: list[tuple[Head, list[int | None]]] = []
        heads = (
            head for head in heads if slots.get(head.key, True) and not starts.are_spent(head.key)
        )
        at_once = max(KEYS_AT_ONCE, _sought(wish))
        # With a line for each free thread, every head that was not asked about comes later.
        while len(lines) < _sought(wish):
            asked = list(itertools.islice(heads, at_once))
            if not asked:
                break
            # Where many keys are full, few questions get past them.
            at_once *= 2
            slots |= self._slots([head for head in asked if head.key not in slots], wish)
            starts.look_at(head.key for head in asked if slots[head.key])
            # A key that waits in several queues has one line in each, and its slots once.
            lines += [
                (head, slots[head.key])
                for head in asked
                if slots[head.key] and starts.has_one_for(head.key)
            ]
        return lines

    def _slots(self, heads: list[Head], wish: Wish) -> dict[str, list[int | None]]:
        """Return the slots of keys that are free; None stands for one that needs none."""
        groups = _groups(wish)
        lanes = {head.key: lane_of(head.key, groups) for head in heads}
        slots: dict[str, list[int | None]] = {key: [] for key in lanes}
        bound = {key: lane.most for key, lane in lanes.items() if lane and lane.most is not None}
        for key, free in self.permits.free(bound).items():
            slots[key] += self._shuffled(free)
        known = [key for key, lane in lanes.items() if lane and lane.most is None]
        strange = [head for head in heads if lanes[head.key] is None]
        for key in [*known, *(head.key for head in self._wanted(strange, wish))]:
            slots[key] = [None] * _sought(wish)
        return slots

    def _wanted(self, heads: list[Head], wish: Wish) -> list[Head]:
        """Return those that a runner would take of the jobs whose group it knows no limit of."""
        first = heads[: _sought(wish)]
        rows = self.jobs.find({"_id": {"$in": [head.id for head in first]}}) if first else ()
        wanted = {row["_id"] for row in rows if wish.wanted(row)}
        return [head for head in first if head.id in wanted]

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

    def _read(self, ids: list[str], wish: Wish, now: Moment) -> Iterable[Document]:
        rows = self.jobs.find(is_due(now) | {"_id": {"$in": ids}}) if ids else ()
        return (row for row in rows if wish.wanted(row))


@dataclass(slots=True)
class _Line:
    """The due jobs of one key, as far as there are slots and starts for them."""

    head: Head
    slots: list[int | None]
    allowance: Allowance | None
    keys: WaitingKeys
    now: Moment
    sieve: Sieve | None = None
    _behind: list[Head] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a slot for its next job, and a start."""
        return bool(self.slots) and (self.allowance is None or self.allowance.left > 0)

    def pick(self) -> _Pick:
        """Return its next job, with a slot."""
        if self.allowance is not None:
            self.allowance.left -= 1
        return _Pick(self.head, self.slots.pop())

    def next(self) -> bool:
        """Go to the key's next job. Return whether there is one, and a slot for it."""
        if not self.is_open:
            return False
        if self._behind is None:
            self._behind = self.keys.behind(self.head, len(self.slots), self.now, self.sieve)
        if not self._behind:
            return False
        self.head = self._behind.pop(0)
        return True


class _Pick(t.NamedTuple):
    """A limited job that was picked, and a slot where it needs one."""

    head: Head
    slot: int | None


class _Place(t.NamedTuple):
    """What was picked, and its place in the turns of queues that have weights."""

    job: Document | _Pick
    turn: Turn | None


def _picked(
    firsts: list[Document | _Line], wish: Wish, share_of: Mapping[str, str]
) -> list[_Place]:
    """Return the first jobs: of each share in its order, and the shares by turns."""
    picked: list[_Place] = []
    turns = wish.queues.plan()
    groups = _groups(wish)
    waiting: dict[str, list[tuple[t.Any, int, Document | _Line]]] = defaultdict(list)
    for number, first in enumerate(firsts):
        # The number keeps rows and lines from being compared.
        waiting[share_of[_queue(first)]].append((_place(first), number, first))
    for line in waiting.values():
        heapq.heapify(line)
    while waiting and len(picked) < wish.at_most + wish.ahead:
        share = turns.next(waiting)
        turn = Turn(share, frozenset(waiting)) if turns.are_weighted else None
        _, number, first = waiting[share][0]
        is_ahead = len(picked) >= wish.at_most
        if not isinstance(first, _Line):
            picked.append(_Place(first, turn))
            turns.served(share, waiting)
        elif first.is_open:
            if is_ahead and not _may_wait(first.head, len(picked), wish, groups):
                # It waits for a thread, and nothing that is claimed ahead overtakes it.
                break
            picked.append(_Place(first.pick(), turn))
            turns.served(share, waiting)
        heapq.heappop(waiting[share])
        # A key's second job waits for the next claim, where it costs a question to learn which.
        if isinstance(first, _Line) and not is_ahead and first.next():
            heapq.heappush(waiting[share], (_place(first), number, first))
        if not waiting[share]:
            del waiting[share]
    return picked


def _sieve(paused: Paused, wish: Wish) -> Sieve:
    """Return what leaves out the jobs that are held back, and the keys that hold no others."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for name, lane in wish.lanes.items():
        tasks[lane.group].add(name)
    held = [group for group, names in tasks.items() if names <= paused.tasks]

    def may_be_wanted(key: str) -> bool:
        return not any(key == group or key.startswith(f"{group}:") for group in held)

    return Sieve(may_be_wanted, lambda row: not paused.holds(row), not_held(paused))


def _may_wait(head: Head, place: int, wish: Wish, groups: Mapping[str, Lane]) -> bool:
    """Whether a limited job is claimed for a thread that is at work still."""
    is_near = place < wish.at_most + wish.limited_ahead
    return is_near and group_of(head.key, groups) in wish.short_groups


def _groups(wish: Wish) -> dict[str, Lane]:
    return {lane.group: lane for lane in wish.lanes.values()}


def _sought(wish: Wish) -> int:
    """Return how many limited jobs are looked for: one even where no thread is free for it."""
    return max(1, wish.at_most + wish.limited_ahead)


def _comes_before(last: tuple[t.Any, ...]) -> Callable[[Head], bool]:
    return lambda head: head.order < last


def _id(picked: Document | _Pick) -> str:
    return picked.head.id if isinstance(picked, _Pick) else str(picked["_id"])


def _queue(first: Document | _Line) -> str:
    return first.head.queue if isinstance(first, _Line) else str(first["queue"])


def _place(first: Document | _Line) -> tuple[t.Any, ...]:
    return first.head.order if isinstance(first, _Line) else _order(first)


def _order(row: Document) -> tuple[t.Any, ...]:
    return row["priority"], row["run_at"], row["_id"]
