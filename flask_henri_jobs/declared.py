"""The schedules that this process declares, and whether they can be fired here (S4)."""

from __future__ import annotations

import typing as t

from .enqueueing import row_of
from .errors import ConfigError, HenriJobsError
from .options import Overrides

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .clock import Moment
    from .job import Document
    from .registry import Registry
    from .schedule import Schedule
    from .settings import Settings


def declared_schedules(settings: Settings, tasks: Registry) -> dict[str, Schedule]:
    """Return what the tasks and the settings declare, by name.

    An entry of ``HENRI_JOBS_SCHEDULES`` takes the place of a task's own schedule of that name.
    """
    own = {name: tasks[name].schedule for name in tasks}
    of_tasks = {name: schedule for name, schedule in own.items() if schedule is not None}
    return {**of_tasks, **settings.schedules}


def overrides_of(schedule: Schedule, due: Moment) -> Overrides:
    """Return the options with which the job of one slot is enqueued.

    Its key is the queue's own and stays with the row: a slot has one job, whoever enqueues it, and
    however often (S1).
    """
    return Overrides(
        queue=schedule.queue,
        priority=schedule.priority,
        unique=schedule.slot_key(due),
        # A schedule is nobody's, and so are its jobs, whoever runs it now (T1).
        no_tenant=True,
    )


def job_row_of(
    schedule: Schedule, tasks: Registry, settings: Settings, due: Moment, now: Moment
) -> Document:
    """Return the document that the job of a slot would be.

    :raises HenriJobsError: The task is not known here, or does not take the arguments.
    """
    task = tasks[schedule.task]
    args = task.signature.bind((), schedule.args)
    return row_of(task, args, overrides_of(schedule, due), settings, now)


def problems_of(
    schedules: Mapping[str, Schedule], tasks: Registry, settings: Settings
) -> Iterator[ConfigError]:
    """Yield what keeps schedules from being fired here, each named (S4)."""
    for name, schedule in schedules.items():
        try:
            job_row_of(schedule, tasks, settings, 0, 0)
        except HenriJobsError as error:
            yield ConfigError(f"The schedule {name!r}: {error.message}", hint=error.hint)
