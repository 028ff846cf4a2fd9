"""What can be shown of a job that some other program spoilt."""

from __future__ import annotations

import typing as t

from .job import Document, Field, Job

if t.TYPE_CHECKING:
    from collections.abc import Mapping


def readable(row: Mapping[str, t.Any]) -> Document:
    """Return a row as it is, but for the fields that cannot be read: these are None."""
    texts = {key: str(row.get(key, "")) for key in ("name", "queue")}
    if row.get("tenant") is not None:
        texts["tenant"] = str(row["tenant"])
    return {**row, **texts, **dict.fromkeys(unreadable(row))}


def unreadable(row: Mapping[str, t.Any]) -> list[str]:
    """Return the fields of a row that hold what no job has there."""
    keys = {field.key: None for field in _FIELDS if not field.can_read(row.get(field.key))}
    return list(keys)


_FIELDS = [field for field in vars(Job).values() if isinstance(field, Field)]
