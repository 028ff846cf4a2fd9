"""Going through many jobs, a bounded look at a time."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from bson import MaxKey, MinKey

from .connection import answering
from .documents import one_batch
from .filters import RECENT, TENANT

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Document
    from .indexes import Index

Place: t.TypeAlias = tuple[t.Any, t.Any]
"""Where a walk stands: the ``updated_at`` and the id of the job that it saw last."""

STEP = 1000
MOST_EXAMINED = 20_000
"""Documents that one look reads, however rare what it looks for (B5)."""

NEWEST: Place = (MaxKey(), MinKey())
OLDEST: Place = (MinKey(), MaxKey())


def place_of(row: Mapping[str, t.Any]) -> Place:
    """Return the place at which a walk has just passed a job."""
    return row.get("updated_at"), row["_id"]


def older_than(moment: Moment) -> Place:
    """Return the place that parts the jobs that changed before a moment from the others."""
    return moment, MaxKey()


@dataclass(frozen=True, slots=True)
class Walk:
    """Goes through the jobs of one state, from the one that changed longest ago.

    What was passed may be changed or deleted on the way: no place is lost by it.

    :param tenant: Only the jobs of this tenant.
    """

    jobs: Collection[Document]
    state: str
    tenant: str | None = None

    def steps(self, which: Document) -> Iterator[list[Document]]:
        """Yield the jobs that fit, up to a thousand at a time and 16 MiB."""
        behind = OLDEST
        while behind is not NEWEST:
            until = self._further(behind)
            while rows := self.look(which, behind=behind, until=until):
                yield rows
                behind = place_of(rows[-1])
            behind = until

    def look(
        self,
        which: Document,
        *,
        behind: Place = OLDEST,
        until: Place = NEWEST,
        at_most: int = STEP,
        fields: Document | None = None,
    ) -> list[Document]:
        """Return the first jobs that fit, in the order of the walk.

        :param behind: A place; nothing up to it is looked at.
        :param until: The last place to look at.
        """
        if not _comes_first(behind, until):
            return []
        with answering("a look through the jobs"):
            return list(self._find(which, behind, until, fields, **one_batch(at_most)))

    def _further(self, behind: Place) -> Place:
        """Return the place that many jobs further on, by the index alone."""
        keys: Document = {"updated_at": True}
        with answering("a look through the jobs"):
            found = self._find({}, behind, NEWEST, keys, skip=MOST_EXAMINED - 1, **one_batch(1))
            return next((place_of(row) for row in found), NEWEST)

    def _find(
        self,
        which: Document,
        behind: Place,
        until: Place,
        fields: Document | None,
        **bounds: int,
    ) -> Iterator[Document]:
        # The index runs from new to old, and is read against its direction. ``max`` is exclusive.
        return self.jobs.find(
            which,
            fields,
            hint=self._index.name,
            min=self._key(until),
            max=self._key(behind),
            sort=[(key, -direction) for key, direction in self._index.keys.items()],
            **bounds,
        )

    @property
    def _index(self) -> Index:
        return RECENT if self.tenant is None else TENANT

    def _key(self, place: Place) -> Document:
        values = {"tenant": self.tenant, "state": self.state}
        values |= {"updated_at": place[0], "_id": place[1]}
        return {key: values[key] for key in self._index.keys}


def _comes_first(place: Place, other: Place) -> bool:
    """Whether a walk comes to a place before it comes to another."""
    # Ids run against the walk.
    return bool(place[0] < other[0] or (place[0] == other[0] and place[1] > other[1]))
