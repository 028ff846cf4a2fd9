"""What keeps a cancelled job from beginning again (W8)."""

from __future__ import annotations

import typing as t

from pymongo import UpdateOne

from ..job import DEAD, RUNNING, Document, Job
from .documents import changed, freed_key, held_by, update_of, with_entry

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Rows

NOT_ASKED: Document = {"cancel_requested_at": None}
"""Matches a job whose end nobody asked for. Every write that puts one back has it (B12)."""

ASKED: Document = {"cancel_requested_at": {"$ne": None}}

NEVER_BEGUN = "The job was cancelled before it was begun."


class Back(t.NamedTuple):
    """What a hand-back came to.

    :param returned: How many jobs wait again.
    :param cancelled: Those that are dead instead, as they are now: somebody had cancelled them.
    """

    returned: int
    cancelled: list[Job]


def is_asked(row: Mapping[str, t.Any]) -> bool:
    """Whether somebody asked for the end of a job."""
    return row.get("cancel_requested_at") is not None


def buried(row: Document, now: Moment) -> Document:
    """Return the update that makes a job dead as cancelled which waits, or was not begun."""
    fields: Document = {
        "state": DEAD,
        "finished_at": now,
        "updated_at": now,
        "dead_reason": "cancelled",
        "error_message": NEVER_BEGUN,
        "error_stack": None,
        "history": with_entry(row, at=now, message=NEVER_BEGUN),
    }
    if row["state"] == RUNNING:
        # As if it had not been claimed.
        fields |= dict.fromkeys(("claimed_at", "claimed_by", "heartbeat_at", "started_at"))
        fields["attempts"] = row["attempts"] - 1
    return update_of(fields, [*freed_key(row), "claim_token"])


def bury_asked(
    jobs: Collection[Document], held: Document, now: Moment, rows: Rows | None = None
) -> list[Job]:
    """Bury the cancelled ones among running jobs that no thread has begun.

    :param held: Matches the running jobs.
    :return: Those that this call has buried, as they are now.
    """
    found = list(jobs.find(held | ASKED))
    if not found:
        return []
    updates = {row["_id"]: buried(row, now) for row in found}
    written = jobs.bulk_write(
        [UpdateOne(held_by(Job(row)), updates[row["_id"]]) for row in found], ordered=False
    )
    found = those_written(jobs, found, updates, written.modified_count)
    return [Job(changed(row, updates[row["_id"]]), rows) for row in found]


def those_written(
    jobs: Collection[Document],
    rows: list[Document],
    updates: Mapping[str, Document],
    count: int | None = None,
) -> list[Document]:
    """Return the rows that so many updates have changed: not those that had changed before.

    :param count: None where that is not known.
    """
    if count == len(rows):
        return rows
    if count == 0:
        # Another that did the same in the same millisecond has written the same.
        return []
    ids = [row["_id"] for row in rows]
    now = {row["_id"]: row.get("history") for row in jobs.find({"_id": {"$in": ids}}, ["history"])}
    return [row for row in rows if now.get(row["_id"]) == updates[row["_id"]]["$set"]["history"]]
