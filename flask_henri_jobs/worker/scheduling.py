"""Firing schedules: one job a slot, whoever comes first (S1)."""

from __future__ import annotations

import typing as t

from .. import signals
from ..declared import declared_schedules, overrides_of
from ..enqueueing import Enqueuer
from ..errors import HenriJobsError, StoreUnavailable, UniqueKeyTaken
from ..ids import new_token
from ..job import PENDING, RUNNING
from ..log import logger
from ..schedule_entry import RUNTIME, ScheduleEntry, origin_of
from ..signals import emit_safely
from .declaring import Declaring
from .loop import Loop

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from flask import Flask

    from ..clock import Moment
    from ..job import Document
    from ..registry import Registry
    from ..schedule import Schedule
    from ..settings import Settings
    from ..store import Store
    from .loop import Outages

LOOK_AHEAD_MS = 2000
"""How far a look reaches; the next look is at the nearest slot in it, or at its end.

So long it may take until a schedule is known that somebody adds, resumes or moves at run time.
"""


class Scheduling:
    """Enqueues the job of every slot that is due, and moves its schedule on.

    Every runner does so. The job is enqueued first, under the key of its slot, and the schedule
    moved on after it: of any number of runners, and after any crash between the two, one job is
    stored for a slot (S1).

    :param schedules: What this process declares, by name.
    :param origin: Whose declarations those are.
    """

    def __init__(
        self,
        app: Flask,
        tasks: Registry,
        schedules: Mapping[str, Schedule],
        origin: str,
        store: Store,
        enqueuer: Enqueuer,
        outages: Outages,
    ) -> None:
        self._app = app
        self._tasks = tasks
        self._schedules = schedules
        self._store = store
        self._origin = origin
        self._enqueuer = enqueuer
        self._declaring = Declaring(schedules, store.schedules, store.clock, origin)
        self._outages = outages
        self._told: set[tuple[str, str]] = set()
        self._unsound: set[str] = set()
        self._loop = Loop("henri-jobs-schedules", self.round)

    @classmethod
    def of(
        cls, app: Flask, tasks: Registry, store: Store, settings: Settings, outages: Outages
    ) -> t.Self:
        """Return what fires the schedules that an app's settings and tasks declare."""
        schedules = declared_schedules(settings, tasks)
        origin = origin_of(settings.app_name)
        return cls(app, tasks, schedules, origin, store, Enqueuer(settings, store), outages)

    def start(self) -> None:
        """Start the rounds."""
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """End them."""
        return self._loop.stop(timeout)

    def round(self) -> float:
        """Fire what is due. Return the seconds until something is, at most two."""
        now = self._store.clock.now()
        until = now + LOOK_AHEAD_MS
        with self._outages.asking(), self._app.app_context():
            self._declaring.keep_up()
            rows = self._store.schedules.due(until)
            # What a user's code raised for ends the round, and so comes last in the next (S6).
            rows.sort(key=lambda row: row["_id"] in self._unsound)
            slots = [self._seen_to(row, now) for row in rows]
        soonest = min(slot for slot in [until, *slots] if slot is not None)
        return max(0.0, (soonest - self._store.clock.now()) / 1000)

    def _seen_to(self, row: Document, now: Moment) -> Moment | None:
        """Fire a schedule if it is due. Return its next slot; None where that is not for us."""
        name = row["_id"]
        self._unsound.add(name)
        slot = None
        try:
            schedule = self._schedule_of(row)
            if schedule is not None:
                slot = self._slot_after(schedule, row, now)
        except StoreUnavailable:
            raise
        except HenriJobsError as error:
            self._tell_once(name, error)
        self._unsound.discard(name)
        return slot

    def _schedule_of(self, row: Document) -> Schedule | None:
        """Return the schedule behind an entry, or None where it is not this process's to fire.

        What another app or an older process declares is theirs, who alone know its arguments;
        what was added at run time is fired by every runner that knows its task.
        """
        if row.get("origin") == RUNTIME:
            return ScheduleEntry(row).schedule if str(row.get("job")) in self._tasks else None
        declared = self._schedules.get(row["_id"])
        if declared is None or row.get("origin") not in (None, self._origin):
            return None
        return None if declared.differs_from(row.get("spec"), row.get("timezone")) else declared

    def _slot_after(self, schedule: Schedule, row: Document, now: Moment) -> Moment:
        # A henri runner writes JavaScript numbers, which arrive as floats; the slot's key has none.
        due = int(row["next_run_at"])
        if due > now:
            return due
        ran = self._fire(schedule, row, due, now)
        next_run_at = schedule.next_after(now)
        self._store.schedules.advance(row, next_run_at=next_run_at, token=new_token(), ran=ran)
        return next_run_at

    def _fire(self, schedule: Schedule, row: Document, due: Moment, now: Moment) -> bool:
        """Enqueue the job of a slot, unless it is to be left out. Return whether it has one."""
        if schedule.drops(due, now) or self._is_held_back(schedule, row):
            # A runner that was ended before it moved the schedule on may have enqueued it.
            return schedule.slot_key(due) in self._store.inbox.states_of([schedule.slot_key(due)])
        task = self._tasks[schedule.task]
        args = task.signature.bind((), schedule.args)
        try:
            job = self._enqueuer.add(task, args, overrides_of(schedule, due))
        except UniqueKeyTaken:
            # In a rolling deploy the slot's job may be of the task that the schedule had before.
            return True
        if job.created:
            emit_safely(signals.job_enqueued, self._app, job=job)
            emit_safely(signals.schedule_fired, self._app, schedule=schedule, job=job)
        return True

    def _is_held_back(self, schedule: Schedule, row: Document) -> bool:
        """Whether the last job waits or runs, and the slot is not to overlap with it (S7)."""
        if schedule.overlap == "allow":
            return False
        last = (row.get(field) for field in ("last_run_at", "extra_run_at"))
        keys = [schedule.slot_key(int(slot)) for slot in last if slot is not None]
        return not {PENDING, RUNNING}.isdisjoint(self._store.inbox.states_of(keys).values())

    def _tell_once(self, name: str, error: HenriJobsError) -> None:
        if (name, str(error)) not in self._told:
            self._told.add((name, str(error)))
            logger.error("The schedule %r is not fired: %s", name, error)
