"""What becomes of a new job whose id or unique key another job has (Q7)."""

from __future__ import annotations

import typing as t

from ..errors import UniqueKeyTaken
from ..job import PENDING, Document
from ..redaction import concealed_row
from .documents import update_of

if t.TYPE_CHECKING:
    from ..clock import Moment

OnConflict: t.TypeAlias = t.Literal["return", "raise", "replace"]


def refuse_conflict(holder: Document, row: Document, taken: str, on_conflict: OnConflict) -> None:
    """Return where the holder may be handed to whoever wanted to store the row.

    :param taken: The field that both have: ``_id`` or ``unique_key``.
    :raises UniqueKeyTaken: The key is held by a job of another task, or the key or the id by one
        of another tenant (T2); or by any, where ``on_conflict`` is ``"raise"``.
    """
    if not same_tenant(holder, row):
        raise UniqueKeyTaken(
            f"A job of another tenant has the {taken.strip('_').replace('_', ' ')}"
            f" {concealed_row(row)[taken]!r}.",
            hint="Let it begin with the tenant's name.",
        )
    if taken == "_id":
        return
    if holder["name"] != row["name"]:
        raise UniqueKeyTaken(
            f"The unique key {_key_of(row)!r} is held by {_told(holder)}.",
            hint="Use a key that begins with the task's name.",
        )
    if on_conflict == "raise":
        raise UniqueKeyTaken(
            f"The unique key {_key_of(row)!r} is held by {_told(holder)}.",
            hint='Use on_conflict="return" to be handed that job.',
        )


def is_replaced(holder: Document, taken: str, on_conflict: OnConflict) -> bool:
    """Whether the holder is given the arguments of the row that it stands in the way of."""
    return taken != "_id" and on_conflict == "replace" and bool(holder["state"] == PENDING)


def replacement(row: Document, now: Moment) -> Document:
    """Return the update that gives a waiting job a new row's arguments and moment."""
    # The old moment's expiry does not bound the new one, nor do the old arguments' tags and
    # bucket belong to the new.
    of_them = ("expires_at", "tags", "concurrency_key")
    fields = {name: row[name] for name in ("args", "run_at", *of_them) if name in row}
    removed = [name for name in of_them if name not in row]
    # A runner that read the old arguments no longer matches the row (A1).
    return update_of(fields | {"updated_at": now}, removed) | {"$inc": {"revision": 1}}


def same_tenant(holder: Document, row: Document) -> bool:
    """Whether two jobs are of one tenant, or both of none."""
    return bool(holder.get("tenant") == row.get("tenant"))


def _key_of(row: Document) -> str:
    return str(concealed_row(row)["unique_key"])


def _told(job: Document) -> str:
    return f"job {job['_id']} of the task {job['name']}, which is {job['state']}"
