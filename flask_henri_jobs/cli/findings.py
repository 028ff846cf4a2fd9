"""What ``flask jobs check`` looks for without the database: what will be regretted."""

from __future__ import annotations

import typing as t

from ..declared import declared_schedules, problems_of
from ..errors import ConfigError

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from ..app_state import AppState
    from ..registry import Registry
    from ..settings import Settings


About: t.TypeAlias = t.Literal[
    "settings",
    "schedules",
    "tasks",
    "clocks",
    "indexes",
    "runners",
    "limits",
    "batches",
    "jobs",
]


class Finding(t.TypedDict):
    """One thing that is wrong, and what to do about it."""

    about: About
    message: str
    hint: str


def configuration_findings(state: AppState, tasks: Registry) -> list[Finding]:
    """Return what is wrong with the settings and the tasks; the database is not asked."""
    settings = state.settings
    found = [] if state.make_client is not None else [*_about_database(settings)]
    return [
        *found,
        *_about_transactions(settings, tasks),
        *_about_schedules(settings, tasks),
        *_about_tasks(settings, tasks),
    ]


def _about_database(settings: Settings) -> Iterator[Finding]:
    if settings.uri is None:
        yield {
            "about": "settings",
            "message": "HENRI_JOBS_URI is not set: jobs go to a MongoDB server of this host's own.",
            "hint": "Set it to your replica set.",
        }
    elif settings.embedded:
        yield {
            "about": "settings",
            "message": "HENRI_JOBS_URI is 'disk': jobs go to a MongoDB server of this host's own.",
            "hint": "In production, set it to your replica set.",
        }


def _about_schedules(settings: Settings, tasks: Registry) -> Iterator[Finding]:
    schedules = declared_schedules(settings, tasks)
    for problem in problems_of(schedules, tasks, settings):
        yield {"about": "schedules", "message": problem.message, "hint": problem.hint}
    for schedule in schedules.values():
        for warning in schedule.warnings():
            hint = "Write out the values that are meant."
            yield {"about": "schedules", "message": warning, "hint": hint}


def _about_transactions(settings: Settings, tasks: Registry) -> Iterator[Finding]:
    names, message = tasks.transactional(), settings.outlasted_by_transactions
    if names and message is not None:
        yield {
            "about": "settings",
            "message": message,
            "hint": f"Make it longer: the task {names[0]} says transactional=True.",
        }


def _about_tasks(settings: Settings, tasks: Registry) -> Iterator[Finding]:
    if not len(tasks):
        yield {
            "about": "tasks",
            "message": "No task is declared: a worker would have nothing that it can perform.",
            "hint": "Name the modules that declare them in HENRI_JOBS_IMPORTS.",
        }
    for name in tasks:
        if name.startswith("__main__."):
            yield {
                "about": "tasks",
                "message": f"The task {name} is declared in the module that was run, which a worker"
                " knows by another name.",
                "hint": "Declare it in a module that is imported, or give it a name=.",
            }
        try:
            tasks[name].policy(settings.backoff)
        except ConfigError as error:
            yield {"about": "tasks", "message": error.message, "hint": error.hint}
        queue = tasks[name].defaults.queue or settings.default_queue
        if settings.queues is not None and not settings.queues.covers(queue):
            yield {
                "about": "tasks",
                "message": f"The task {name} goes to the queue {queue!r}, which is not in"
                " HENRI_JOBS_QUEUES.",
                "hint": "Add it, or see to it that some worker is started with -q.",
            }
