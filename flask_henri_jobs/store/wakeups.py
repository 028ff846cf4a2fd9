"""The wake-up collection: capped, rung with each insert, what idle runners sleep on (W3).

Nothing depends on it. A ring that is lost, or a collection that is missing, forbidden or of
another kind, is made up for by polling, and said once.
"""

from __future__ import annotations

import contextlib
import typing as t

import pymongo
from pymongo import WriteConcern
from pymongo.errors import CollectionInvalid, OperationFailure, PyMongoError

from ..clock import steady_seconds
from ..log import logger
from .connection import is_outage

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Document

SIZE_BYTES = 256 * 1024
MOST_RINGS = 1000
"""How many the collection holds; a listener that falls further behind has missed some."""

BURST_SECONDS = 0.02
"""A process rings once in this time for one queue: who is woken looks for longer than that."""

CHECK_SECONDS = 60.0
"""After this a ring is acknowledged again, and the collection looked at."""

SILENT_SECONDS = 10.0
"""After this a process that rings in vain tries whether it still does."""

RING_SECONDS = 0.5
"""No ring takes longer: it follows an enqueue that has succeeded."""

MOST_QUEUES_KNOWN = 10_000

_EXISTS = 48


RingFor: t.TypeAlias = "Callable[[Iterable[Mapping[str, t.Any]]], None]"
"""Wakes runners for jobs that wait now, by their rows; it does not raise."""


def no_ring(rows: object) -> None:
    """Leave it to polling."""


class NotCapped(Exception):
    """The wake-up collection is an ordinary one, which would grow for ever."""


class Wakeups:
    """One process's way to wake runners, and those who wait for a job's end.

    :param rings: The collection.
    :param now: The server's time.
    :param may_make: Whether this process makes and mends the collection.
    """

    def __init__(
        self,
        rings: Collection[Document],
        now: Callable[[], Moment],
        *,
        may_make: bool = True,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self.rings = rings
        self.may_make = may_make
        self._now = now
        self._steady = steady
        self._unacknowledged = rings.with_options(write_concern=WriteConcern(w=0))
        self._acknowledged = rings.with_options(write_concern=WriteConcern(w=1))
        self._rung: dict[str, tuple[float, Moment]] = {}
        self._check_at = 0.0
        self._is_silent = False
        self._told: set[str] = set()

    def install(self) -> list[str]:
        """See to it that the collection is there, is capped, and is not empty.

        :return: Its name, where it was made.
        """
        try:
            return self._install()
        except OperationFailure as error:
            if is_outage(error):
                raise
            self.tell_once(error)
            return []

    def ring(self, queue: str, run_at: Moment | None = None) -> None:
        """Wake the runners of a queue at a moment, or now. It never raises and waits for nobody.

        A runner that was woken looks for longer than one burst: what is rung for within it is
        seen all the same.
        """
        now = self._now()
        due = now if run_at is None else max(run_at, now)
        if self._is_news(queue, due):
            self._send({"queue": queue, "run_at": due})

    def ring_ahead(self, row: Mapping[str, t.Any]) -> None:
        """Wake the runners of a job that is about to be stored, unless it is not due yet.

        While they wake, the insert takes effect and is on its way to the journal. One that comes
        too early looks again, as after any ring; the ring after the insert sees to the rest, where
        that has taken for longer than a burst.
        """
        # What waits for an answer is left to the ring after the insert. A key may be held, and
        # then there is nothing to wake anybody for.
        waits_for_none = self._steady() < self._check_at and row.get("unique_key") is None
        if waits_for_none and row["run_at"] <= self._now():
            self.ring(row["queue"])

    def ring_for(self, rows: Iterable[Mapping[str, t.Any]]) -> None:
        """Wake the runners of each queue that has jobs among these, when the first is due."""
        soonest: dict[str, Moment] = {}
        # Most of them are alike.
        for queue, run_at in {(row["queue"], row["run_at"]) for row in rows}:
            soonest[queue] = min(run_at, soonest.get(queue, run_at))
        for queue, moment in soonest.items():
            self.ring(queue, int(moment))

    def await_end(self, job_id: str) -> None:
        """Ask whoever ends a job to ring when it has."""
        self._send({"awaited": job_id, "at": self._now()})

    def ended(self, job_ids: list[str]) -> None:
        """Wake those who wait for the end of these jobs."""
        self._send({"ended": job_ids})

    def cancelled(self) -> None:
        """Have every runner look whether a job that it performs is cancelled (W8)."""
        self._send({"cancelled": True})

    def tell_once(self, problem: Exception) -> None:
        """Say what is wrong with the collection, each thing once a process."""
        what = _told(problem)
        if what not in self._told:
            self._told.add(what)
            logger.warning(
                "%s: %s. Jobs are found by polling, every HENRI_JOBS_POLL_INTERVAL.",
                self.rings.full_name,
                what,
            )

    def _install(self) -> list[str]:
        made: list[str] = []
        # Again where another process rings or makes it in between.
        for _ in range(3):
            is_capped = self._is_capped()
            if is_capped is False:
                self.rings.drop()
            elif is_capped:
                if self.rings.find_one({}, {"_id": True}) is None:
                    # The cursor of an empty capped collection is dead at once.
                    self._acknowledged.insert_one({"made": True})
                break
            with contextlib.suppress(CollectionInvalid):
                self._make()
                made = [self.rings.name]
        return made

    def _make(self) -> None:
        try:
            self.rings.database.create_collection(
                self.rings.name, capped=True, size=SIZE_BYTES, max=MOST_RINGS
            )
        except OperationFailure as error:
            if error.code != _EXISTS:
                raise

    def _is_capped(self) -> bool | None:
        """Return whether the collection is capped; None where there is none."""
        found = list(self.rings.database.list_collections(filter={"name": self.rings.name}))
        return bool(found[0]["options"].get("capped", False)) if found else None

    def _is_news(self, queue: str, due: Moment) -> bool:
        """Whether a ring tells runners more than the last one for the same queue."""
        at = self._steady()
        last_at, last_due = self._rung.get(queue, (0.0, 0))
        burst = BURST_SECONDS * 1000
        if at - last_at < BURST_SECONDS and last_due <= due < last_due + burst:
            return False
        if len(self._rung) >= MOST_QUEUES_KNOWN:
            self._rung.clear()
        self._rung[queue] = (at, due)
        return True

    def _send(self, ring: Document) -> None:
        try:
            with pymongo.timeout(RING_SECONDS):
                if self._steady() >= self._check_at:
                    self._check(ring)
                elif not self._is_silent:
                    # No reply is waited for: polling makes up for a ring that is lost.
                    self._unacknowledged.insert_one(ring)
        except (PyMongoError, NotCapped) as problem:
            if not (isinstance(problem, PyMongoError) and is_outage(problem)):
                self.tell_once(problem)

    def _check(self, ring: Document) -> None:
        """Ring with an acknowledgement, which alone tells forbidden from working."""
        self._is_silent = True
        self._check_at = self._steady() + SILENT_SECONDS
        is_capped = self._is_capped()
        if is_capped is None and self.may_make:
            self._install()
        elif not is_capped:
            # A ring into a collection that is missing would make an ordinary one.
            raise NotCapped
        self._acknowledged.insert_one(ring)
        self._is_silent = False
        self._check_at = self._steady() + CHECK_SECONDS


def _told(problem: Exception) -> str:
    match problem:
        case NotCapped():
            return "it is not there as a capped collection; 'flask jobs install' makes it"
        case OperationFailure(code=13):
            return "the database user may not use it"
        case _:
            return str(problem).split(", full error")[0]
