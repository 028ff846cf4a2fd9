"""Counting the jobs of a batch as they end, and ending it once, after its last (B1 to B3)."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from pymongo import ReturnDocument, UpdateOne

from ..batch import Batch, Counts
from ..job import DEAD, DONE, PENDING, RUNNING, Document
from .connection import answering
from .filters import BATCH, is_text

if t.TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymongo.collection import Collection

    from ..clock import Moment
    from .batches import Batches

MOST_AT_A_LOOK = 100


class Ended(t.NamedTuple):
    """How many members of a batch have just ended."""

    done: int
    failed: int


@dataclass(slots=True)
class Tallies:
    """The counters of the batches, and their ends.

    The counters are for showing. Whether a batch is finished is asked of its members, since a
    counter may be short after a crash: nothing that is sent again, or late, brings a callback
    early (A2).

    :param rows: Where a batch is read anew.
    """

    jobs: Collection[Document]
    batches: Collection[Document]
    now: Callable[[], Moment]
    rows: Batches
    _reached: str = field(default="")

    def add(self, ended: Mapping[str, Ended]) -> list[Batch]:
        """Count members that have ended, by batch. Return the batches that may be finished.

        Sent at most once: where its fate is unknown it is not to be repeated, and the sweep finds
        out what the counters do not say.
        """
        if not ended:
            return []
        now = self.now()
        with answering("the count of a batch"):
            self.batches.bulk_write(
                [
                    UpdateOne(
                        {"_id": batch, "finished_at": None},
                        {"$inc": count._asdict(), "$set": {"updated_at": now}},
                    )
                    for batch, count in ended.items()
                ],
                ordered=False,
            )
            full = {
                "_id": {"$in": list(ended)},
                "finished_at": None,
                "sealed_at": {"$ne": None},
                "$expr": {"$gte": ["$done", "$total"]},
            }
            return [Batch(row, self.rows) for row in self.batches.find(full)]

    def is_over(self, batch_id: str) -> bool:
        """Whether no member waits or runs."""
        unended = {"batch_id": is_text(batch_id), "state": {"$in": [PENDING, RUNNING]}}
        return self.jobs.find_one(unended, {"_id": True}, hint=BATCH.name) is None

    def found(self, batch_id: str) -> Counter[str]:
        """Return how many members are in each state."""
        steps: list[Document] = [
            {"$match": {"batch_id": is_text(batch_id)}},
            {"$group": {"_id": "$state", "jobs": {"$sum": 1}}},
        ]
        rows = self.jobs.aggregate(steps, hint=BATCH.name)
        return Counter({row["_id"]: row["jobs"] for row in rows})

    def final(self, batch: Batch) -> Counter[str] | None:
        """Return how many members ended in which state; None while one waits or runs."""
        if not self.is_over(batch.id):
            return None
        found = self.found(batch.id)
        if found[PENDING] or found[RUNNING]:
            return None
        # A look goes from state to state. A member that went back from running to waiting behind
        # it was in neither; seen short, the members are looked at again.
        if found[DONE] + found[DEAD] < batch.total and not self.is_over(batch.id):
            return None
        return found

    def finish(self, batch_id: str, counts: Counts, callback_id: str | None) -> Batch | None:
        """End a batch. Return it as it is now, or None where another has ended it."""
        now = self.now()
        ended = {"finished_at": now, "updated_at": now, "callback_id": callback_id}
        row = self.batches.find_one_and_update(
            {"_id": batch_id, "finished_at": None, "sealed_at": {"$ne": None}},
            {"$set": ended | counts._asdict()},
            return_document=ReturnDocument.AFTER,
        )
        return None if row is None else Batch(row, self.rows)

    def unfinished(self, before: Moment) -> list[Batch]:
        """Return a hundred of the sealed and unfinished batches that nothing has changed lately.

        The next call goes on where this one ended, so that batches which take long do not stand
        in front of the others.

        :param before: Only those that changed before this moment.
        """
        which = {
            "finished_at": None,
            "updated_at": {"$lt": before},
            "sealed_at": {"$ne": None},
            "_id": {"$gt": self._reached},
        }
        with answering("the unfinished batches"):
            rows = list(self.batches.find(which, sort=[("_id", 1)], limit=MOST_AT_A_LOOK))
        self._reached = rows[-1]["_id"] if len(rows) == MOST_AT_A_LOOK else ""
        return [Batch(row, self.rows) for row in rows]
