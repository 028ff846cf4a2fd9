"""The ``pauses`` collection: which queues, tasks and tenants are paused (X4)."""

from __future__ import annotations

import threading
import typing as t
from dataclasses import dataclass, field

from pymongo import ReturnDocument

from ..clock import Moment, steady_seconds, to_datetime
from ..pause import KINDS, NOTHING_PAUSED, Pause, Paused
from .connection import answering

if t.TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pymongo.collection import Collection

    from ..job import Document

KNOWN_SECONDS = 0.5
"""How old the knowledge may be by which a job begins: half of what is promised."""

RESUMED_SECONDS = 0.05
"""How old it may be where something is paused and somebody waits for it to be resumed."""

PROMISED_SECONDS = 1.0
MOST_TRIES = 3


@dataclass(slots=True)
class Pauses:
    """Pauses and resumes, and knows what is paused.

    Each process reads the collection, which is nearly always empty, twice a second at most while
    it takes jobs. What it goes by was true less than a second ago, so no job of anything begins
    more than a second after that was paused.
    """

    pauses: Collection[Document]
    now: Callable[[], Moment]
    steady: Callable[[], float] = steady_seconds
    _paused: Paused = NOTHING_PAUSED
    _known_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, name: str) -> Pause:
        """Pause something, unless it is paused already. Return the pause that stands."""
        with answering("a pause"):
            row = self.pauses.find_one_and_update(
                {"_id": _id(kind, name)},
                {"$setOnInsert": {"kind": kind, "name": name, "paused_at": self.now()}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        self.look_again()
        assert row is not None
        return _to_pause(row)

    def remove(self, kind: str, name: str) -> Pause | None:
        """Resume something. Return the pause that ended; None where there was none."""
        with answering("a resume"):
            row = self.pauses.find_one_and_delete({"_id": _id(kind, name)})
        self.look_again()
        return None if row is None else _to_pause(row)

    def look_again(self) -> None:
        """Forget what is known, so that the next question is asked of the database."""
        self._known_at = float("-inf")

    def all(self) -> list[Pause]:
        """Return what is paused: queues, then tasks, then tenants, by name."""
        with answering("the pauses"):
            pauses = [_to_pause(row) for row in self.pauses.find({"kind": {"$in": KINDS}})]
        return sorted(pauses, key=lambda pause: (KINDS.index(pause.kind), pause.name))

    def for_a_start(self) -> Paused:
        """Return what is paused, by which a job may begin now."""
        paused = self._known_within(KNOWN_SECONDS)
        # The answer may have been long in coming; a database that is never faster than this
        # cannot be told anything in that time either.
        tries = 1
        while self._age >= PROMISED_SECONDS and tries < MOST_TRIES:
            paused = self._known_within(KNOWN_SECONDS)
            tries += 1
        return paused

    def for_a_claim(self, *, rung: bool = False) -> Paused:
        """Return what is paused. What was resumed is known sooner than what was paused.

        :param rung: Whether the runner was woken, by a resume perhaps.
        """
        if self._paused:
            return self._known_within(0.0 if rung else RESUMED_SECONDS)
        return self._known_within(KNOWN_SECONDS)

    @property
    def _age(self) -> float:
        return self.steady() - self._known_at

    def _known_within(self, seconds: float) -> Paused:
        if self._age >= seconds:
            with self._lock:
                # Another thread may have asked while this one waited for its turn.
                if self._age >= seconds:
                    asked_at = self.steady()
                    self._paused = Paused.of(self.all())
                    self._known_at = asked_at
        return self._paused


def not_held(paused: Paused) -> Document:
    """Match the jobs that no paused task or tenant holds back."""
    names = {"name": sorted(paused.tasks), "tenant": sorted(paused.tenants)}
    return {field: {"$nin": held} for field, held in names.items() if held}


def _id(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def _to_pause(row: Document) -> Pause:
    return Pause(
        kind=row["kind"],
        name=row["name"],
        paused_at=t.cast("datetime", to_datetime(row["paused_at"])),
    )
