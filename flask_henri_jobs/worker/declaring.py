"""Keeping in the database what this process declares, and forgetting what none does (S3)."""

from __future__ import annotations

import typing as t

from ..durations import millis, to_text
from ..log import logger
from ..schedule_entry import FORGOTTEN_AFTER, new_entry

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from ..clock import Clock, Moment
    from ..job import Document
    from ..schedule import Schedule
    from ..store.schedules import Schedules

DECLARED_EVERY_MS = 30_000
"""Between two declarations of a process: six of them until what it declared is forgotten."""


class Declaring:
    """Says again and again which schedules this process declares.

    During a rolling deploy old and new processes declare different ones side by side. Neither
    deletes the other's: a schedule of their origin is deleted when no process has declared it for
    three minutes, by a process that has watched for so long. Where both declare one name with
    different moments, the process that started last decides; when no process has declared those
    moments for three minutes, the other's are taken again.
    """

    def __init__(
        self,
        schedules: Mapping[str, Schedule],
        stored: Schedules,
        clock: Clock,
        origin: str,
    ) -> None:
        self._schedules = schedules
        self._stored = stored
        self._clock = clock
        self._origin = origin
        self._declared_at: Moment | None = None
        self._told: set[str] = set()

    def keep_up(self) -> None:
        """Declare them, if that was not done within half a minute."""
        now = self._clock.now()
        if self._declared_at is not None and now < self._declared_at + DECLARED_EVERY_MS:
            return
        self._declare(is_new=self._declared_at is None)
        self._forget()
        self._declared_at = now

    def _declare(self, *, is_new: bool) -> None:
        stamped = self._stored.stamp(self._schedules.values(), self._origin)
        if stamped == len(self._schedules):
            return
        rows = {row["_id"]: row for row in self._stored.all()}
        for name, schedule in self._schedules.items():
            if name not in rows:
                self._stored.add(new_entry(schedule, self._origin, self._clock.now()))
            elif rows[name].get("origin") not in (None, self._origin):
                self._tell_of_another(rows[name])
            elif schedule.differs_from(rows[name].get("spec"), rows[name].get("timezone")):
                self._move(schedule, rows[name], is_new=is_new)

    def _tell_of_another(self, row: Document) -> None:
        if row["_id"] not in self._told:
            self._told.add(row["_id"])
            logger.warning(
                "The schedule %r is not fired as declared here: its entry is of %r."
                " Give one of the two another name, or remove the entry.",
                row["_id"],
                row["origin"],
            )

    def _move(self, schedule: Schedule, row: Document, *, is_new: bool) -> None:
        now = self._clock.now()
        if is_new or self._is_forsaken(row):
            self._stored.redefine(row, schedule, next_run_at=schedule.next_after(now))

    def _is_forsaken(self, row: Document) -> bool:
        """Whether no process has declared an entry of ours as it stands for three minutes."""
        declared_at = row.get("declared_at")
        if declared_at is None or self._clock.calm_for() < FORGOTTEN_AFTER:
            return False
        return bool(declared_at < self._clock.now() - millis(FORGOTTEN_AFTER))

    def _forget(self) -> None:
        # After a long downtime every entry looks forsaken: the processes that declare the others
        # have as long as this one has been here to come back. The same holds after the server's
        # clock was changed.
        if self._clock.calm_for() < FORGOTTEN_AFTER:
            return
        before = self._clock.now() - millis(FORGOTTEN_AFTER)
        for name in self._stored.forget_others(self._origin, self._schedules.keys(), before):
            logger.info(
                "Forgot the schedule %r: no process of %r has declared it for %s.",
                name,
                self._origin,
                to_text(FORGOTTEN_AFTER),
            )
