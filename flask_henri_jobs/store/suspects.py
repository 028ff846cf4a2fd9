"""The jobs that ran in a process that died: each is performed alone from then on (W6)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .connection import answering
from .documents import IN_ORDER, is_due, one_batch
from .indexes import Index

if t.TYPE_CHECKING:
    from collections.abc import Collection as Names, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Document

SUSPECT: Document = {"suspect": True}
"""What a recovery writes on a job. It stays: who killed a process may do it on each attempt."""

SUSPECTS = Index(
    "fhj_suspects",
    {"suspect": 1, "state": 1, "priority": 1, "run_at": 1, "_id": 1},
    {"partialFilterExpression": SUSPECT},
)
"""Empty as a rule, and kept for no other job: a look at it costs next to nothing."""

MOST_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Suspects:
    """Finds due suspects in their order (Q2)."""

    jobs: Collection[Document]

    INDEXES: t.ClassVar[tuple[Index, ...]] = (SUSPECTS,)

    def due(
        self,
        queues: Sequence[str],
        names: Names[str],
        now: Moment,
        *,
        not_of: Sequence[str] = (),
    ) -> list[Document]:
        """Return the next suspects.

        :param names: Of these tasks only: any other would end as unknown here.
        :param not_of: Tenants that are paused.
        """
        which: Document = {"queue": {"$in": list(queues)}, "name": {"$in": list(names)}}
        if not_of:
            which["tenant"] = {"$nin": list(not_of)}
        with answering("the suspects"):
            return list(
                self.jobs.find(
                    SUSPECT | is_due(now) | which,
                    sort=IN_ORDER,
                    hint=SUSPECTS.name,
                    **one_batch(MOST_AT_ONCE),
                )
            )
