"""``jobs.schedules``: what recurs, and what an operator asks of it."""

from __future__ import annotations

import typing as t

from flask import current_app

from . import signals
from .checks import checked_name
from .declared import declared_schedules, job_row_of
from .durations import millis, to_text
from .errors import InvalidFilter, ScheduleTaken, UnknownSchedule
from .schedule import Schedule
from .schedule_entry import FORGOTTEN_AFTER, RUNTIME, ScheduleEntry, new_entry, origin_of
from .signals import emit

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from .app_state import AppState
    from .clock import Moment
    from .durations import Duration
    from .job import Document, Job
    from .registry import Registry
    from .schedule import Misfire, Overlap
    from .store.schedules import Schedules as Stored

Entries: t.TypeAlias = list[ScheduleEntry]


class Schedules:
    """The schedules of a queue: those that are declared, and those that were added at run time.

    Each method raises :class:`~flask_henri_jobs.errors.StoreUnavailable` where the database does
    not answer in time.
    """

    def __init__(self, state: AppState, tasks: Registry) -> None:
        self._state = state
        self._tasks = tasks
        self._declared = declared_schedules(state.settings, tasks)

    def list(self) -> Entries:
        """Return every schedule by name, declared ones too that no runner has come to yet."""
        stored = {row["_id"]: row for row in self._stored.all()}
        now = self._now()
        for name, schedule in self._declared.items():
            if name not in stored:
                stored[name] = new_entry(schedule, self._origin, now)
        return [self._entry(stored[name]) for name in sorted(stored)]

    def get(self, name: str) -> ScheduleEntry | None:
        """Return a schedule, or None where there is none of that name."""
        row = self._stored.find(_checked(name))
        if row is None and name in self._declared:
            row = new_entry(self._declared[name], self._origin, self._now())
        return None if row is None else self._entry(row)

    def add(
        self,
        name: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        task: str | None = None,
        args: Mapping[str, t.Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        overlap: Overlap = "allow",
        misfire: Misfire = "one",
    ) -> ScheduleEntry:
        """Have a task recur, from its next moment on, until the schedule is removed.

        One that was added before under the name gets this definition; where its moments change it
        is moved without being run. No deploy takes it away.

        :param task: The name of the task; without it, the name of the schedule.
        :raises ConfigError: The definition is wrong (S4).
        :raises UnknownTask: No task of that name is declared here.
        :raises InvalidArguments: The task does not take the arguments, or they cannot travel (Q8).
        :raises ScheduleTaken: An application declares a schedule of that name.
        """
        schedule = Schedule.read(
            name,
            cron=cron,
            every=every,
            timezone=timezone,
            task=task,
            args=args,
            queue=queue,
            priority=priority,
            overlap=overlap,
            misfire=misfire,
        )
        now = self._now()
        job_row_of(schedule, self._tasks, self._state.settings, now, now)
        if name in self._declared:
            raise _taken(name, self._origin)
        return self._entry(self._put(new_entry(schedule, RUNTIME, now), schedule))

    def pause(self, name: str) -> ScheduleEntry:
        """Hold a schedule: none of its slots is enqueued until it is resumed.

        :raises UnknownSchedule: There is none of that name.
        """
        self._existing(name)
        self._stored.pause(name)
        return self._entry(self._existing(name))

    def resume(self, name: str) -> ScheduleEntry:
        """Let a schedule go on from its next moment; what it missed is not made up for.

        :raises UnknownSchedule: There is none of that name.
        """
        entry = self._entry(self._existing(name))
        if entry.paused:
            next_run_at = entry.schedule.next_after(self._now())
            self._stored.resume(entry.row, next_run_at=next_run_at)
        return self._entry(self._existing(name))

    def run_now(self, name: str) -> Job:
        """Enqueue a job of a schedule at once, beside its slots. Return the job.

        It does so for a paused one too, and whatever still runs.

        :raises UnknownSchedule: There is none of that name.
        :raises UnknownTask: Its task is not declared here.
        """
        schedule = self._entry(self._existing(name)).schedule
        now = self._now()
        row = job_row_of(schedule, self._tasks, self._state.settings, now, now)
        job = self._state.store.inbox.add(row)
        self._stored.note_extra_run(name, now)
        if job.created:
            emit(signals.job_enqueued, current_app._get_current_object(), job=job)  # type: ignore[attr-defined]
        return job

    def remove(self, name: str) -> ScheduleEntry:
        """Delete a schedule. Return it as it was. The jobs that it enqueued stay.

        :raises UnknownSchedule: There is none of that name.
        :raises ScheduleTaken: A running process declares it, and would bring it back.
        """
        row = self._stored.find(_checked(name))
        if name in self._declared and (row is None or row.get("origin") == self._origin):
            raise _taken(name, self._origin)
        if row is None:
            raise _unknown(name)
        if not self._stored.remove(name, self._now() - millis(FORGOTTEN_AFTER)):
            raise _taken(name, row.get("origin"))
        return self._entry(row)

    @property
    def _stored(self) -> Stored:
        return self._state.store.schedules

    @property
    def _origin(self) -> str:
        return origin_of(self._state.settings.app_name)

    def _now(self) -> Moment:
        return self._state.store.clock.now()

    def _entry(self, row: Document) -> ScheduleEntry:
        return ScheduleEntry(row, self._declared.get(row["_id"]))

    def _put(self, row: Document, schedule: Schedule) -> Document:
        while True:
            stored = self._stored.add(row)
            if stored is row:
                return row
            if stored.get("origin") != RUNTIME:
                raise _taken(schedule.name, stored.get("origin"))
            if self._stored.redefine(stored, schedule, next_run_at=row["next_run_at"]):
                return self._existing(schedule.name)

    def _existing(self, name: str) -> Document:
        """Return an entry; a declared one that no runner has come to yet is stored first."""
        row = self._stored.find(_checked(name))
        if row is not None:
            return row
        if name not in self._declared:
            raise _unknown(name)
        return self._stored.add(new_entry(self._declared[name], self._origin, self._now()))


def _checked(name: object) -> str:
    return checked_name(name, "name", error=InvalidFilter)


def _unknown(name: str) -> UnknownSchedule:
    return UnknownSchedule(f"There is no schedule {name!r:.80}.")


def _taken(name: str, origin: str | None) -> ScheduleTaken:
    declared_by = "a henri app" if origin is None else f"the app {origin!r}"
    return ScheduleTaken(
        f"The schedule {name!r:.80} is declared by {declared_by}.",
        hint="Take the declaration out of its code or configuration, where it is to go, and"
        f" {to_text(FORGOTTEN_AFTER)} after the last process that has it the schedule is gone."
        " To hold it, pause it.",
    )
