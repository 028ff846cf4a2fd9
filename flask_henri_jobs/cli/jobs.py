"""Commands on jobs: what there is of them, one in full, and new ones."""

from __future__ import annotations

import json
import typing as t
from datetime import datetime

import click

from ..clock import to_datetime
from ..codec import encode
from ..job import PENDING
from ..options import HIGHEST_PRIORITY, LOWEST_PRIORITY, MOST_ATTEMPTS
from ..pause import Paused
from ..readable import unreadable
from ..store.lookup import unknown
from .command import jobs_command
from .failures import TaskFailures
from .options import ALL_FILTERS, JSON, MOMENT, NAME, SPAN, as_json, filters, page
from .output import (
    age,
    amount,
    how_far,
    local,
    print_block,
    print_facts,
    print_json,
    print_table,
    span,
    tell,
    visible,
)
from .seen import seen

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..extension import HenriJobs
    from ..job import Job, PastAttempt
    from ..pause import Pause


@jobs_command("list")
@filters(*ALL_FILTERS)
@page
@as_json
def list_(jobs: HenriJobs, *, as_json: bool, **which: t.Any) -> None:
    """List jobs, those first that changed last."""
    found = jobs.list(**which)
    paused = Paused.of(jobs.pauses())
    shown = [seen(jobs, job) for job in found]
    if as_json:
        print_json([job.to_dict() | {"paused": _is_held(job, paused)} for job in shown])
        return
    now = server_time(jobs)
    titles = ("ID", "TASK", "QUEUE", "STATE", "ATTEMPTS", "PROGRESS", "CREATED", "DUE")
    print_table(titles, [_listed(job, now, paused) for job in shown])
    _tell_of_more(found, **which)


@jobs_command("dead")
@filters("queue", "name", "tenant", "batch", "tag", "reason")
@page
@as_json
def dead(jobs: HenriJobs, *, as_json: bool, **which: t.Any) -> None:
    """List the dead letters that somebody should look at.

    Without --reason these are the jobs that failed, were lost, or ran out of time. Those that
    were discarded or cancelled, or have expired, were meant to end.
    """
    found = jobs.dead(**which)
    shown = [seen(jobs, job) for job in found]
    if as_json:
        print_json([job.to_dict() for job in shown])
        return
    now = server_time(jobs)
    titles = ("ID", "TASK", "QUEUE", "REASON", "ATTEMPTS", "DIED", "ERROR")
    print_table(titles, [_mourned(job, now) for job in shown])
    _tell_of_more(found, **which)


@jobs_command("show")
@click.argument("job_id", metavar="ID", type=NAME)
@as_json
def show(jobs: HenriJobs, *, job_id: str, as_json: bool) -> None:
    """Show all there is to know about a job."""
    job = jobs.get(job_id)
    if job is None:
        raise unknown(job_id)
    spoilt = unreadable(job.row)
    job = seen(jobs, job)
    pauses = [pause for pause in jobs.pauses() if pause.holds(job.row)]
    if as_json:
        print_json(job.to_dict() | {"paused": _is_held(job, Paused.of(pauses))})
        return
    now = server_time(jobs)
    plain = job.to_dict()
    print_facts(_facts(job, now, pauses, is_known=job.name in jobs.tasks))
    if spoilt:
        print_block("Spoilt by another program", ", ".join(spoilt))
    print_block("Arguments", json.dumps(plain["args"], indent=2))
    if plain["result"] is not None:
        print_block("Result", json.dumps(plain["result"], indent=2))
    if job.logs:
        print_block("Log", "\n".join(_logged(job)))
    if job.history:
        print_block("Attempts that failed", "\n".join(_told(past, now) for past in job.history))
    if job.error_stack:
        print_block("Stack", job.error_stack)


@jobs_command("explain")
@click.argument("job_id", metavar="ID", type=NAME)
@as_json
def explain(jobs: HenriJobs, *, job_id: str, as_json: bool) -> None:
    """Say why a job does not run now: every reason, and what can be done."""
    reasons = jobs.explain(job_id)
    if as_json:
        print_json([reason.to_dict() for reason in reasons])
        return
    for reason in reasons:
        click.echo(f"{visible(reason.text)}\n  {visible(reason.hint)}")
    if not reasons:
        click.echo("Nothing holds it back. A runner will take it in a moment.")


@jobs_command("enqueue")
@click.argument("name", type=NAME)
@click.argument("args", metavar="[JSON]", type=JSON, required=False)
@click.option("-q", "--queue", type=NAME, help="The queue it goes to.")
@click.option(
    "--priority",
    type=click.IntRange(HIGHEST_PRIORITY, LOWEST_PRIORITY),
    help="Lower comes first.",
)
@click.option("--max-attempts", type=click.IntRange(1, MOST_ATTEMPTS), help="Try at most so often.")
@click.option("--wait", type=SPAN, help="Not before so long from now.")
@click.option("--at", type=MOMENT, help="Not before this moment.")
@click.option("--expires", type=SPAN, help="Not later than so long after it is due.")
@click.option("--unique", type=NAME, help="Only if no waiting or running job has this key.")
@click.option(
    "--on-conflict",
    type=click.Choice(["return", "raise", "replace"]),
    help="What to do if one has.",
)
@click.option("--tag", "tags", type=NAME, multiple=True, help="A tag; may be given several times.")
@click.option("--id", "id", type=NAME, help="The job's id. Enqueued again, it is the same job.")
@as_json
def enqueue(jobs: HenriJobs, *, name: str, args: t.Any, as_json: bool, **options: t.Any) -> None:
    """Store a job of the task NAME, called with JSON, and print its id.

    The task may be another application's. JSON holds the arguments by name: '{"user_id": 7}'.
    With - it is read from the standard input.
    """
    if options["wait"] is not None and options["at"] is not None:
        raise click.UsageError("--wait and --at are both given. Give one of them.")
    given: t.Any = {name: value for name, value in options.items() if value not in (None, ())}
    job = jobs.enqueue(name, args, **given)
    if as_json:
        print_json(job.to_dict())
        return
    click.echo(job.id)
    if not job.created:
        tell(f"It was there already, and is {job.state}.")


