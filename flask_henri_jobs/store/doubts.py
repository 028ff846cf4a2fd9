"""Claims whose replies were lost: what they took is looked for, and given back (A5)."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from pymongo.errors import PyMongoError

from ..clock import steady_seconds
from ..job import RUNNING, Document, Job, Rows
from .candidates import CLAIM
from .connection import answering
from .documents import IN_ORDER

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo.collection import Collection

    from .permits import Permits

CLAIM_SECONDS = 5.0
"""A claim takes effect within this time or never: the server is told the limit."""


@dataclass(slots=True)
class Doubt:
    """A claim that may have taken effect, and may still until the deadline."""

    token: str
    until: float
    found: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Doubts:
    """One runner's claims of which it is not known what they took.

    However many there are, they cost the same round trips, and one that fails undoes nothing:
    where each command has its own chance to fail, they come to an end all the same.
    """

    jobs: Collection[Document]
    permits: Permits
    rows: Rows | None = None
    steady: Callable[[], float] = steady_seconds
    open: list[Doubt] = field(default_factory=list)

    @contextlib.contextmanager
    def about(self, token: str) -> Iterator[None]:
        """Remember the token of a claim that fails within the block."""
        try:
            yield
        except PyMongoError:
            self.open.append(Doubt(token, self.steady() + 2 * CLAIM_SECONDS))
            raise

    def late(self) -> list[Job]:
        """Return what such claims took that was not found yet, each job once.

        The permits of those that cannot take effect any more are given back, but for those jobs.
        """
        if not self.open:
            return []
        # What could still take effect as this was read may be seen by the next look only.
        now = self.steady()
        with answering("a claim"):
            jobs = self._taken()
        self._end([doubt for doubt in self.open if doubt.until < now])
        return jobs

    def _taken(self) -> list[Job]:
        claims = [{"claim_token": doubt.token, "_id": {"$nin": doubt.found}} for doubt in self.open]
        taken = {"state": RUNNING, "$or": claims}
        rows = list(self.jobs.find(taken, sort=IN_ORDER, hint=CLAIM.name))
        permits = self.permits.of_tokens({row["claim_token"] for row in rows}) if rows else {}
        # Only now: had one of the two reads failed, nobody would have what the other found.
        for doubt in self.open:
            doubt.found += [row["_id"] for row in rows if row["claim_token"] == doubt.token]
        return [
            Job(row, self.rows, permit=permits.get((row["claim_token"], row["_id"])))
            for row in rows
        ]

    def _end(self, over: list[Doubt]) -> None:
        self.permits.release_besides({doubt.token: doubt.found for doubt in over})
        for doubt in over:
            self.open.remove(doubt)
