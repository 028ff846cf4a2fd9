"""Storing new jobs; what becomes of a duplicate (Q7)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from ..errors import StoreUnavailable
from ..job import PENDING, Document, Job, Rows
from .conflicts import OnConflict, is_replaced, refuse_conflict, replacement, same_tenant
from .connection import answering, is_outage
from .indexes import Index
from .wakeups import no_ring

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
    from datetime import timedelta

    from pymongo.collection import Collection

    from ..clock import Moment
    from .wakeups import RingFor

MOST_AT_ONCE = 1000
_DUPLICATE = 11000


def unique_index(jobs: str) -> Index:
    """Return the index that holds a unique key for one job: henri's own, to the letter."""
    return Index(
        f"{jobs}_unique",
        {"unique_key": 1},
        {"partialFilterExpression": {"unique_key": {"$type": "string"}}, "unique": True},
    )


@dataclass(frozen=True, slots=True)
class Inbox:
    """Where jobs enter the queue.

    :param jobs: The collection with the write concern that enqueueing has.
    :param timeout: No enqueue takes longer (Q11).
    :param ring_for: Wakes runners for jobs that are stored (W3).
    :param ring_ahead: Wakes runners for a job that is about to be.
    """

    jobs: Collection[Document]
    now: Callable[[], Moment]
    timeout: timedelta
    rows: Rows | None = None
    ring_for: RingFor = no_ring
    ring_ahead: Callable[[Document], None] = no_ring

    def add(self, row: Document, on_conflict: OnConflict = "return") -> Job:
        """Store a job, or return the one that is there already under its id or unique key.

        ``job.created`` says which of the two happened.

        :raises UniqueKeyTaken: The key is held by a job of another task, or the key or the id by
            one of another tenant (T2); or by any, where ``on_conflict`` is ``"raise"``.
        :raises StoreUnavailable: No answer in time. ``maybe_stored`` has the id where the insert
            was sent.
        """
        with answering("an enqueue", self.timeout.total_seconds()):
            self.ring_ahead(row)
            while True:
                try:
                    self._insert(row)
                except DuplicateKeyError as error:
                    holder = self._holder(row, error.details, on_conflict)
                    # A holder that ended between our refused insert and our read is no holder.
                    if holder is not None:
                        return Job(holder, self.rows, created=False)
                else:
                    self.ring_for([row])
                    return Job(row, self.rows)

    def add_many(self, rows: Sequence[Document], on_conflict: OnConflict = "return") -> list[Job]:
        """Store jobs in the order given, a round trip for each thousand, as ``add`` does each.

        Each thousand is bounded by the enqueue timeout. Where one fails, those before it are
        stored, and ``StoreUnavailable`` says how many.
        """
        jobs: list[Job] = []
        for at in range(0, len(rows), MOST_AT_ONCE):
            try:
                jobs += self._add_part(rows[at : at + MOST_AT_ONCE], on_conflict)
            except StoreUnavailable as error:
                error.message += f" Of {len(rows)} jobs, the first {at} are stored."
                raise
        return jobs

    def _add_part(self, rows: Sequence[Document], on_conflict: OnConflict) -> Iterable[Job]:
        with answering("an enqueue", self.timeout.total_seconds()):
            refused = self._insert_many(rows)
            # One look for all of them; what it leaves open goes the way of a single enqueue.
            asked = [rows[at] for at in refused] if on_conflict == "return" else []
            holders = self._holders_of(asked) if asked else {}
        if not refused:
            self.ring_for(rows)
            return [Job(row, self.rows) for row in rows]
        self.ring_for([row for at, row in enumerate(rows) if at not in refused])
        return self._created_or_held(rows, refused, holders, on_conflict)

    def _created_or_held(
        self,
        rows: Sequence[Document],
        refused: AbstractSet[int],
        holders: Mapping[str, Document],
        on_conflict: OnConflict,
    ) -> Iterator[Job]:
        for at, row in enumerate(rows):
            if at not in refused:
                yield Job(row, self.rows)
            elif row["_id"] in holders:
                yield Job(holders[row["_id"]], self.rows, created=False)
            else:
                yield self.add(row, on_conflict)

    def states_of(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the states of the jobs that have these unique keys, by key."""
        with answering("the jobs of some keys"):
            which = {"unique_key": {"$in": [*keys]}}
            found = self.jobs.find(which, {"unique_key": True, "state": True})
            return {row["unique_key"]: row["state"] for row in found}

    def _insert(self, row: Document) -> None:
        try:
            self.jobs.insert_one(row)
        except DuplicateKeyError:
            raise
        except PyMongoError as error:
            if is_outage(error) and _was_sent(error):
                raise StoreUnavailable(
                    f"The database did not acknowledge job {row['_id']} in time.",
                    hint=f"It may be stored: using(id={row['_id']!r}) repeats the enqueue safely.",
                    maybe_stored=row["_id"],
                ) from error
            raise

    def _insert_many(self, rows: Sequence[Document]) -> set[int]:
        """Insert what can be. Return the numbers of the rows whose id or key is taken."""
        try:
            self.jobs.insert_many(rows, ordered=False)
        except BulkWriteError as error:
            refused = error.details["writeErrors"]
            if error.details["writeConcernErrors"] or any(
                one["code"] != _DUPLICATE for one in refused
            ):
                raise
            return {one["index"] for one in refused}
        return set()

    def _holders_of(self, rows: Sequence[Document]) -> dict[str, Document]:
        """Return what is there in place of refused rows, by the ids that those would have had."""
        ids = [row["_id"] for row in rows]
        keys = [row["unique_key"] for row in rows if "unique_key" in row]
        found = list(
            self.jobs.find({"$or": [{"_id": {"$in": ids}}, {"unique_key": {"$in": keys}}]})
        )
        by_id = {holder["_id"]: holder for holder in found}
        by_key = {(holder["name"], holder.get("unique_key")): holder for holder in found}
        holders = {
            row["_id"]: by_id.get(row["_id"]) or by_key.get((row["name"], row.get("unique_key")))
            for row in rows
        }
        return {
            row["_id"]: holder
            for row in rows
            if (holder := holders[row["_id"]]) is not None and same_tenant(holder, row)
        }

    def _holder(self, row: Document, details: t.Any, on_conflict: OnConflict) -> Document | None:
        taken = "_id" if "_id" in (details or {}).get("keyPattern", {}) else "unique_key"
        holder = self.jobs.find_one({taken: row[taken]})
        if holder is None:
            return None
        refuse_conflict(holder, row, taken, on_conflict)
        if not is_replaced(holder, taken, on_conflict):
            return holder
        return self._replace(holder, row)

    def _replace(self, holder: Document, row: Document) -> Document | None:
        """Give a waiting job new arguments and a new moment; None where it was taken meanwhile."""
        replaced = self.jobs.find_one_and_update(
            {"_id": holder["_id"], "unique_key": row["unique_key"], "state": PENDING},
            replacement(row, self.now()),
            return_document=ReturnDocument.AFTER,
        )
        if replaced is not None:
            self.ring_for([replaced])
        return replaced


def _was_sent(error: PyMongoError) -> bool:
    # Server selection fails before anything is written to a socket.
    return type(error).__name__ != "ServerSelectionTimeoutError"
