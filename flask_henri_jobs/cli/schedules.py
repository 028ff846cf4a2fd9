"""``flask jobs schedules``: what recurs, when, and putting it right."""

from __future__ import annotations

import typing as t
from datetime import timedelta

import click

from ..clock import to_datetime
from ..durations import to_text
from .command import jobs_command
from .options import JSON, NAME, SPAN, as_json
from .output import age, one_line, print_json, print_table
from .seen import seen_args

if t.TYPE_CHECKING:
    from datetime import datetime

    from ..clock import Moment
    from ..clock_changes import Mark
    from ..extension import HenriJobs
    from ..schedule_entry import ScheduleEntry

MOST_MOMENTS = 1000

following = click.option(
    "--next",
    "following",
    type=click.IntRange(1, MOST_MOMENTS),
    help="Show so many of the moments that come, on the clock of the schedule's zone.",
)


@jobs_command("list")
@following
@as_json
def list_(jobs: HenriJobs, *, following: int | None, as_json: bool) -> None:
    """Show every schedule, and when it is due."""
    entries, now = jobs.schedules.list(), jobs.state.store.clock.now()
    if as_json:
        print_json([_plain(jobs, entry, now, following or 1) for entry in entries])
    elif following is None:
        titles = ("NAME", "TASK", "WHEN", "NEXT", "LAST", "ORIGIN", "NOTE")
        print_table(titles, [_row(entry, now) for entry in entries])
    else:
        for entry in entries:
            _print_moments(entry, now, following)


@click.group("schedules", invoke_without_command=True)
@following
@as_json
@click.pass_context
def schedules(context: click.Context, /, **options: t.Any) -> None:
    """Show what recurs; add, hold, run and remove it."""
    if context.invoked_subcommand is None:
        context.invoke(list_, **options)
    elif any(options.values()):
        raise click.UsageError("Say the options after the command.")


@jobs_command("add")
@click.argument("name", type=NAME)
@click.option("--cron", help="Five fields, or a word such as @daily.")
@click.option("--every", type=SPAN, help="A duration, such as 30s or 6h.")
@click.option("--timezone", type=NAME, help="The zone of --cron; otherwise UTC.")
@click.option("--task", type=NAME, help="The task's name; otherwise that of the schedule.")
@click.option("--args", type=JSON, help="The arguments, as a JSON object.")
@click.option("--queue", type=NAME, help="Otherwise the task's.")
@click.option("--priority", type=int, help="Otherwise the task's.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    default="allow",
    show_default=True,
    help="Whether a slot is skipped while the last job waits or runs.",
)
@click.option(
    "--misfire",
    type=click.Choice(["one", "skip"]),
    default="one",
    show_default=True,
    help="Whether a slot that was missed runs late, once, or is skipped.",
)
@as_json
def add(jobs: HenriJobs, *, as_json: bool, **definition: t.Any) -> None:
    """Have a task recur, until the schedule is removed. A deploy does not take it away."""
    _tell(jobs, "Added", jobs.schedules.add(**definition), as_json=as_json)


@jobs_command("pause")
@click.argument("name", type=NAME)
@as_json
def pause(jobs: HenriJobs, *, name: str, as_json: bool) -> None:
    """Hold a schedule: nothing of it is enqueued until it is resumed."""
    _tell(jobs, "Paused", jobs.schedules.pause(name), as_json=as_json)


@jobs_command("resume")
@click.argument("name", type=NAME)
@as_json
def resume(jobs: HenriJobs, *, name: str, as_json: bool) -> None:
    """Let a schedule go on from its next moment."""
    _tell(jobs, "Resumed", jobs.schedules.resume(name), as_json=as_json)


@jobs_command("run-now")
@click.argument("name", type=NAME)
@as_json
def run_now(jobs: HenriJobs, *, name: str, as_json: bool) -> None:
    """Enqueue a job of a schedule at once, beside its slots."""
    job = jobs.schedules.run_now(name)
    if as_json:
        print_json(job.to_dict())
    else:
        click.echo(f"Enqueued job {job.id} of {one_line(name)}.")


@jobs_command("remove")
@click.argument("name", type=NAME)
@as_json
def remove(jobs: HenriJobs, *, name: str, as_json: bool) -> None:
    """Delete a schedule. The jobs that it enqueued stay."""
    _tell(jobs, "Removed", jobs.schedules.remove(name), as_json=as_json)


for command in (list_, add, pause, resume, run_now, remove):
    schedules.add_command(command)


def _tell(jobs: HenriJobs, what: str, entry: ScheduleEntry, *, as_json: bool) -> None:
    if as_json:
        print_json(_plain(jobs, entry, jobs.state.store.clock.now(), 1))
    else:
        click.echo(f"{what} {one_line(entry.name)}.")


def _moments(entry: ScheduleEntry, now: Moment, count: int) -> list[tuple[datetime, Mark]]:
    """Return the moments that come, in the schedule's zone; none where it cannot be read here."""
    if entry.problem is not None:
        return []
    schedule = entry.schedule
    return [
        (t.cast("datetime", to_datetime(at)).astimezone(schedule.zone), mark)
        for at, mark in schedule.moments(now, count)
    ]


def _plain(jobs: HenriJobs, entry: ScheduleEntry, now: Moment, count: int) -> dict[str, t.Any]:
    plain = entry.to_dict([moment for moment, _ in _moments(entry, now, count)])
    return plain | {"args": seen_args(jobs, entry.task, plain["args"])}


def _row(entry: ScheduleEntry, now: Moment) -> tuple[object, ...]:
    today = t.cast("datetime", to_datetime(now))
    return (
        entry.name,
        entry.task,
        _when(entry),
        age(entry.next_run_at, today),
        age(entry.last_run_at, today),
        entry.origin,
        entry.problem or ("paused" if entry.paused else None),
    )


def _print_moments(entry: ScheduleEntry, now: Moment, count: int) -> None:
    held = " (paused)" if entry.paused else ""
    click.echo(f"{one_line(entry.name)}: {one_line(_when(entry))}{held}")
    if entry.problem is not None:
        click.echo(f"  {one_line(entry.problem)}")
    for moment, mark in _moments(entry, now, count):
        touched = f"  {mark}" if mark else ""
        click.echo(f"  {moment:%a %Y-%m-%d %H:%M:%S %Z}{touched}")


def _when(entry: ScheduleEntry) -> str:
    """Return when it recurs, as people write it: ``every 5m``, or the expression and its zone."""
    kind, _, rest = entry.spec.partition(":")
    if kind == "every" and rest.isdecimal():
        return f"every {to_text(timedelta(milliseconds=int(rest)))}"
    text = rest if kind == "cron" else entry.spec
    return text if entry.timezone is None else f"{text} {entry.timezone}"
