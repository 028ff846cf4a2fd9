"""Taking due jobs, many in one go, each by one runner only (Q1, W1)."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, takewhile
from types import MappingProxyType

import pymongo
from pymongo import ReturnDocument

from ..ids import new_token
from ..job import PENDING, RUNNING, Document, Job, Rows
from ..pause import NOTHING_PAUSED
from .cancels import NOT_ASKED, Back, bury_asked
from .candidates import CLAIM
from .connection import answering
from .documents import ANY_PRIORITY, IN_ORDER, handed_back, is_as_read
from .doubts import CLAIM_SECONDS
from .limited import Choice
from .pauses import not_held
from .spread import Spread
from .wakeups import no_ring
from .wish import MOST_ATTEMPTS, Keyless, OddJobs

if t.TYPE_CHECKING:
    from collections.abc import Callable, Collection as Names, Mapping, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..pause import Paused
    from ..queues import QueueTurns
    from .candidates import Candidates
    from .doubts import Doubts
    from .limited import LimitedWork
    from .pauses import Pauses
    from .suspects import Suspects
    from .wakeups import RingFor
    from .wish import Wish

MOST_ADOPTIONS = 10
"""How often jobs are given their keys in one claim."""

MOST_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Claims:
    """One runner's claims."""

    jobs: Collection[Document]
    now: Callable[[], Moment]
    candidates: Candidates
    limited: LimitedWork
    suspects: Suspects
    pauses: Pauses
    doubts: Doubts
    rows: Rows | None = None
    ring_for: RingFor = no_ring
    spread: Spread = field(default_factory=Spread)
    _paused: Paused = NOTHING_PAUSED
    _odd: OddJobs = field(default_factory=OddJobs)

    def take(self, wish: Wish) -> list[Job]:
        """Claim due jobs and return them in their order, running, under one new token.

        The round trips do not grow with the number of jobs. What an earlier claim took whose
        reply was lost is returned first.
        """
        with answering("a claim"):
            if late := self.doubts.late():
                return late
            shares = self._shares(wish)
            token = new_token()
            if self._may_hurry(wish) and (first := self._take_first(wish, token)):
                return first
            # Permits are taken in between, and given back: whichever reply is lost of all those,
            # what stands under the token is looked for.
            with self.doubts.about(token):
                choice = self._choose(wish, shares, token)
                rows = _within(MOST_BYTES, choice.rows)
                jobs = self.stamp(rows, wish.runner, token, choice.permits) if rows else []
                self.spread.went(asked=len(rows), won=len(jobs))
                self._return_unused(choice.permits, jobs, token)
                self.limited.count_starts(jobs, wish)
            if choice.turns:
                wish.queues.take({job.id: choice.turns[job.id] for job in jobs})
            return jobs

    def take_suspect(self, wish: Wish, names: Names[str]) -> list[Job]:
        """Claim one suspect that is due, if there is any and its key has a slot free (W6).

        :param names: Of these tasks only.
        """
        with answering("a claim"):
            if late := self.doubts.late():
                return late
            token = new_token()
            for row in self.due_suspects(wish.queues, names):
                with self.doubts.about(token):
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
        with answering("the suspects"):
            shares = queues.shares(self.candidates.queues_with_work)
            if not any(shares.values()):
                return []
            paused = self._learn_pauses()
            return self.suspects.due(
                sorted(set(chain(*self._unpaused(shares).values()))),
                sorted(set(names) - paused.tasks),
                self.now(),
                not_of=sorted(paused.tenants),
            )

    def _shares(self, wish: Wish) -> dict[str, Sequence[str]]:
        """Return the queues to take from, by the names of the shares, without those paused."""
        candidates = self.candidates
        candidates.learn(wish.rung)
        shares = wish.queues.shares(
            candidates.queues_known if wish.rung else candidates.queues_with_work
        )
        if any(shares.values()):
            # An idle runner need not know.
            self._learn_pauses(rung=bool(wish.rung))
        return self._unpaused(shares)

    def _learn_pauses(self, *, rung: bool = False) -> Paused:
        """Return what is paused. Where that changed, forget what was stepped over."""
        paused = self.pauses.for_a_claim(rung=rung)
        if paused != self._paused:
            self._paused = paused
            self._look_at_all()
        return paused

    def _unpaused(self, shares: dict[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """Return the shares without the queues that are paused (X4)."""
        if not self._paused.queues:
            return shares
        return {
            share: [queue for queue in queues if queue not in self._paused.queues]
            for share, queues in shares.items()
        }

    def _may_hurry(self, wish: Wish) -> bool:
        """Whether the job that a ring was for may be taken in one round trip."""
        is_plain = wish.queues.selection.weights is None and not self._paused
        return bool(wish.simple) and len(wish.rung) == 1 and is_plain and self.candidates.is_clear

    def _take_first(self, wish: Wish, token: str) -> list[Job]:
        """Claim the first job of the queue that was rung for; the next look sees to all others.

        It has half the round trips of a claim of many, on which an idle runner's start depends.
        """
        [queue] = wish.rung
        now = self.now()
        which = {
            "state": PENDING,
            "queue": queue,
            "concurrency_key": None,
            "priority": ANY_PRIORITY,
            "run_at": {"$lte": now},
            "name": {"$in": [*wish.simple]},
            "suspect": None,
            "attempts": {"$lt": MOST_ATTEMPTS},
        }
        with self.doubts.about(token), pymongo.timeout(CLAIM_SECONDS):
            row = self.jobs.find_one_and_update(
                which,
                {"$set": _stamp(wish.runner, token, now), "$inc": {"attempts": 1}},
                sort=IN_ORDER,
                hint=CLAIM.name,
                return_document=ReturnDocument.AFTER,
            )
        if row is None:
            return []
        job = Job(row, self.rows)
        if wish.wanted(row):
            return [job]
        # The next look steps over it, and no other is tried so until it is gone.
        self._put_back([job], handed_back(now))
        return []

    def _choose(self, wish: Wish, shares: Mapping[str, Sequence[str]], token: str) -> Choice:
        """Return the next jobs in the order of all, with a permit for each limited one."""
        now, paused = self.now(), self._paused
        unlimited = self._read_unlimited(shares, wish, now)
        if wish.rung and len(shares) == 1:
            if 0 < len(unlimited) < wish.at_most:
                # Threads are left for limited work too, which the next look, at once, sees to.
                return Choice(list(takewhile(wish.takes, unlimited)))
            self.limited.keys.look_again()
        return self.limited.choose(unlimited, shares, wish, now=now, token=token, paused=paused)

    def _read_unlimited(
        self, shares: Mapping[str, Sequence[str]], wish: Wish, now: Moment
    ) -> list[Document]:
        """Return the next jobs without a limit; those that should have a key are given it."""
        most = wish.at_most + wish.ahead
        reach = most * self.spread.width
        unlimited: list[Document] = []
        for _ in range(MOST_ADOPTIONS):
            keyless = Keyless(wish, self._paused)
            unlimited = []
            for queues in shares.values():
                rows = self.candidates.read(
                    queues,
                    reach,
                    now,
                    keyless.is_unlimited,
                    passing=not_held(self._paused),
                    enough=keyless.are_many,
                )
                unlimited += self.spread.part_of(rows, most)
            for group, ids in keyless.found.items():
                self.limited.adopt(ids, group, now)
            self._odd.tell(keyless.odd)
            if unlimited or not keyless.are_many():
                break
        return unlimited

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
        stamp = _stamp(runner, token, self.now())
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

    def _won(self, rows: Sequence[Document], token: str) -> list[Document]:
        ids = [row["_id"] for row in rows]
        won = self.jobs.find({"_id": {"$in": ids}, "claim_token": token}, {"_id": True})
        ours = {row["_id"] for row in won}
        return [row for row in rows if row["_id"] in ours]

    def look_in(self) -> float:
        """Return in how many seconds a claim may bring what the last one could not see yet."""
        return self.limited.look_in()

    def look_for_new(self) -> None:
        """Forget which queues and keys have work, so that the next claim sees others, too."""
        self.candidates.look_for_new()
        self.limited.keys.look_for_new()

    def look_again(self) -> None:
        """Forget what is remembered of earlier looks, so that the next claim sees all there is."""
        self.pauses.look_again()
        self._look_at_all()

    def _look_at_all(self) -> None:
        self.candidates.look_again()
        self.limited.look_again()

    def hand_back(self, jobs: Sequence[Job], *, run_at: Moment | None = None) -> Back:
        """Put back jobs that were not begun, as if they had not been claimed, and their permits.

        Those that somebody cancelled in the meantime are dead instead (W8).

        :param run_at: When they are due; None keeps their place.
        """
        if not jobs:
            return Back(0, [])
        update = handed_back(self.now(), run_at)
        with answering("a hand-back"):
            back = self._put_back(jobs, update)
            due = {} if run_at is None else {"run_at": run_at}
            self.ring_for({**job.row, **due} for job in jobs)
        self.limited.permits.give_back(jobs)
        return back

    def _put_back(self, jobs: Sequence[Job], update: Document) -> Back:
        count, cancelled = 0, []
        for token, ids in _by_token(jobs).items():
            held = {"_id": {"$in": ids}, "claim_token": token, "state": RUNNING}
            back = self.jobs.update_many(held | NOT_ASKED, update).modified_count
            if back < len(ids):
                cancelled += bury_asked(self.jobs, held, self.now(), self.rows)
            count += back
        return Back(count, cancelled)


def _stamp(runner: str, token: str, now: Moment) -> Document:
    return {
        "state": RUNNING,
        "claim_token": token,
        "claimed_at": now,
        "claimed_by": runner,
        "heartbeat_at": now,
        "started_at": now,
        "updated_at": now,
    }


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
