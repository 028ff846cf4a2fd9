"""Deleting what has been kept long enough (Q12)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..checks import checked_choice, checked_int
from ..errors import InvalidFilter
from ..job import DEAD, DONE, keeps_key
from ..schedule import schedule_of, slot_key
from .connection import answering
from .filters import RECENT
from .walks import MOST_EXAMINED, OLDEST, STEP, Place, Walk, older_than, place_of

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Document
    from .indexes import Index

OWN_KEPT = 60 * 60 * 1000
"""For how long the job of a schedule's slot, or of a batch's end, is kept at least: another runner
that read the slot or the batch before it moved on must find it, or it enqueues it again (A10)."""

_JUDGED: Document = {"updated_at": True, "batch_id": True, "unique_key": True}


@dataclass(slots=True)
class Pruning:
    """Takes jobs that ended out of the queue for good.

    It remembers how far it came over what must stay (the members of a batch that nobody sealed,
    say), so that those cost once in a while and not each time.
    """

    jobs: Collection[Document]
    batches: Collection[Document]
    schedules: Collection[Document]
    now: Callable[[], Moment]
    _reached: dict[str, Place] = field(default_factory=dict)

    INDEXES: t.ClassVar[tuple[Index, ...]] = (RECENT,)

    def prune(self, state: str, before: Moment, limit: int = STEP) -> int:
        """Delete a step of the jobs of a state that ended before a moment. Return how many.

        0 says that there are no more for now, or that a great many were passed which must stay.
        Members and callbacks of an unfinished batch stay; the job of a schedule's slot and the
        callback of a batch, for an hour.

        :param state: ``done`` or ``dead``.
        """
        checked_choice(state, "state", (DONE, DEAD), error=InvalidFilter)
        checked_int(limit, "limit", 1, MOST_EXAMINED, error=InvalidFilter)
        walk, until = Walk(self.jobs, state), older_than(before)
        for _ in range(MOST_EXAMINED // limit):
            behind = self._reached.pop(state, OLDEST)
            rows = walk.look({}, behind=behind, until=until, at_most=limit, fields=_JUDGED)
            if not rows:
                return 0
            self._reached[state] = place_of(rows[-1])
            if deleted := self._delete(rows, state, before):
                return deleted
        return 0

    def _delete(self, rows: Sequence[Document], state: str, before: Moment) -> int:
        with answering("pruning"):
            batches = {row["_id"]: _batch_of(row) for row in rows}
            unfinished = self._unfinished({batch for batch in batches.values() if batch})
            to_come = self._slots_to_come(row.get("unique_key") for row in rows)
            recently = self.now() - OWN_KEPT
            ids = [
                row["_id"]
                for row in rows
                if batches[row["_id"]] not in unfinished
                and row.get("unique_key") not in to_come
                and not _is_own_since(recently, row)
            ]
            if not ids:
                return 0
            # One that was retried since it was read is no longer what this is about.
            old = {"_id": {"$in": ids}, "state": state, "updated_at": {"$lt": before}}
            return self.jobs.delete_many(old).deleted_count

    def _unfinished(self, batches: set[str]) -> set[str]:
        if not batches:
            return set()
        which = {"_id": {"$in": list(batches)}, "finished_at": None}
        return {batch["_id"] for batch in self.batches.find(which, {"_id": True})}

    def _slots_to_come(self, keys: Iterable[str | None]) -> set[str]:
        """Return those of the keys whose schedules have not moved on from that slot.

        A runner that enqueued the job and was killed leaves the schedule there, and the next to
        come to it must find the job, however long nobody did (S1).
        """
        names = {name for key in keys if (name := schedule_of(key)) is not None}
        if not names:
            return set()
        found = self.schedules.find({"_id": {"$in": [*names]}}, {"next_run_at": True})
        return {slot_key(one["_id"], int(one["next_run_at"])) for one in found}


def _batch_of(row: Document) -> str | None:
    """Return the batch that a job is a member of, or a callback."""
    key = row.get("unique_key") or ""
    return key.split(":")[1] if key.startswith("batch:") else row.get("batch_id")


def _is_own_since(moment: Moment, row: Document) -> bool:
    """Whether the queue enqueued a job by itself, and it ended at that moment or later."""
    return keeps_key(row.get("unique_key")) and row["updated_at"] >= moment
