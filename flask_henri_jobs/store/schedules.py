"""The ``schedules`` collection: what recurs, and which slot comes next (S1, S3)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from ..schedule_entry import OPTIONS, definition_of
from .connection import answering
from .documents import update_of

if t.TYPE_CHECKING:
    from collections.abc import Callable, Collection as AnyCollection, Iterable, Mapping

    from pymongo.collection import Collection

    from ..clock import Moment
    from ..job import Document
    from ..schedule import Schedule

Row: t.TypeAlias = "Mapping[str, t.Any]"


@dataclass(frozen=True, slots=True)
class Schedules:
    """Every schedule of the queue, whoever declares it.

    It has no index but that on ``_id``: there are few, and all are read when they are looked at.
    """

    rows: Collection[Document]
    now: Callable[[], Moment]

    def find(self, name: str) -> Document | None:
        """Return an entry, or None."""
        with answering("the schedules"):
            return self.rows.find_one({"_id": name})

    def all(self) -> list[Document]:
        """Return every entry, by name."""
        with answering("the schedules"):
            return [*self.rows.find().sort("_id")]

    def add(self, row: Document) -> Document:
        """Store an entry, unless there is one of its name. Return what stands then."""
        with answering("the schedules"):
            while True:
                try:
                    self.rows.insert_one(row)
                except DuplicateKeyError:
                    stored = self.rows.find_one({"_id": row["_id"]})
                    # It may have been removed between our refused insert and our read.
                    if stored is not None:
                        return stored
                else:
                    return row

    def due(self, until: Moment) -> list[Document]:
        """Return the entries whose next slot comes by then and that are not paused, in order."""
        which = {"next_run_at": {"$lte": until}, "paused": {"$ne": True}}
        with answering("the schedules"):
            return [*self.rows.find(which).sort("next_run_at")]

    def advance(self, row: Row, *, next_run_at: Moment, token: str, ran: bool) -> bool:
        """Move a schedule on from the slot that was read, if nobody did so before (S1).

        :param ran: Whether the slot has a job; otherwise the last slot that had one stays noted.
        :return: Whether it was this call that moved it.
        """
        moved = {"next_run_at": next_run_at, "token": token, "updated_at": self.now()}
        if ran:
            moved["last_run_at"] = row["next_run_at"]
        with answering("the schedules"):
            slot = {**_is_as_read(row), "next_run_at": row["next_run_at"]}
            return self.rows.update_one(slot, {"$set": moved}).modified_count == 1

    def redefine(self, row: Row, schedule: Schedule, *, next_run_at: Moment) -> bool:
        """Give an entry another definition; one with other moments is moved, and not run (S3).

        :return: Whether it was still as it was read.
        """
        now = self.now()
        fields = definition_of(schedule, row.get("origin"))
        removed = [name for name in OPTIONS if name not in fields]
        fields["updated_at"] = now
        if schedule.differs_from(row.get("spec"), row.get("timezone")):
            fields["next_run_at"] = next_run_at
        if row.get("declared_at") is not None:
            fields["declared_at"] = now
        with answering("the schedules"):
            redefined = self.rows.update_one(_is_as_read(row), update_of(fields, removed))
            return redefined.matched_count == 1

    def stamp(self, declared: Iterable[Schedule], origin: str) -> int:
        """Note that a process declares these schedules now. Return how many stand as declared."""
        stamps = [
            UpdateOne(
                {
                    "_id": schedule.name,
                    "origin": origin,
                    "spec": schedule.spec,
                    "timezone": schedule.timezone,
                },
                {"$set": {"declared_at": self.now(), "job": schedule.task}},
            )
            for schedule in declared
        ]
        if not stamps:
            return 0
        with answering("the schedules"):
            return self.rows.bulk_write(stamps, ordered=False).matched_count

    def forget_others(
        self, origin: str, names: AnyCollection[str], declared_before: Moment
    ) -> list[str]:
        """Delete what an origin declared and no process of it has since a moment (S3).

        :param names: What the caller declares itself, and is never deleted.
        :return: The names that are gone.
        """
        which = {"_id": {"$nin": [*names]}, "origin": origin, **_is_not_declared(declared_before)}
        with answering("the schedules"):
            found = [row["_id"] for row in self.rows.find(which, {"_id": True})]
            return [
                name
                for name in found
                # Asked again of each: it may have been declared in the meantime.
                if self.rows.delete_one({**which, "_id": name}).deleted_count
            ]

    def pause(self, name: str) -> bool:
        """Hold a schedule. Return whether there is one."""
        with answering("the schedules"):
            held = {"$set": {"paused": True, "updated_at": self.now()}}
            return self.rows.update_one({"_id": name}, held).matched_count == 1

    def resume(self, row: Row, *, next_run_at: Moment) -> bool:
        """Let a paused schedule go on, from a moment: what it missed is left out.

        :return: Whether it was paused, and as it was read.
        """
        fields = {"next_run_at": next_run_at, "updated_at": self.now()}
        with answering("the schedules"):
            which = {**_is_as_read(row), "paused": True}
            return self.rows.update_one(which, update_of(fields, ["paused"])).matched_count == 1

    def note_extra_run(self, name: str, at: Moment) -> None:
        """Note when a schedule was run by hand, so that the next slot can wait for it (S7)."""
        with answering("the schedules"):
            self.rows.update_one({"_id": name}, {"$set": {"extra_run_at": at}})

    def remove(self, name: str, declared_before: Moment) -> bool:
        """Delete a schedule, unless a process declares it since a moment. Return whether it did."""
        with answering("the schedules"):
            which = {"_id": name, **_is_not_declared(declared_before)}
            return self.rows.delete_one(which).deleted_count == 1


def _is_as_read(row: Row) -> Document:
    """Match an entry only while it is due at the same moments as the one that was read."""
    # Null matches what is absent, as all fields of our own are in a henri app's entry.
    return {
        "_id": row["_id"],
        "spec": row.get("spec"),
        "timezone": row.get("timezone"),
        "origin": row.get("origin"),
    }


def _is_not_declared(since: Moment) -> Document:
    return {"declared_at": {"$not": {"$gte": since}}}
