"""The commands ``flask jobs ...``."""

from __future__ import annotations

import typing as t

from .batches import batches
from .bulk import cancel, delete, prune, retry
from .command import JobsGroup
from .jobs import dead, enqueue, explain, list_, perform, show
from .limits import limits
from .pauses import pause, pauses, resume
from .runners import runners
from .schedules import schedules
from .system import check, install, status, uninstall
from .worker import worker

if t.TYPE_CHECKING:
    from flask import Flask

    from ..extension import HenriJobs

COMMANDS = (
    worker,
    status,
    list_,
    dead,
    show,
    explain,
    retry,
    delete,
    cancel,
    prune,
    enqueue,
    perform,
    batches,
    schedules,
    limits,
    pause,
    resume,
    pauses,
    runners,
    install,
    uninstall,
    check,
)


def add_commands(app: Flask, jobs: HenriJobs, name: str) -> None:
    """Add the command group of a queue to its app.

    :param name: ``jobs``; for a second queue in the app, the name of its collection.
    """
    group = JobsGroup(
        jobs, name=name, help="Background jobs: work on them, look at them, put them right."
    )
    for command in COMMANDS:
        group.add_command(command)
    app.cli.add_command(group)
