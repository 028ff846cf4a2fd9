"""What every command has: a queue, an app context, the tasks, and an exit code."""

from __future__ import annotations

import functools
import typing as t

import click
from flask.cli import AppGroup, with_appcontext

from .failures import telling_failures

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from ..extension import HenriJobs

_QUEUE = "flask_henri_jobs.queue"


class JobsGroup(AppGroup):
    """The commands of one queue of an app."""

    def __init__(self, jobs: HenriJobs, **attributes: t.Any) -> None:
        super().__init__(**attributes)
        self._jobs = jobs

    def invoke(self, ctx: click.Context) -> t.Any:
        """Run the command that was asked for, on this queue."""
        ctx.meta[_QUEUE] = self._jobs
        return super().invoke(ctx)


def jobs_command(
    name: str, *, reaches: bool = True, imports: bool = True
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command, which is called with the queue first.

    It runs in an app context, after the modules in ``HENRI_JOBS_IMPORTS`` were imported. What it
    raises of the package's errors is told in a line.

    :param imports: Whether it needs the tasks.
    :param reaches: Whether it asks the database; then it ends soon where nobody answers there.
    """

    def declare(function: Callable[..., None]) -> click.Command:
        @click.command(name)
        @with_appcontext
        @functools.wraps(function)
        def command(**options: t.Any) -> None:
            jobs: HenriJobs = click.get_current_context().meta[_QUEUE]
            with telling_failures():
                if imports:
                    jobs.state.import_tasks()
                if reaches:
                    jobs.state.reach()
                function(jobs, **options)

        return command

    return declare