@jobs_command("perform", reaches=False)
@click.argument("name", type=NAME)
@click.argument("args", metavar="[JSON]", type=JSON, required=False)
@as_json
def perform(jobs: HenriJobs, *, name: str, args: t.Any, as_json: bool) -> None:
    """Perform the task NAME here and now, called with JSON, and print what it returns.

    Nothing is stored, and nothing is tried again.
    """
    with TaskFailures(name):
        returned = jobs.perform_now(name, args)
    if not as_json:
        if returned is not None:
            click.echo(visible(repr(returned)))
        return
    print_json(json.loads(encode(returned, "the result")))


def server_time(jobs: HenriJobs) -> datetime:
    """Return the time by the clock that the moments of jobs are from (C1)."""
    return t.cast(datetime, to_datetime(jobs.state.store.clock.now()))


def _is_held(job: Job, paused: Paused) -> bool:
    """Whether a pause keeps a job from beginning; one that runs goes on."""
    return job.state == PENDING and paused.holds(job.row)


def _listed(job: Job, now: datetime, paused: Paused) -> Sequence[object]:
    due = age(job.run_at, now) if job.state == PENDING else None
    if _is_held(job, paused):
        due = "paused"
    attempts = f"{job.attempts}/{job.max_attempts}"
    far, created = how_far(job.progress), age(job.created_at, now)
    return (job.id, job.name, job.queue, job.state, attempts, far, created, due)


def _mourned(job: Job, now: datetime) -> Sequence[object]:
    attempts = f"{job.attempts}/{job.max_attempts}"
    died = age(job.finished_at, now)
    error = _first_line(job.error)
    return (job.id, job.name, job.queue, job.dead_reason, attempts, died, error)


def _first_line(text: str | None) -> str | None:
    return next(iter((text or "").splitlines()), None)


def _facts(
    job: Job, now: datetime, pauses: Sequence[Pause], *, is_known: bool
) -> dict[str, object]:
    """Return what a job's fields say, without those that say nothing."""
    facts = {
        "id": job.id,
        "task": job.name if is_known else f"{job.name} (not known to this application)",
        "queue": job.queue,
        "state": job.state,
        "paused": ", ".join(f"{one} since {local(one.paused_at, now)}" for one in pauses),
        "dead because": job.dead_reason,
        "error": job.error,
        "attempts": f"{job.attempts} of {job.max_attempts}",
        "priority": job.priority,
        "tenant": job.tenant,
        "batch": job.batch_id,
        "tags": ", ".join(job.tags),
        "unique key": job.unique_key,
        "concurrency key": job.concurrency_key,
        "headers": job.headers,
        "runner": job.claimed_by,
        "progress": _progress(job, now),
        "no result": job.result_error,
        "timeout": None if job.timeout is None else span(job.timeout),
        "duration": None if job.duration is None else span(job.duration),
        **_moments(job, now),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def _moments(job: Job, now: datetime) -> dict[str, str]:
    moments = {
        "created": job.created_at,
        "due": job.run_at,
        "claimed": job.claimed_at,
        "started": job.started_at,
        "last heartbeat": job.heartbeat_at,
        "finished": job.finished_at,
        "expires": job.expires_at,
        "cancel requested": job.cancel_requested,
    }
    return {name: local(moment, now) for name, moment in moments.items() if moment}


def _progress(job: Job, now: datetime) -> str | None:
    progress = job.progress
    if progress is None:
        return None
    total, message = progress["total"], progress["message"]
    of_total = f" of {amount(total)} ({how_far(progress)})" if total else ""
    said = f": {message}" if message else ""
    return f"{amount(progress['done'])}{of_total}, {age(progress['at'], now)}{said}"


def _told(past: PastAttempt, now: datetime) -> str:
    took = f", after {span(past['duration'])}" if past["duration"] is not None else ""
    where = f", on {past['runner']}" if past["runner"] else ""
    message = _first_line(past["message"]) or "no message"
    return f"{past['attempt']}. {local(past['at'], now)}{took}{where}: {message}"


def _logged(job: Job) -> Iterator[str]:
    if job.logs_dropped:
        yield f"... {job.logs_dropped} older lines were not kept"
    for line in job.logs:
        when = line["at"].astimezone().strftime("%H:%M:%S")
        yield f"{line['attempt']}. {when} {line['level']} {line['logger']}: {line['message']}"


def _tell_of_more(found: Sequence[Job], *, limit: int, offset: int, **_which: t.Any) -> None:
    if len(found) == limit:
        tell(f"There may be more: --offset {offset + limit} goes on.")
    elif getattr(found, "is_cut", False):
        tell("There may be more: only the jobs that changed last were looked at.")
