"""The ``rates`` collection: a log of the starts of each bucket, which bounds the next ones (X4).

A bucket has a slot for each start that its rate allows in its window. A start takes the slot that
was taken the longest ago, if that is a whole window ago by the server's clock, so that no window
holds more starts than there are slots.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError

from ..clock import Moment, steady_seconds
from ..limit import slot_id
from .connection import answering
from .indexes import Index

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from ..job import Document, Job
    from ..rate import Rate

TAKEN = Index("fhj_taken", {"rate_key": 1, "taken_at": 1, "slot": 1})
IDLE = Index("fhj_idle", {"idle_at": 1}, {"expireAfterSeconds": 0})
"""The server deletes the slots that nobody has used for long: one that is not there is free."""

IDLE_MS = 86_400_000
FEWEST_SLOTS = 16
WHOLE_SECONDS = 60.0
"""For how long a bucket is known to have all its slots."""

SEEN_SECONDS, MOST_SEEN = 0.2, 100
"""For how long, and how many at most, starts are held to be free that were seen to be."""

MARGIN_MS = 2
"""By so much this process's idea of the server's time may be wrong."""

SHORTEST_WAIT = 0.005
MOST_BUCKETS_SEEN = 10_000
_DUPLICATE = 11000


@dataclass(frozen=True, slots=True)
class Start:
    """A start that is counted.

    :param until: The steady seconds until which the job may begin under it.
    """

    slot: str
    until: float


@dataclass(slots=True)
class _Seen:
    """The starts of a bucket that were seen to be free, less those that were taken here since."""

    free: int
    until: float


@dataclass(slots=True)
class Rates:
    """Counts starts against their rates."""

    rates: Collection[Document]
    now: Callable[[], Moment]
    steady: Callable[[], float] = steady_seconds
    _spent_until: dict[str, float] = field(default_factory=dict)
    _whole_until: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _soonest: float = float("inf")

    INDEXES: t.ClassVar[tuple[Index, ...]] = (TAKEN, IDLE)

    def begin_look(self) -> None:
        """Forget which spent buckets the last look met."""
        self._soonest = float("inf")

    def look_again(self) -> None:
        """Forget what is known of buckets."""
        for known in (self._spent_until, self._whole_until, self._seen):
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

    def free(self, bucket: str, rate: Rate, at_most: int) -> int:
        """Return how many starts of a bucket are free now, as far as that is asked.

        It is asked of the database where few of them are, and as others may have taken some since.
        """
        if self.is_spent(bucket):
            return 0
        seen = self._seen.get(bucket)
        if seen is None or seen.free < at_most or seen.until <= self.steady():
            seen = self._look_at(bucket, rate, max(at_most, min(rate.most, MOST_SEEN)))
        return min(seen.free, at_most)

    def _look_at(self, bucket: str, rate: Rate, at_most: int) -> _Seen:
        while True:
            taken = self._oldest(bucket, rate, at_most)
            free = sum(one + rate.window + MARGIN_MS <= self.now() for one in taken)
            if free == at_most or not self._grow(bucket, rate):
                break
        if free < len(taken):
            self._note(bucket, taken[free] + rate.window, is_spent=not free)
        if len(self._seen) >= MOST_BUCKETS_SEEN:
            self._seen.clear()
        seen = self._seen[bucket] = _Seen(free, self.steady() + SEEN_SECONDS)
        return seen

    def take(self, bucket: str, rate: Rate, job: Job) -> Start | None:
        """Count a start of a job, and return it; None where the rate is spent.

        It is one round trip. The job is to begin before ``until``, or after :meth:`renew`.
        """
        with answering("a rate"):
            while True:
                start = self._stamp(_oldest_free(bucket, rate), rate, job)
                if start is not None or not self._grow(bucket, rate):
                    break
            seen = self._seen.get(bucket)
            if start is None:
                oldest = self._oldest(bucket, rate, 1)
                self._note(bucket, oldest[0] + rate.window, is_spent=True)
                self._seen.pop(bucket, None)
            elif seen is not None:
                seen.free -= 1
            return start

    def renew(self, start: Start, rate: Rate, job: Job) -> Start | None:
        """Count a start from now on that did not begin in time; None where it is another's now."""
        with answering("a rate"):
            return self._stamp({"_id": start.slot, **_token(job)}, rate, job)

    def free_at(self, bucket: str, rate: Rate) -> Moment | None:
        """Return when the next start of a bucket is free; None where one is."""
        with answering("a rate"):
            slots = self.rates.count_documents(_slots(bucket, rate))
            oldest = self._oldest(bucket, rate, 1)
        if slots < rate.most or oldest[0] + rate.window <= self.now():
            return None
        return oldest[0] + rate.window

    def _stamp(self, which: Document, rate: Rate, job: Job) -> Start | None:
        # Before the question: the server's time when it stamps is no earlier than this.
        asked_at = self.steady()
        row = self.rates.find_one_and_update(
            which,
            [{"$set": {**_stamped(rate), **{k: {"$literal": v} for k, v in _token(job).items()}}}],
            sort=[("taken_at", 1)],
            projection={"_id": True},
            return_document=ReturnDocument.AFTER,
        )
        if row is None:
            return None
        # The other half is for the way from here into the task.
        return Start(row["_id"], asked_at + rate.leeway / 2000)

    def _oldest(self, bucket: str, rate: Rate, at_most: int) -> list[Moment]:
        """Return when the slots were taken that were taken the longest ago."""
        rows = self.rates.find(
            _slots(bucket, rate),
            {"taken_at": True},
            sort=[("taken_at", 1)],
            hint=TAKEN.name,
            limit=at_most,
        )
        return [int(row["taken_at"]) for row in rows]

    def _note(self, bucket: str, free_at: Moment, *, is_spent: bool) -> None:
        """Note when the next start of a bucket is free."""
        wait = (free_at + MARGIN_MS - self.now()) / 1000
        until = self.steady() + max(SHORTEST_WAIT, wait)
        self._soonest = min(self._soonest, until)
        if is_spent:
            self._spent_until[bucket] = until

    def _grow(self, bucket: str, rate: Rate) -> bool:
        """Make more slots of a bucket, up to as many as its rate has. Return whether it did.

        They are made as they are needed: most buckets never use all of theirs.
        """
        if self._whole_until.get(bucket, 0.0) > self.steady():
            return False
        found = self.rates.find(_slots(bucket, rate), {"slot": True})
        missing = sorted(set(range(rate.most)) - {int(row["slot"]) for row in found})
        if not missing:
            self._whole_until[bucket] = self.steady() + WHOLE_SECONDS
            return False
        self._insert(bucket, missing[: max(FEWEST_SLOTS, rate.most - len(missing))])
        return True

    def _insert(self, bucket: str, slots: list[int]) -> None:
        free: Document = {"rate_key": bucket, "taken_at": 0}
        rows = [{"_id": slot_id(bucket, slot), "slot": slot, **free} for slot in slots]
        try:
            self.rates.insert_many(rows, ordered=False)
        except BulkWriteError as error:
            # Another runner makes the same ones, and has taken some by now.
            if any(refused["code"] != _DUPLICATE for refused in error.details["writeErrors"]):
                raise


def _slots(bucket: str, rate: Rate) -> Document:
    # Where a rate was lowered, the slots above it are not taken again.
    return {"rate_key": bucket, "slot": {"$lt": rate.most}}


def _oldest_free(bucket: str, rate: Rate) -> Document:
    """Match the slots of a bucket that were taken a window ago or longer, by the server's clock."""
    window_ago = {"$subtract": [_NOW, rate.window]}
    return {**_slots(bucket, rate), "$expr": {"$lte": ["$taken_at", window_ago]}}


def _stamped(rate: Rate) -> Document:
    return {
        "taken_at": {"$add": [_NOW, rate.leeway]},
        "idle_at": {"$add": ["$$NOW", rate.window + IDLE_MS]},
    }


def _token(job: Job) -> Document:
    return {"job_id": job.row["_id"], "token": job.row["claim_token"]}


_NOW: Document = {"$toLong": "$$NOW"}
