"""The ``rates`` collection: a log of the starts of each bucket, which bounds the next ones (X4).

A bucket has a slot for each start that its rate allows in its window. A start takes a slot that was
taken a whole window ago or longer, by the server's clock, so that no window holds more starts than
there are slots. A slot is made as it is taken for the first time: one that is not there is free.
"""

from __future__ import annotations

import random
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from ..clock import Moment, steady_seconds
from ..limit import slot_id
from ..rate import Start
from .connection import answering
from .indexes import Index
from .seen_slots import NEVER, SeenSlots

if t.TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pymongo.collection import Collection

    from ..job import Document, Job
    from ..rate import Rate

TAKEN = Index("fhj_taken", {"rate_key": 1, "taken_at": 1, "slot": 1})
IDLE = Index("fhj_idle", {"idle_at": 1}, {"expireAfterSeconds": 0})
"""The server deletes the slots that nobody has used for long: one that is not there is free."""

IDLE_MS = 86_400_000
WHOLE_SECONDS = 60.0
"""For how long a bucket is known to have all its slots."""

ALONE_SECONDS, SHARED_SECONDS, FEW_SECONDS = 60.0, 0.2, 0.01
"""For how long what was seen of a bucket holds: where nobody else takes from it; where others were
seen to do so within the last minute; and where they may have taken the few that are free."""

MOST_SEEN, MOST_BUCKETS_SEEN, MOST_BUCKETS_SPENT = 100, 500, 10_000
MOST_TRIES = 3

MARGIN_MS = 5
"""By so much this process's idea of the server's time may be wrong."""

SHORTEST_WAIT = 0.005
_DUPLICATE = 11000


class Wanted(t.NamedTuple):
    """A job that is to begin, and what it is counted by."""

    bucket: str
    rate: Rate
    job: Job


class _Try(t.NamedTuple):
    """A slot that is taken for a job, if nobody else has it."""

    slot: int
    wanted: Wanted

    @property
    def id(self) -> str:
        return slot_id(self.wanted.bucket, self.slot)


