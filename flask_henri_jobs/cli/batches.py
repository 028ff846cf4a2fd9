"""Commands on batches."""

from __future__ import annotations

import typing as t

import click

from ..batch import STATES
from .command import jobs_command
from .failures import Refused
from .jobs import server_time
from .options import NAME, agreed, as_json, page, yes
from .output import age, local, print_facts, print_json, print_table, tell

if t.TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..batch import Batch
    from ..extension import HenriJobs

BATCH_ID = click.argument("batch_id", metavar="ID", type=NAME)


class _Listing(click.Group):
    """A group that lists, where nothing else is asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command's name, or else take it to be ``list``."""
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0].startswith("-")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("batches", cls=_Listing)
def batches() -> None:
    """List batches; show, cancel or delete one.

    A batch that stays open was left by a process that died before it had sealed it. Cancel it, and
    its callbacks run; or delete it, and none does.
    """


@jobs_command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--tenant", type=NAME, help="Only those of this tenant.")
@page
@as_json
def list_(jobs: HenriJobs, *, as_json: bool, **which: t.Any) -> None:
    """List batches, the newest first."""
    found = jobs.batches.list(**which)
    if as_json:
        print_json([batch.to_dict() for batch in found])
        return
    now = server_time(jobs)
    titles = ("ID", "NAME", "STATE", "ENDED", "FAILED", "TOTAL", "CREATED")
    print_table(titles, [_listed(batch, now) for batch in found])
    if len(found) == which["limit"]:
        tell(f"There may be more: --offset {which['offset'] + which['limit']} goes on.")


@jobs_command("show")
@BATCH_ID
@as_json
def show(jobs: HenriJobs, *, batch_id: str, as_json: bool) -> None:
    """Show all there is to know about a batch. 'flask jobs list --batch ID' lists its jobs."""
    batch = jobs.batches.get(batch_id)
    if batch is None:
        raise Refused(
            f"There is no batch {batch_id}. It was deleted, or pruned some time after its end."
        )
    if as_json:
        print_json(batch.to_dict())
        return
    print_facts(_facts(batch, server_time(jobs)))


@jobs_command("cancel")
@BATCH_ID
@yes
@as_json
def cancel(jobs: HenriJobs, *, batch_id: str, yes: bool, as_json: bool) -> None:
    """End a batch early: its waiting jobs die as cancelled, and its callbacks run."""
    agreed(f"Cancel the batch {batch_id} and its waiting jobs?", yes)
    batch = jobs.batches.cancel(batch_id)
    if as_json:
        print_json(batch.to_dict())
    elif batch.cancelled_at is None:
        tell(f"The batch {batch_id} had finished already, and stays as it is.")
    elif batch.state == "finished":
        click.echo("Cancelled.")
    else:
        click.echo(f"Cancelled. It ends with its last running job: {batch.done} of {batch.total}.")


@jobs_command("delete")
@BATCH_ID
@yes
@as_json
def delete(jobs: HenriJobs, *, batch_id: str, yes: bool, as_json: bool) -> None:
    """Delete a batch with its jobs, for good. No callback runs."""
    agreed(f"Delete the batch {batch_id} and its jobs?", yes)
    batch = jobs.batches.delete(batch_id)
    if as_json:
        print_json(batch.to_dict())
    else:
        click.echo("Deleted.")


for command in (list_, show, cancel, delete):
    batches.add_command(command)


def _listed(batch: Batch, now: datetime) -> Sequence[object]:
    total = None if batch.state == "open" else batch.total
    created = age(batch.created_at, now)
    return (batch.id, batch.name, batch.state, batch.done, batch.failed, total, created)


def _facts(batch: Batch, now: datetime) -> dict[str, object]:
    """Return what a batch's fields say, without those that say nothing."""
    facts: dict[str, object] = {
        "id": batch.id,
        "name": batch.name,
        "state": batch.state,
        "jobs": None if batch.state == "open" else batch.total,
        "done": batch.done,
        "failed": batch.failed,
        "tenant": batch.tenant,
        "callback": batch.callback,
        "callback job": batch.callback_id,
        "on success": batch.on_success,
        "on failure": batch.on_failure,
    }
    moments = {
        "created": batch.created_at,
        "sealed": batch.sealed_at,
        "cancelled": batch.cancelled_at,
        "finished": batch.finished_at,
    }
    facts |= {name: local(moment, now) for name, moment in moments.items() if moment}
    return {name: value for name, value in facts.items() if value is not None}
