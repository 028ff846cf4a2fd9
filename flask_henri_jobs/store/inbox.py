"""Storing new jobs; what becomes of a duplicate (Q7)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from ..errors import StoreUnavailable, UniqueKeyTaken
from ..job import PENDING, Document, Job, Rows
from .connection import answering, is_outage
from .indexes import Index

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from pymongo.collection import Collection

    from ..clock import Moment

OnConflict: t.TypeAlias = t.Literal["return", "raise", "replace"]

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
    """

    jobs: Collection[Document]
    now: Callable[[], Moment]
    timeout: timedelta
    rows: Rows | None = None

    def add(self, row: Document, on_conflict: OnConflict = "return") -> Job:
        """Store a job, or return the one that is there already under its id or unique key.

        ``job.created`` says which of the two happened.

        :raises UniqueKeyTaken: The key is held by a job of another task; or by any, where
            ``on_conflict`` is ``"raise"``.
        :raises StoreUnavailable: No answer in time. ``maybe_stored`` has the id where the insert
            was sent.
        """
        while True:
            try:
                self._insert(row)
            except DuplicateKeyError as error:
                holder = self._holder(row, error.details, on_conflict)
                # A holder that ended between our refused insert and our read is no holder.
                if holder is not None:
                    return Job(holder, self.rows, created=False)
            else:
                return Job(row, self.rows)

    def add_many(self, rows: Sequence[Document], on_conflict: OnConflict = "return") -> list[Job]:
        """Store jobs in the order given, a round trip for each thousand, as ``add`` does each.

        Each thousand is bounded by the enqueue timeout. Where one fails, those before it are
        stored, and ``StoreUnavailable`` says how many.
        """
        jobs: list[Job] = []
        for at in range(0, len(rows), MOST_AT_ONCE):
            part = rows[at : at + MOST_AT_ONCE]
            try:
                with answering("an enqueue", self.timeout.total_seconds()):
                    refused = self._insert_many(part)
            except StoreUnavailable as error:
                error.message += f" Of {len(rows)} jobs, the first {at} are stored."
                raise
            jobs += [
                self.add(row, on_conflict) if number in refused else Job(row, self.rows)
                for number, row in enumerate(part)
            ]
        return jobs

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

    def _holder(self, row: Document, details: t.Any, on_conflict: OnConflict) -> Document | None:
        if "_id" in (details or {}).get("keyPattern", {}):
            return self.jobs.find_one({"_id": row["_id"]})
        holder = self.jobs.find_one({"unique_key": row["unique_key"]})
        if holder is None:
            return None
        if holder["name"] != row["name"]:
            raise UniqueKeyTaken(
                f"The unique key {row['unique_key']!r} is held by {_told(holder)}.",
                hint="Use a key that begins with the task's name.",
            )
        if on_conflict == "raise":
            raise UniqueKeyTaken(
                f"The unique key {row['unique_key']!r} is held by {_told(holder)}.",
                hint='Use on_conflict="return" to be handed that job.',
            )
        if on_conflict == "replace" and holder["state"] == PENDING:
            return self._replace(holder, row)
        return holder

    def _replace(self, holder: Document, row: Document) -> Document | None:
        """Give a waiting job new arguments and a new moment; None where it was taken meanwhile."""
        return self.jobs.find_one_and_update(
            {"_id": holder["_id"], "unique_key": row["unique_key"], "state": PENDING},
            {
                "$set": {
                    "args": row["args"],
                    "run_at": row["run_at"],
                    "updated_at": self.now(),
                },
                # A runner that read the old arguments no longer matches the row (A1).
                "$inc": {"revision": 1},
            },
            return_document=True,
        )


def _was_sent(error: PyMongoError) -> bool:
    # Server selection fails before anything is written to a socket.
    return type(error).__name__ != "ServerSelectionTimeoutError"


def _told(job: Document) -> str:
    return f"job {job['_id']} of the task {job['name']}, which is {job['state']}"
