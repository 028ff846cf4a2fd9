"""What selects jobs, and the index that serves it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..checks import checked_choice, checked_name
from ..errors import InvalidFilter
from ..job import DEAD, DEAD_REASONS, STATES
from .indexes import Index

if t.TYPE_CHECKING:
    from ..job import Document

RECENT = Index("fhj_recent", {"state": 1, "updated_at": -1, "_id": 1})
"""Serves lists, what is done to many jobs, and pruning (B5)."""

BATCH = Index(
    "fhj_batch",
    {"batch_id": 1, "state": 1},
    {"partialFilterExpression": {"batch_id": {"$type": "string"}}},
)
"""Serves the members of a batch."""

TENANT = Index(
    "fhj_tenant",
    {"tenant": 1, "state": 1, "updated_at": -1, "_id": 1},
    {"partialFilterExpression": {"tenant": {"$type": "string"}}},
)
"""Serves what :data:`RECENT` does, for one tenant."""

TAGS = Index(
    "fhj_tags",
    {"tags": 1, "state": 1, "updated_at": -1, "_id": 1},
    {"partialFilterExpression": {"tags": {"$exists": True}}},
)
"""Serves what :data:`RECENT` does, for one tag; a job without tags is not in it.

Partial on being there, and not on text as the others are: of two conditions on an array's
elements the planner may take the wrong one for the bounds.
"""

ALARMING = ("failed", "lost", "timeout")
"""Why jobs are dead that somebody should look at; the others were meant to end (Q5)."""


def is_text(value: str) -> Document:
    """Match a field by its text, in such a way that an index partial on text serves it.

    The planner does not conclude from the value that it is text: without the type it leaves the
    index out, and where it is told to use it, reads it from end to end (measured, 6.0.5).
    """
    return {"$eq": value, "$type": "string"}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Selects the jobs that fit everything that is given.

    :param reasons: Dead for one of these reasons; empty for any, and for jobs that are not dead.
    """

    state: str | None = None
    queue: str | None = None
    name: str | None = None
    tenant: str | None = None
    batch: str | None = None
    tag: str | None = None
    reasons: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, *, state: object = None, reason: object = None, **given: t.Unpack[_Names]
    ) -> t.Self:
        """Return the filter that a caller's values stand for; None is not given.

        :raises InvalidFilter: A value is not text, so that nothing but a value can ever reach
            the database (Q9); or it is no such state or reason.
        """
        which = cls(
            state=_choice(state, "state", STATES),
            queue=_name(given.get("queue"), "queue"),
            name=_name(given.get("name"), "name"),
            tenant=_name(given.get("tenant"), "tenant"),
            batch=_name(given.get("batch"), "batch"),
            tag=_name(given.get("tag"), "tag"),
        )
        if (one := _choice(reason, "reason", DEAD_REASONS)) is None:
            return which
        if which.state not in {None, DEAD}:
            raise InvalidFilter(
                f"reason is {one!r}, and state is {which.state!r}: only dead jobs have a reason.",
                hint="Leave one of the two out.",
            )
        return replace(which, reasons=(one,))

    @property
    def is_empty(self) -> bool:
        """Whether it selects every job."""
        return self == JobFilter()

    @property
    def states(self) -> tuple[str, ...]:
        """The states of the jobs that may fit."""
        if self.reasons:
            return (DEAD,)
        return STATES if self.state is None else (self.state,)

    def or_alarming(self) -> t.Self:
        """Return the same filter, which selects the alarming dead jobs where it names no reason."""
        return self if self.reasons else replace(self, reasons=ALARMING)

    @property
    def index(self) -> Index:
        """The index that serves this filter."""
        if self.batch is not None:
            return BATCH
        if self.tag is not None:
            return TAGS
        return RECENT if self.tenant is None else TENANT

    def to_query(self) -> Document:
        """Return the query that matches what is selected."""
        return self.served() | self.rest()

    def served(self) -> Document:
        """Return the part of the query that the index answers."""
        query: Document = {"state": self.states[0]}
        if len(self.states) > 1:
            query["state"] = {"$in": list(self.states)}
        if self.batch is not None:
            query["batch_id"] = is_text(self.batch)
        elif self.tag is not None:
            query["tags"] = self.tag
        elif self.tenant is not None:
            query["tenant"] = is_text(self.tenant)
        return query

    def rest(self) -> Document:
        """Return the part of the query for which a job's document must be read."""
        equal = {"queue": self.queue, "name": self.name}
        if self.index is not TENANT:
            equal["tenant"] = self.tenant
        if self.index is not TAGS:
            equal["tags"] = self.tag
        query: Document = {key: value for key, value in equal.items() if value is not None}
        if self.reasons:
            # A henri runner writes no reason: its jobs failed.
            absent = [None] if "failed" in self.reasons else []
            query["dead_reason"] = {"$in": [*self.reasons, *absent]}
        return query


class _Names(t.TypedDict, total=False):
    queue: object
    name: object
    tenant: object
    batch: object
    tag: object


def _name(value: object, where: str) -> str | None:
    return None if value is None else checked_name(value, where, error=InvalidFilter)


def _choice(value: object, where: str, choices: tuple[str, ...]) -> str | None:
    return None if value is None else checked_choice(value, where, choices, error=InvalidFilter)
