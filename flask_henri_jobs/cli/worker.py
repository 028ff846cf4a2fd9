"""``flask jobs worker``: options into one call."""

from __future__ import annotations

import typing as t

import click
from flask import current_app

from .command import jobs_command
from .options import QUEUES, SPAN, as_json
from .output import print_json, tell
from .progress import Tally

if t.TYPE_CHECKING:
    from ..extension import HenriJobs


@jobs_command("worker", reaches=False)
@click.option("-q", "--queues", type=QUEUES, help="Take from these only: high,low, or mail:4,*:1")
@click.option("-t", "--threads", type=click.IntRange(1, 256), help="Perform so many jobs at once.")
@click.option("--grace", type=SPAN, help="How long a stop waits for what runs: 25s")
@click.option("--once", is_flag=True, help="End as soon as nothing is due.")
@click.option("--no-schedules", is_flag=True, help="Fire no schedules.")
@as_json
def worker(
    jobs: HenriJobs, *, once: bool, no_schedules: bool, as_json: bool, **options: t.Any
) -> None:
    """Perform jobs until stopped.

    Ctrl-C or SIGTERM stops it in order: what runs is finished within --grace, the rest is handed
    back. A second one ends the grace. With --once, --json prints how many jobs ended in which way.
    """
    if as_json and not once:
        raise click.UsageError("--json is for --once: another worker's output has no end.")
    options["schedules"] = not no_schedules
    tell(f"Tasks known here: {', '.join(jobs.tasks) or 'none'}")
    if not once:
        jobs.run_worker(**options)
        return
    with Tally().of(current_app._get_current_object()) as tally:  # type: ignore[attr-defined]
        jobs.run_worker(once=True, **options)
    if as_json:
        print_json(tally.counts)
    else:
        click.echo(f"Performed: {tally}.")
