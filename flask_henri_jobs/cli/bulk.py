"""Commands that put jobs right, or do away with them: by their ids, or all that fit."""

from __future__ import annotations

import typing as t

import click

from ..errors import HenriJobsError, StoreUnavailable
from .command import jobs_command
from .failures import Refused, Told
from .options import ALL_FILTERS, NAME, SPAN, agreed, as_json, filters, yes
from .output import print_json
from .progress import bar
from .seen import seen

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from ..extension import HenriJobs
    from ..job import Job

IDS = click.argument("ids", metavar="[ID]...", type=NAME, nargs=-1)


@jobs_command("retry")
@IDS
@filters(*ALL_FILTERS)
@click.option(
    "--all", "every", is_flag=True, help="All that failed, were lost, or ran out of time."
)
@yes
@as_json
def retry(
    jobs: HenriJobs, *, ids: tuple[str, ...], every: bool, yes: bool, as_json: bool, **which: t.Any
) -> None:
    """Perform jobs again, with all their attempts; their history stays.

    Give the ids of jobs that have ended or wait; or filters, which select dead letters. Without
    --reason these are the jobs that failed, were lost, or ran out of time.
    """
    which = _checked(ids, which, every=every)
    if ids:
        _each(jobs, ids, jobs.retry, lambda job: f"{job.id} retried", as_json=as_json)
        return
    steps = jobs.retrying(**which)
    total = jobs.count_retried(**which)
    agreed(f"Retry {_jobs(total)}?", yes)
    _see_through(steps, "retried", total, as_json=as_json)


@jobs_command("delete")
@IDS
@filters(*ALL_FILTERS)
@yes
@as_json
def delete(
    jobs: HenriJobs, *, ids: tuple[str, ...], yes: bool, as_json: bool, **which: t.Any
) -> None:
    """Delete jobs for good.

    Give their ids, or filters. A running job is left alone.
    """
    which = _checked(ids, which)
    if ids:
        _each(jobs, ids, jobs.delete, lambda job: f"{job.id} deleted", as_json=as_json)
        return
    steps = (1 for _ in jobs.deleting(**which))
    total = jobs.count(**which)
    agreed(f"Delete {_jobs(total)}?", yes)
    _see_through(steps, "deleted", total, as_json=as_json)


@jobs_command("cancel")
@click.argument("ids", metavar="ID...", type=NAME, nargs=-1, required=True)
@as_json
def cancel(jobs: HenriJobs, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Have jobs end: those that wait are dead at once, and those that run are told to end.

    A cancelled job never begins again, unless somebody retries it.
    """
    _each(jobs, ids, jobs.cancel, _cancelled, as_json=as_json)


@jobs_command("prune")
@click.option("--keep-done", type=SPAN, help="Keep done jobs for so long. [HENRI_JOBS_KEEP_DONE]")
@click.option("--keep-dead", type=SPAN, help="Keep dead jobs for so long. [HENRI_JOBS_KEEP_DEAD]")
@yes
@as_json
def prune(
    jobs: HenriJobs,
    *,
    keep_done: timedelta | None,
    keep_dead: timedelta | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the jobs that have been kept long enough.

    Workers do so by and by. With another time than the settings', you are asked first.
    """
    if keep_done is not None or keep_dead is not None:
        agreed("Delete jobs that the settings would keep?", yes)
    pruned = jobs.prune(keep_done=keep_done, keep_dead=keep_dead)
    if as_json:
        print_json(pruned)
        return
    click.echo(f"Deleted {pruned['done']} done and {pruned['dead']} dead.")


def _cancelled(job: Job) -> str:
    match job.state, job.dead_reason:
        case "running", _:
            return f"{job.id} is told to end"
        case "dead", "cancelled":
            return f"{job.id} cancelled"
        case _:
            return f"{job.id} had ended already, and stays {job.state}"


def _checked(
    ids: tuple[str, ...], which: dict[str, t.Any], *, every: bool | None = None
) -> dict[str, t.Any]:
    """Return the filters that were given, where it is clear what they are meant to select."""
    given = {name: value for name, value in which.items() if value is not None}
    if ids and (given or every):
        raise click.UsageError("Give ids or filters, not both.")
    if not (ids or given or every):
        or_all = "" if every is None else ", or --all"
        raise click.UsageError(f"Nothing says which jobs. Give their ids, or a filter{or_all}.")
    return given


def _each(
    jobs: HenriJobs,
    ids: tuple[str, ...],
    change: Callable[[str], Job],
    said: Callable[[Job], str],
    *,
    as_json: bool,
) -> None:
    """Change one job after the other. What is refused is told, and the next is tried."""
    done: list[Job] = []
    refused: list[Told] = []
    for job_id in ids:
        try:
            job = change(job_id)
        except StoreUnavailable:
            raise
        except HenriJobsError as error:
            refused.append(Refused(str(error)))
        else:
            done.append(job)
            if not as_json:
                click.echo(said(job))
    if as_json:
        print_json([seen(jobs, job).to_dict() for job in done])
    for told in refused[:-1]:
        told.show()
    if refused:
        raise refused[-1]


def _see_through(steps: Iterator[int], changed: str, total: int, *, as_json: bool) -> None:
    """Do what the steps do, and print how many jobs it was.

    Steps are lazy: where one meets no database, those before it are done, and it is said how many.
    """
    count = 0
    try:
        with bar(changed.capitalize(), total) as advance:
            for step in steps:
                count += step
                advance(step)
    finally:
        if as_json:
            print_json({changed: count})
        else:
            click.echo(f"{_jobs(count)} {changed}")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
