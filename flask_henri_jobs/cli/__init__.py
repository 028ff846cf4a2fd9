"""The commands ``flask jobs ...``."""

from __future__ import annotations

import typing as t

from flask.cli import AppGroup

from .worker import worker_command

if t.TYPE_CHECKING:
    from flask import Flask

    from ..extension import HenriJobs


def add_commands(app: Flask, jobs: HenriJobs, name: str) -> None:
    """Add the command group of a queue to its app.

    :param name: ``jobs``; for a second queue in the app, the name of its collection.
    """
    group = AppGroup(name, help="Background jobs: work on them, look at them, put them right.")
    group.add_command(worker_command(jobs))
    app.cli.add_command(group)
