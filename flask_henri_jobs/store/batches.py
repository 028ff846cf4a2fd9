"""The batches: opened, sealed, found, cancelled and forgotten."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from pymongo import ReturnDocument

from ..batch import FINISHED, OPEN, RUNNING, Batch
from ..checks import checked_choice, checked_int, checked_name
from ..errors import BatchSealed, InvalidFilter, UnknownBatch
from ..job import DEAD, PENDING, RUNNING as JOB_RUNNING, Document, Job
from .connection import answering
from .documents import changed, update_of
from .filters import BATCH, JobFilter, is_text
from .indexes import Index
from .lookup import MOST_OFFSET, MOST_ON_A_PAGE

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from ..clock import Moment
    from .lookup import Lookup

STATES = (OPEN, RUNNING, FINISHED)
STEP = 1000

CANCELLED = "The batch was cancelled before this job was begun."


def open_index(batches: str) -> Index:
    """Return the index that serves the unfinished batches: henri's own, to the letter."""
    return Index(f"{batches}_open", {"finished_at": 1, "updated_at": 1})


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches as their builders and operators have them in hand.

    :param lookup: Reads the members.
    """

    jobs: Collection[Document]
    batches: Collection[Document]
    now: Callable[[], Moment]
    lookup: Lookup

    def create(self, row: Document) -> Batch:
        """Store a batch that takes jobs until it is sealed."""
        self.batches.insert_one(row)
        return Batch(row, self)

    def find(self, batch_id: str) -> Batch | None:
        """Return a batch, or None where there is none with that id."""
        with answering(f"the look at batch {_checked_id(batch_id)}"):
            row = self.batches.find_one({"_id": batch_id})
        return None if row is None else Batch(row, self)

    def row_of(self, batch_id: str) -> Document:
        """Return the row as it is now.

        :raises UnknownBatch: There is none with that id.
        """
        with answering(f"the look at batch {_checked_id(batch_id)}"):
            return self._row_of(batch_id)

    def members(
        self, batch_id: str, *, state: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[Job]:
        """Return jobs of a batch, those first that changed last."""
        return self.lookup.page(JobFilter.read(batch=batch_id, state=state), limit, offset)

    def page(
        self, state: str | None = None, tenant: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[Batch]:
        """Return batches, the newest first.

        :param state: ``open``, ``running`` or ``finished``.
        """
        which = _in_state(state)
        if tenant is not None:
            which["tenant"] = checked_name(tenant, "tenant", error=InvalidFilter)
        checked_int(limit, "limit", 1, MOST_ON_A_PAGE, error=InvalidFilter)
        checked_int(offset, "offset", 0, MOST_OFFSET, error=InvalidFilter)
        newest_first = [("created_at", -1), ("_id", -1)]
        with answering("a list of batches"):
            rows = self.batches.find(which, sort=newest_first, skip=offset, limit=limit)
            return [Batch(row, self) for row in rows]

    def refuse_sealed(self, batch_id: str) -> None:
        """Return where a batch takes jobs, as the database has it now (B4).

        :raises BatchSealed: It takes no more.
        :raises UnknownBatch: It was deleted.
        """
        row = self._row_of(batch_id)
        if row.get("sealed_at") is None:
            return
        why = "cancelled" if row.get("cancelled_at") is not None else "sealed"
        raise BatchSealed(
            f"The batch {batch_id} was {why}, and takes no more jobs.",
            hint="Add every job before it is sealed, or make another batch.",
        )

    def seal(self, batch_id: str) -> Document:
        """Close a batch to new jobs, and write down how many it has, once (B1).

        The members are counted where they are stored: a job that was merely returned, because it
        held the unique key, is none of them. Sealing again changes nothing.

        :return: The row as it is now.
        :raises UnknownBatch: It was deleted.
        """
        total = self.jobs.count_documents({"batch_id": is_text(batch_id)}, hint=BATCH.name)
        now = self.now()
        sealed = self.batches.find_one_and_update(
            {"_id": batch_id, "sealed_at": None},
            {"$set": {"sealed_at": now, "total": total, "updated_at": now}},
            return_document=ReturnDocument.AFTER,
        )
        return sealed or self._row_of(batch_id)

    def mark_cancelled(self, batch_id: str) -> bool:
        """Note that a batch is to end. Return whether it is unfinished, and so can be."""
        now = self.now()
        marked = self.batches.update_one(
            {"_id": batch_id, "finished_at": None},
            {"$set": {"cancelled_at": now, "updated_at": now}},
        )
        return marked.matched_count == 1

    def cancel_waiting(self, batch_id: str) -> list[Job]:
        """Bury up to a thousand waiting members as cancelled. Return them; none at the end."""
        which = {"batch_id": is_text(batch_id), "state": PENDING}
        while rows := list(self.jobs.find(which, limit=-STEP, hint=BATCH.name)):
            update = _cancelled(self.now())
            ids = {"_id": {"$in": [row["_id"] for row in rows]}}
            buried = self.jobs.update_many({**ids, "state": PENDING}, update).modified_count
            if buried < len(rows):
                # What was buried, not what was read: a runner may have been quicker.
                dead = self.jobs.find({**ids, "state": DEAD, "dead_reason": "cancelled"}, ["_id"])
                found = {row["_id"] for row in dead}
                rows = [row for row in rows if row["_id"] in found]
            if rows:
                return [Job(changed(row, update), self.lookup) for row in rows]
        return []

    def ask_running_to_end(self, batch_id: str) -> int:
        """Request the end of the running members (W8). Return how many were asked."""
        running = {"batch_id": is_text(batch_id), "state": JOB_RUNNING, "cancel_requested_at": None}
        return self.jobs.update_many(
            running, {"$set": {"cancel_requested_at": self.now()}}, hint=BATCH.name
        ).modified_count

    def remove(self, batch_id: str) -> bool:
        """Forget a batch, so that no callback follows. Return whether there was one.

        Its jobs are left as they are.
        """
        with answering(f"the deletion of batch {batch_id}"):
            return self.batches.delete_one({"_id": batch_id}).deleted_count == 1

    def prune(self, before: Moment, limit: int = STEP) -> int:
        """Delete a step of the batches that finished before a moment. Return how many."""
        old = {"finished_at": {"$lt": before, "$type": "number"}}
        with answering("pruning"):
            oldest = self.batches.find(old, {"_id": True}, sort=[("finished_at", 1)], limit=-limit)
            ids = [row["_id"] for row in oldest]
            return self.batches.delete_many({"_id": {"$in": ids}}).deleted_count if ids else 0

    def _row_of(self, batch_id: str) -> Document:
        row = self.batches.find_one({"_id": batch_id})
        if row is None:
            raise UnknownBatch(
                f"There is no batch {batch_id}.",
                hint="It was deleted, or pruned some time after its end.",
            )
        return row


def _checked_id(batch_id: object) -> str:
    return checked_name(batch_id, "id", error=InvalidFilter)


def _in_state(state: object) -> Document:
    if state is None:
        return {}
    match checked_choice(state, "state", STATES, error=InvalidFilter):
        case "open":
            return {"finished_at": None, "sealed_at": None}
        case "running":
            return {"finished_at": None, "sealed_at": {"$ne": None}}
        case _:
            return {"finished_at": {"$ne": None}}


def _cancelled(now: Moment) -> Document:
    ended = {"state": DEAD, "finished_at": now, "updated_at": now, "dead_reason": "cancelled"}
    # A member never has a key that the queue wrote itself: every key is freed (Q7).
    return update_of(ended | {"error_message": CANCELLED}, ["unique_key", "claim_token"])