@dataclass(slots=True)
class Rates:
    """Counts starts against their rates."""

    rates: Collection[Document]
    now: Callable[[], Moment]
    steady: Callable[[], float] = steady_seconds
    random: Callable[[Sequence[int], int], list[int]] = random.sample
    _seen: dict[str, SeenSlots] = field(default_factory=dict)
    _shared_until: dict[str, float] = field(default_factory=dict)
    _whole_until: dict[str, float] = field(default_factory=dict)
    _spent_until: dict[str, float] = field(default_factory=dict)
    _soonest: float = NEVER

    INDEXES: t.ClassVar[tuple[Index, ...]] = (TAKEN, IDLE)

    def begin_look(self) -> None:
        """Forget which spent buckets the last look met."""
        self._soonest = NEVER

    def look_again(self) -> None:
        """Forget what is known of buckets."""
        for known in (self._seen, self._shared_until, self._whole_until, self._spent_until):
            known.clear()

    def look_in(self) -> float:
        """Return in how many seconds the next of the spent buckets has a start free."""
        return max(SHORTEST_WAIT, self._soonest - self.steady())

    def is_spent(self, bucket: str) -> bool:
        """Whether a bucket is known to have no start free. Nothing is asked of the database."""
        until = self._spent_until.get(bucket)
        if until is None:
            return False
        if until <= self.steady():
            del self._spent_until[bucket]
            return False
        self._soonest = min(self._soonest, until)
        return True

    def look(self, buckets: Mapping[str, Rate], at_most: int) -> None:
        """See what is free of some buckets, in one question for all of which that is not known.

        :param at_most: So many starts of each are of use.
        """
        unknown = {
            bucket: rate
            for bucket, rate in buckets.items()
            if not self.is_spent(bucket) and not self._is_known(bucket, at_most)
        }
        if unknown:
            if len(self._seen) + len(unknown) > MOST_BUCKETS_SEEN:
                self._seen.clear()
            self._read(unknown, at_most)

    def free(self, bucket: str, rate: Rate, at_most: int) -> int:
        """Return how many starts of a bucket are free now, as far as that is asked.

        The database is asked only where it is not known from the last question, and what was
        taken here since: others may have taken some.
        """
        return len(self._free(bucket, rate, at_most))

    def take(self, wanted: Sequence[Wanted]) -> dict[str, Start]:
        """Count a start for each of some jobs; return them by the jobs' ids, as far as there are.

        It is one round trip for all of them, where nobody else takes from the same buckets. A job
        is to begin before its start's ``until``, or after :meth:`renew`.
        """
        starts: dict[str, Start] = {}
        for _ in range(MOST_TRIES):
            wanted = [one for one in wanted if one.job.row["_id"] not in starts]
            tries = self._choose(wanted)
            if not tries:
                break
            starts |= self._stamp(tries)
        else:
            for one in wanted:
                if one.job.row["_id"] not in starts:
                    # Others take them faster, or this clock is ahead: that must not spin.
                    self._note(one.bucket, self.now(), is_spent=True)
        return starts

    def take_one(self, wanted: Wanted) -> Start | None:
        """Count a start of one job, and return it; None where its rate is spent."""
        if self.is_spent(wanted.bucket):
            return None
        with answering("a rate"):
            return self.take([wanted]).get(wanted.job.row["_id"])

    def renew(self, start: Start, rate: Rate, job: Job) -> Start | None:
        """Count a start from now on that did not begin in time; None where it is another's now."""
        with answering("a rate"):
            asked_at = self.steady()
            ours = {"_id": start.slot, **_token(job)}
            is_ours = self.rates.update_one(ours, [{"$set": _counted(rate)}]).matched_count
        return Start(start.slot, asked_at + _patience(rate)) if is_ours else None

    def free_at(self, bucket: str, rate: Rate) -> Moment | None:
        """Return when the next start of a bucket is free; None where one is."""
        with answering("a rate"):
            slots = self.rates.count_documents(_slots(bucket, rate))
            [*oldest] = self.rates.aggregate(_oldest(bucket, rate, 1))
        if slots < rate.most or oldest[0]["taken_at"] + rate.window <= self.now():
            return None
        return int(oldest[0]["taken_at"]) + rate.window

    def _free(self, bucket: str, rate: Rate, at_most: int) -> list[int]:
        """Return slots of a bucket that are free."""
        self.look({bucket: rate}, at_most)
        seen = self._seen.get(bucket)
        if seen is None or self.is_spent(bucket):
            return []
        now = self.now() - MARGIN_MS
        free = seen.free(now)
        if len(free) < at_most:
            self._note(bucket, seen.next_free_at(now), is_spent=not free)
        return free[:at_most] if len(free) <= at_most else self._some(free, at_most, seen)

    def _some(self, free: list[int], at_most: int, seen: SeenSlots) -> list[int]:
        # Runners that choose at the same time choose different ones. Those that are not there yet
        # are left for later: most buckets never use all of theirs.
        there = [slot for slot in free if seen.taken[slot]]
        others = free[len(there) :]
        chosen = self.random(there, min(len(there), at_most))
        return chosen + self.random(others, at_most - len(chosen))

    def _is_known(self, bucket: str, at_most: int) -> bool:
        seen = self._seen.get(bucket)
        if seen is None or seen.until <= self.steady():
            return False
        now = self.now() - MARGIN_MS
        if len(seen.free(now)) >= at_most:
            return True
        return seen.few_until > self.steady() and not seen.may_have_more(now)

    def _read(self, buckets: Mapping[str, Rate], at_most: int) -> None:
        most = max(at_most, MOST_SEEN)
        first, *others = (_oldest(bucket, rate, most) for bucket, rate in buckets.items())
        also = [{"$unionWith": {"coll": self.rates.name, "pipeline": one}} for one in others]
        taken: dict[str, dict[int, Moment]] = {bucket: {} for bucket in buckets}
        for row in self.rates.aggregate([*first, *also], batchSize=10_000):
            taken[row["rate_key"]][int(row["slot"])] = int(row["taken_at"])
        for bucket, rate in buckets.items():
            seen = SeenSlots(taken[bucket], NEVER, rate.window, *self._holds_until(bucket))
            are_all = len(seen.taken) < most or rate.most == most
            if not are_all:
                seen.beyond = max(seen.taken.values())
            self._add_missing(bucket, rate, seen, at_most, are_all=are_all)
            self._seen[bucket] = seen

    def _holds_until(self, bucket: str) -> tuple[float, float]:
        now = self.steady()
        if self._shared_until.get(bucket, 0.0) > now:
            return now + SHARED_SECONDS, now + FEW_SECONDS
        return now + ALONE_SECONDS, now + ALONE_SECONDS

    def _add_missing(
        self, bucket: str, rate: Rate, seen: SeenSlots, at_most: int, *, are_all: bool
    ) -> None:
        """Add slots that are not there yet, and free for that."""
        there: t.Collection[int] = seen.taken
        if not are_all:
            is_whole = self._whole_until.get(bucket, 0.0) > self.steady()
            if is_whole or len(seen.free(self.now() - MARGIN_MS)) >= at_most:
                return
            there = self._slots_of(bucket, rate)
        missing = sorted(set(range(rate.most)).difference(there))
        if not missing:
            self._whole_until[bucket] = self.steady() + WHOLE_SECONDS
        elif len(missing) > MOST_SEEN:
            missing = self.random(missing, MOST_SEEN)
            seen.beyond = 0
        seen.taken |= dict.fromkeys(missing, 0)

    def _slots_of(self, bucket: str, rate: Rate) -> set[int]:
        which = _slots(bucket, rate)
        rows = self.rates.find(which, {"_id": False, "slot": True}, hint=TAKEN.name)
        return {int(row["slot"]) for row in rows.batch_size(rate.most + 1)}

    def _choose(self, wanted: Sequence[Wanted]) -> list[_Try]:
        """Choose a free slot for each of some jobs, as far as there are any."""
        by_bucket: dict[str, list[Wanted]] = defaultdict(list)
        for one in wanted:
            by_bucket[one.bucket].append(one)
        tries: list[_Try] = []
        for bucket, ones in by_bucket.items():
            slots = self._free(bucket, ones[0].rate, len(ones))
            tries += [_Try(slot, one) for slot, one in zip(slots, ones, strict=False)]
        return tries

    def _stamp(self, tries: Sequence[_Try]) -> dict[str, Start]:
        # Before the question: the server's time when it stamps is no earlier than this.
        asked_at = self.steady()
        ours = self._written(tries)
        now = self.now()
        starts: dict[str, Start] = {}
        for one in tries:
            bucket, rate, job = one.wanted
            if one.id not in ours:
                self._shared_until[bucket] = self.steady() + ALONE_SECONDS
                self._seen.pop(bucket, None)
                continue
            starts[job.row["_id"]] = Start(one.id, asked_at + _patience(rate))
            if seen := self._seen.get(bucket):
                seen.taken[one.slot] = now + rate.leeway
        return starts

    def _written(self, tries: Sequence[_Try]) -> set[str]:
        """Take slots, as far as they are free by the server's clock. Return which were."""
        ids = {one.id: one.wanted.job for one in tries}
        try:
            done = self.rates.bulk_write([_update(one) for one in tries], ordered=False)
            count = done.modified_count + done.upserted_count
        except BulkWriteError as error:
            # Another runner has made the same slot at the same time.
            if any(refused["code"] != _DUPLICATE for refused in error.details["writeErrors"]):
                raise
            count = 0
        if count == len(tries):
            return set(ids)
        rows = self.rates.find({"_id": {"$in": [*ids]}}, {"job_id": True, "token": True})
        return {row["_id"] for row in rows if row == row | _token(ids[row["_id"]])}

    def _note(self, bucket: str, free_at: float, *, is_spent: bool) -> None:
        """Note when the next start of a bucket is free."""
        wait = (free_at + MARGIN_MS - self.now()) / 1000
        until = self.steady() + max(SHORTEST_WAIT, wait)
        self._soonest = min(self._soonest, until)
        if is_spent:
            if len(self._spent_until) >= MOST_BUCKETS_SPENT:
                self._spent_until.clear()
            self._spent_until[bucket] = until


