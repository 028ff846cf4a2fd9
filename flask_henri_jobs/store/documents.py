"""How a job is stored: its fields as the henri framework has them, and the named filters."""

from __future__ import annotations

import json
import math
import typing as t

from ..job import PENDING, RUNNING, Document, Job, entries_of, keeps_key

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..clock import Moment

MOST_HISTORY = 20
MOST_HISTORY_BYTES = 512
"""Of the message of one entry."""

IN_ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]
"""The order in which jobs are taken (Q2)."""

ANY_PRIORITY: Document = {"$gt": -math.inf}
"""Every number. A job that some other program left without one has no place in the order."""


def new_row(
    *,
    id: str,  # noqa: A002 - the attribute's name
    name: str,
    args: str,
    now: Moment,
    run_at: Moment,
    queue: str,
    priority: int,
    max_attempts: int,
    timeout_ms: int | None = None,
    **when_used: t.Any,
) -> Document:
    """Return the document of a new job.

    :param when_used: Fields that are absent, not null, when unused: ``unique_key``,
        ``concurrency_key``, ``batch_id``, ``tenant``, ``expires_at``, ``headers``, ``tags``,
        ``redact``.
    """
    row: Document = {
        "_id": id,
        "name": name,
        "queue": queue,
        "state": PENDING,
        "priority": priority,
        "run_at": run_at,
        "created_at": now,
        "updated_at": now,
        "started_at": None,
        "finished_at": None,
        "claimed_at": None,
        "claimed_by": None,
        "claim_token": None,
        "heartbeat_at": None,
        "attempts": 0,
        "max_attempts": max_attempts,
        "timeout_ms": timeout_ms,
        "duration_ms": None,
        "args": args,
        "error_message": None,
        "error_stack": None,
        "history": "[]",
    }
    row.update((key, value) for key, value in when_used.items() if value is not None)
    return row


def held_by(job: Job) -> Document:
    """Match the job while this claim of it still stands (Q3)."""
    return {"_id": job.row["_id"], "claim_token": job.row["claim_token"], "state": RUNNING}


def is_due(now: Moment) -> Document:
    """Match the jobs that wait and may be taken."""
    return {"state": PENDING, "run_at": {"$lte": now}}


def is_as_read(row: Mapping[str, t.Any]) -> Document:
    """Match a waiting job only while it is what was read: not replaced, edited or taken since.

    A job that was claimed, failed and put back in between is pending again, with other attempts;
    one whose arguments were replaced has another revision (A1).
    """
    return {
        "state": PENDING,
        "attempts": row["attempts"],
        # Null matches a job that has none: nobody ever changed it.
        "revision": row.get("revision"),
    }


def with_entry(
    row: Mapping[str, t.Any],
    *,
    at: Moment,
    message: str,
    duration: int | None = None,
) -> str:
    """Return a job's history with one entry more about its running attempt, the newest 20."""
    entries = [*history_of(row), _entry(row, at=at, message=message, duration=duration)]
    return json.dumps(entries[-MOST_HISTORY:], ensure_ascii=False, separators=(",", ":"))


def history_of(row: Mapping[str, t.Any]) -> list[Document]:
    """Return the entries of a job's history, as they are stored."""
    return entries_of(row.get("history"))


def _entry(row: Mapping[str, t.Any], *, at: Moment, message: str, duration: int | None) -> Document:
    return {
        "at": at,
        "attempt": int(row["attempts"]),
        "duration": duration,
        "message": message.encode()[:MOST_HISTORY_BYTES].decode(errors="ignore"),
        "runner": row.get("claimed_by"),
    }


def handed_back(now: Moment, run_at: Moment | None = None) -> Document:
    """Return the update that puts a job back as if it had not been claimed.

    :param run_at: When it is due; None keeps its place.
    """
    fields: Document = {
        "state": PENDING,
        "claimed_at": None,
        "claimed_by": None,
        "heartbeat_at": None,
        "started_at": None,
        "updated_at": now,
    }
    if run_at is not None:
        fields["run_at"] = run_at
    return {"$set": fields, "$inc": {"attempts": -1}, "$unset": {"claim_token": ""}}


def freed_key(row: Mapping[str, t.Any]) -> Document:
    """Return the ``$unset`` of the unique key that a job gives up when it ends (Q7)."""
    key = row.get("unique_key")
    return {"unique_key": ""} if key is not None and not keeps_key(key) else {}


def one_batch(at_most: int) -> dict[str, int]:
    """Return the options of a ``find`` of so many documents and 16 MiB, arguments being large.

    It leaves no cursor behind to be closed. The server cuts a single batch at 101 documents where
    its size is not given (measured).
    """
    return {"limit": -at_most, "batch_size": at_most}


def update_of(fields: Document, removed: Iterable[str] | Document = ()) -> Document:
    """Return an update that sets fields and removes others."""
    update: Document = {"$set": fields}
    if removed:
        update["$unset"] = dict.fromkeys(removed, "")
    return update


def changed(row: Mapping[str, t.Any], update: Document) -> Document:
    """Return a row as an update of ``update_of`` leaves it."""
    removed = update.get("$unset", {})
    kept = {key: value for key, value in row.items() if key not in removed}
    return {**kept, **update["$set"]}
