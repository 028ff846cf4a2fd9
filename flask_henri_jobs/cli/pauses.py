"""``flask jobs pause``, ``resume`` and ``pauses``: what begins, and what does not."""

from __future__ import annotations

import typing as t

import click

from .command import jobs_command
from .failures import Refused
from .jobs import server_time
from .options import NAME, as_json
from .output import local, print_json, print_table, visible

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from ..extension import HenriJobs
    from ..pause import Pause

F = t.TypeVar("F", bound="Callable[..., t.Any]")


def _pausable(function: F) -> F:
    """Give a command the options that name what is paused."""
    for option in (
        click.option("--tenant", type=NAME, help="The jobs of this tenant."),
        click.option("-n", "--name", type=NAME, help="The jobs of this task."),
        click.option("-q", "--queue", type=NAME, help="The jobs of this queue."),
    ):
        function = option(function)
    return function


@jobs_command("pause", imports=False)
@_pausable
@as_json
def pause(jobs: HenriJobs, *, as_json: bool, **which: str | None) -> None:
    """Have no job of a queue, a task or a tenant begin, until it is resumed.

    What runs goes on to its end.
    """
    stands = jobs.pause(**_one_of(which))
    if as_json:
        print_json(stands.to_dict())
    else:
        since = local(stands.paused_at, server_time(jobs))
        click.echo(visible(f"The {stands} is paused, since {since}."))


@jobs_command("resume", imports=False)
@_pausable
@as_json
def resume(jobs: HenriJobs, *, as_json: bool, **which: str | None) -> None:
    """Let the jobs of a queue, a task or a tenant begin again."""
    ended = jobs.resume(**_one_of(which))
    if ended is None:
        raise Refused("That was not paused. 'flask jobs pauses' shows what is.")
    if as_json:
        print_json(ended.to_dict())
    else:
        click.echo(visible(f"The {ended} goes on."))


@jobs_command("pauses", imports=False)
@as_json
def pauses(jobs: HenriJobs, *, as_json: bool) -> None:
    """Show what is paused, and since when."""
    found = jobs.pauses()
    if as_json:
        print_json([pause.to_dict() for pause in found])
    elif found:
        print_pauses(jobs, found)
    else:
        click.echo("Nothing is paused.")


def print_pauses(jobs: HenriJobs, found: list[Pause]) -> None:
    """Print a table of what is paused."""
    now = server_time(jobs)
    rows = [(one.kind, one.name, local(one.paused_at, now)) for one in found]
    print_table(("PAUSED", "NAME", "SINCE"), rows)


def _one_of(which: dict[str, str | None]) -> t.Any:
    given = {name: value for name, value in which.items() if value is not None}
    if len(given) != 1:
        raise click.UsageError("Give exactly one of --queue, --name and --tenant.")
    return given
