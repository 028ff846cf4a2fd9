"""Storing new jobs in a caller's transaction (X1)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

import pymongo
from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from ..job import PENDING, Document, Job, Rows
from .conflicts import OnConflict, is_replaced, refuse_conflict, replacement
from .inbox import MOST_AT_ONCE
from .transactions import TransactionRaced
from .wakeups import no_ring

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from pymongo.collection import Collection

    from ..clock import Moment
    from .wakeups import RingFor

_DUPLICATE = 11000


@dataclass(frozen=True, slots=True)
class TransactionalInbox:
    """Where jobs enter the queue if and when a transaction commits.

    What the driver raises is passed through as it is, so that ``with_transaction`` can tell what
    is worth another try. Nothing is swallowed: a write that failed has ended the transaction.

    :param jobs: The collection, each of whose operations is in the caller's session.
    :param timeout: No enqueue takes longer (Q11).
    :param rows: Where a job is read anew, after the commit.
    :param ring_for: Wakes runners after the commit (W3).
    """

    jobs: Collection[Document]
    now: Callable[[], Moment]
    timeout: timedelta
    rows: Rows | None = None
    ring_for: RingFor = no_ring

    def add(self, row: Document, on_conflict: OnConflict = "return") -> Job:
        """Store a job, or return the one that is there already, as the plain inbox does.

        :raises UniqueKeyTaken: As for the plain inbox; the transaction can still be committed.
        :raises TransactionRaced: Somebody stored a job under the key since the transaction began.
        """
        [job] = self.add_many([row], on_conflict)
        return job

    def add_many(self, rows: Sequence[Document], on_conflict: OnConflict = "return") -> list[Job]:
        """Store jobs in the order given, as ``add`` does each."""
        parts = [rows[at : at + MOST_AT_ONCE] for at in range(0, len(rows), MOST_AT_ONCE)]
        return [job for part in parts for job in self._add_part(part, on_conflict)]

    def _add_part(self, rows: Sequence[Document], on_conflict: OnConflict) -> list[Job]:
        with pymongo.timeout(self.timeout.total_seconds()):
            taken = _Taken(self._holders_of(rows))
            jobs = [self._new_or_held(row, taken, on_conflict) for row in rows]
            self._insert([row for row, job in zip(rows, jobs, strict=True) if job.created])
        self.ring_for(job.row for job in jobs if job.row["state"] == PENDING)
        return jobs

    def _holders_of(self, rows: Sequence[Document]) -> Iterable[Document]:
        """Return the jobs that are in the way.

        They are looked up first: an insert that meets one would abort the whole transaction (A7).
        """
        ids = [row["_id"] for row in rows]
        keys = [row["unique_key"] for row in rows if "unique_key" in row]
        return self.jobs.find({"$or": [{"_id": {"$in": ids}}, {"unique_key": {"$in": keys}}]})

    def _new_or_held(self, row: Document, taken: _Taken, on_conflict: OnConflict) -> Job:
        field, holder = taken.by(row)
        if holder is None:
            taken.add(row)
            return Job(row, self.rows)
        refuse_conflict(holder, row, field, on_conflict)
        if is_replaced(holder, field, on_conflict):
            holder = self._replace(holder, row)
        return Job(holder, self.rows, created=False)

    def _replace(self, holder: Document, row: Document) -> Document:
        replaced = self.jobs.find_one_and_update(
            {"_id": holder["_id"], "unique_key": row["unique_key"], "state": PENDING},
            replacement(row, self.now()),
            return_document=ReturnDocument.AFTER,
        )
        if replaced is None:
            raise _raced()
        return replaced

    def _insert(self, rows: list[Document]) -> None:
        try:
            if len(rows) == 1:
                self.jobs.insert_one(rows[0])
            elif rows:
                self.jobs.insert_many(rows)
        except DuplicateKeyError as error:
            raise _raced() from error
        except BulkWriteError as error:
            if all(one["code"] == _DUPLICATE for one in error.details["writeErrors"]):
                raise _raced() from error
            raise


class _Taken:
    """The ids and unique keys that are in use, and by which jobs."""

    def __init__(self, holders: Iterable[Document]) -> None:
        self._by: dict[tuple[str, t.Any], Document] = {}
        for holder in holders:
            self.add(holder)

    def add(self, row: Document) -> None:
        """Note a job, which may be one that is stored with the next insert."""
        for field in ("_id", "unique_key"):
            if field in row:
                self._by[field, row[field]] = row

    def by(self, row: Document) -> tuple[str, Document | None]:
        """Return which field of a row is in use, and by which job; None where the row is new."""
        for field in ("_id", "unique_key"):
            if field in row and (holder := self._by.get((field, row[field]))):
                return field, holder
        return "", None


def _raced() -> TransactionRaced:
    return TransactionRaced(
        "Another process stored a job under the same id or unique key during the transaction.",
        hint="Run the transaction again: session.with_transaction() does so by itself.",
    )
