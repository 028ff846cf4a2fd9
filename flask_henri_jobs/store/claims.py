"""Taking due jobs, many in one go, each by one runner only (Q1, W1)."""

from __future__ import annotations

import contextlib
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

import pymongo
from pymongo.errors import PyMongoError

from ..clock import Moment, steady_seconds
from ..ids import new_token
from ..job import RUNNING, Document, Job, Rows
from ..pause import NOTHING_PAUSED
from ..queues import QueueTurns
from .candidates import CLAIM
from .connection import answering
from .documents import IN_ORDER, handed_back, is_as_read
from .pauses import not_held

if t.TYPE_CHECKING:
    from collections.abc import Callable, Collection as Names, Iterator, Mapping, Sequence

    from pymongo.collection import Collection

    from ..pause import Paused
    from ..rate import Lane
    from .candidates import Candidates
    from .limited import Choice, LimitedWork
    from .pauses import Pauses
    from .suspects import Suspects

CLAIM_SECONDS = 5.0
"""A claim takes effect within this time or never: the server is told the limit."""

MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Which jobs a runner would take.

    :param runner: Its id.
    :param queues: The queues that it takes from, and whose turn it is.
    :param at_most: How many: one for each free thread.
    :param ahead: How many more, if they are not limited: a permit in a queue is concurrency lost.
    :param takes: Asked of each job in turn; the first unlimited one that is not ends the claim.
    :param wanted: Whether it would take a job, by its row; one that it would not is stepped over.
    :param lanes: What holds back the jobs of tasks with a limit or a rate, by their names.
    """

    runner: str
    at_most: int
    ahead: int = 0
    queues: QueueTurns = field(default_factory=QueueTurns)
    takes: Callable[[Document], bool] = lambda _: True
    wanted: Callable[[Document], bool] = lambda _: True
    lanes: Mapping[str, Lane] = field(default_factory=dict)


@dataclass(slots=True)
class _Doubt:
    """A claim whose reply was lost: it may have taken effect, and may still until the deadline."""

    token: str
    until: float
    found: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Claims:
    """One runner's claims."""

    jobs: Collection[Document]
    now: Callable[[], Moment]
    candidates: Candidates
    limited: LimitedWork
    suspects: Suspects
    pauses: Pauses
    rows: Rows | None = None
    steady: Callable[[], float] = steady_seconds
    _paused: Paused = NOTHING_PAUSED
    _doubts: list[_Doubt] = field(default_factory=list)

    def take(self, wish: Wish) -> list[Job]:
        """Claim due jobs and return them in their order, running, under one new token.

        The round trips do not grow with the number of jobs. What an earlier claim took whose
        reply was lost is returned first.
        """
        with answering("a claim"):
            if late := self.late():
                return late
            self._learn_pauses()
            token = new_token()
            choice = self._choose(wish, token)
            rows = _within(MOST_BYTES, choice.rows)
            jobs = self.stamp(rows, wish.runner, token, choice.permits) if rows else []
            self._return_unused(choice.permits, jobs, token)
            return jobs

    def take_suspect(self, wish: Wish, names: Names[str]) -> list[Job]:
        """Claim one suspect that is due, if there is any and its key has a slot free (W6).

        :param names: Of these tasks only.
        """
        with answering("a claim"):
            if late := self.late():
                return late
            token = new_token()
            for row in self.due_suspects(wish.queues, names):
                permits = self.limited.permit_of(row, wish, token)
                if permits is None:
                    continue
                jobs = self.stamp([row], wish.runner, token, permits)
                self._return_unused(permits, jobs, token)
                if jobs:
                    return jobs
            return []

    def due_suspects(self, queues: QueueTurns, names: Names[str]) -> list[Document]:
        """Return the suspects that are next; an ordinary claim steps over them."""
        paused = self._learn_pauses()
        shares = self._shares(queues)
        return self.suspects.due(
            sorted(set(chain(*shares.values()))),
            sorted(set(names) - paused.tasks),
            self.now(),
            not_of=sorted(paused.tenants),
        )

    def _learn_pauses(self) -> Paused:
        """Return what is paused. Where that changed, forget what was stepped over."""
        paused = self.pauses.for_a_claim()
        if paused != self._paused:
            self._paused = paused
            self._look_at_all()
        return paused

    def _shares(self, turns: QueueTurns) -> dict[str, Sequence[str]]:
        """Return the queues that are served together, without those that are paused (X4)."""
        shares = turns.shares(self.candidates.queues_with_work)
        if not self._paused.queues:
            return shares
        return {
            share: [queue for queue in queues if queue not in self._paused.queues]
            for share, queues in shares.items()
        }

    def _choose(self, wish: Wish, token: str) -> Choice:
        """Return the next jobs in the order of all, with a permit for each limited one."""
        now, paused = self.now(), self._paused
        keyless: dict[str, list[str]] = defaultdict(list)

        def is_unlimited(row: Document) -> bool:
            if paused.holds(row):
                return False
            lane = wish.lanes.get(row["name"])
            if lane is None:
                return wish.wanted(row)
            keyless[lane.group].append(row["_id"])
            return False

        shares = self._shares(wish.queues)
        most = wish.at_most + wish.ahead
        unlimited = [
            row
            for queues in shares.values()
            for row in self.candidates.read(queues, most, now, is_unlimited, not_held(paused))
        ]
        for group, ids in keyless.items():
            self.limited.adopt(ids, group, now)
        return self.limited.choose(unlimited, shares, wish, now=now, token=token, paused=paused)

    def _return_unused(self, permits: Mapping[str, str], jobs: list[Job], token: str) -> None:
        if permits:
            used = {job.permit for job in jobs}
            self.limited.permits.release(
                [permit for permit in permits.values() if permit not in used], token
            )

    def stamp(
        self,
        rows: Sequence[Document],
        runner: str,
        token: str,
        permits: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Job]:
        """Claim these very jobs as they were read; return those that nobody else took first.

        :param permits: The permits that are held for some of them, by the jobs' ids.
        """
        now = self.now()
        stamp = {
            "state": RUNNING,
            "claim_token": token,
            "claimed_at": now,
            "claimed_by": runner,
            "heartbeat_at": now,
            "started_at": now,
            "updated_at": now,
        }
        with self._in_doubt(token):
            ours = sum(self._stamp_group(group, stamp) for group in _alike(rows))
            if ours < len(rows):
                rows = self._won(rows, token) if ours else []
        return [
            Job(
                {**row, **stamp, "attempts": row["attempts"] + 1},
                self.rows,
                permit=permits.get(row["_id"]),
            )
            for row in rows
        ]

    def _stamp_group(self, rows: Sequence[Document], stamp: Document) -> int:
        ids = {
            "_id": {"$in": [row["_id"] for row in rows]},
            "run_at": {"$lte": stamp["claimed_at"]},
        }
        # The limit is the server's as well: a claim that was given up on takes no effect later.
        with pymongo.timeout(CLAIM_SECONDS):
            return self.jobs.update_many(
                ids | is_as_read(rows[0]), {"$set": stamp, "$inc": {"attempts": 1}}
            ).modified_count

    @contextlib.contextmanager
    def _in_doubt(self, token: str) -> Iterator[None]:
        """Remember the token where it is not known what it took."""
        try:
            yield
        except PyMongoError:
            self._doubts.append(_Doubt(token, self.steady() + 2 * CLAIM_SECONDS))
            raise

    def _won(self, rows: Sequence[Document], token: str) -> list[Document]:
        ids = [row["_id"] for row in rows]
        won = self.jobs.find({"_id": {"$in": ids}, "claim_token": token}, {"_id": True})
        ours = {row["_id"] for row in won}
        return [row for row in rows if row["_id"] in ours]

    def late(self) -> list[Job]:
        """Return what earlier claims took whose replies were lost; each job once (A5)."""
        jobs: list[Job] = []
        for doubt in list(self._doubts):
            # Until then a part of the claim may still take effect.
            is_over = self.steady() > doubt.until
            rows = self.jobs.find(
                {"state": RUNNING, "claim_token": doubt.token, "_id": {"$nin": doubt.found}},
                sort=IN_ORDER,
                hint=CLAIM.name,
            )
            permits = self.limited.permits.of_token(doubt.token)
            found = [Job(row, self.rows, permit=permits.get(row["_id"])) for row in rows]
            doubt.found += [job.id for job in found]
            jobs += found
            if is_over:
                self._doubts.remove(doubt)
        return jobs

    def look_in(self) -> float:
        """Return in how many seconds a claim may bring what the last one could not see yet."""
        return self.limited.look_in()

    def look_again(self) -> None:
        """Forget what is remembered of earlier looks, so that the next claim sees all there is."""
        self.pauses.look_again()
        self._look_at_all()

    def _look_at_all(self) -> None:
        self.candidates.look_again()
        self.limited.keys.look_again()

    def hand_back(self, jobs: Sequence[Job], *, run_at: Moment | None = None) -> int:
        """Put back jobs that were not begun, as if they had not been claimed.

        :param run_at: When they are due; None keeps their place.
        :return: How many were still this claim's.
        """
        if not jobs:
            return 0
        update = handed_back(self.now(), run_at)
        with answering("a hand-back"):
            return sum(
                self.jobs.update_many(
                    {"_id": {"$in": ids}, "claim_token": token, "state": RUNNING}, update
                ).modified_count
                for token, ids in _by_token(jobs).items()
            )


def _alike(rows: Sequence[Document]) -> list[list[Document]]:
    """Group rows whose guard is the same; nearly always that is one group."""
    groups: dict[tuple[t.Any, t.Any], list[Document]] = defaultdict(list)
    for row in rows:
        groups[row["attempts"], row.get("revision")].append(row)
    return list(groups.values())


def _by_token(jobs: Sequence[Job]) -> dict[str, list[str]]:
    held: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        held[job.row["claim_token"]].append(job.row["_id"])
    return held


def _within(most_bytes: int, rows: list[Document]) -> list[Document]:
    """Return the first rows whose arguments fit, and one at least."""
    total = 0
    for at, row in enumerate(rows):
        total += len(row.get("args") or "")
        if at and total > most_bytes:
            return rows[:at]
    return rows