def _slots(bucket: str, rate: Rate) -> Document:
    # Where a rate was lowered, the slots above it are not taken again.
    return {"rate_key": bucket, "slot": {"$lt": rate.most}}


def _oldest(bucket: str, rate: Rate, at_most: int) -> list[Document]:
    """Return a pipeline to the slots that were taken the longest ago, by the index alone."""
    return [
        {"$match": _slots(bucket, rate)},
        {"$sort": {"taken_at": 1}},
        {"$limit": at_most},
        {"$project": {"_id": 0, "rate_key": 1, "taken_at": 1, "slot": 1}},
    ]


def _update(one: _Try) -> UpdateOne:
    """Return what takes a slot that was taken a window ago or longer, or was never made.

    What an upsert is guarded by stands in the change itself: its filter takes no expressions.
    """
    bucket, rate, job = one.wanted
    is_free = {"$lte": [{"$ifNull": ["$taken_at", 0]}, {"$subtract": [_NOW, rate.window]}]}
    known = {"rate_key": bucket, "slot": one.slot, **_token(job)}
    row = {"_id": "$_id", **{key: {"$literal": value} for key, value in known.items()}}
    taken = {**row, **_counted(rate)}
    change = {"$replaceWith": {"$cond": [is_free, taken, "$$ROOT"]}}
    return UpdateOne({"_id": one.id}, [change], upsert=True)


def _counted(rate: Rate) -> Document:
    return {
        "taken_at": {"$add": [_NOW, rate.leeway]},
        "idle_at": {"$add": ["$$NOW", rate.window + IDLE_MS]},
    }


def _patience(rate: Rate) -> float:
    # The other half is for the way from here into the task.
    return rate.leeway / 2000


def _token(job: Job) -> Document:
    return {"job_id": job.row["_id"], "token": job.row["claim_token"]}


_NOW: Document = {"$toLong": "$$NOW"}
