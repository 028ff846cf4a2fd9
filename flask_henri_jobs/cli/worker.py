"""``flask jobs worker``: options into one call."""

from __future__ import annotations

import typing as t

import click
from flask.cli import with_appcontext

if t.TYPE_CHECKING:
    from ..extension import HenriJobs


def worker_command(jobs: HenriJobs) -> click.Command:
    """Return the command that works on a queue."""

    @click.command("worker")
    @click.option("-q", "--queues", help="Take from these queues only: high,default")
    @click.option("-t", "--threads", type=click.IntRange(1, 1000), help="Jobs at once.")
    @click.option("--grace", help="How long a stop waits for what runs, such as 25s.")
    @click.option("--once", is_flag=True, help="End as soon as nothing is due.")
    @with_appcontext
    def worker(**options: t.Any) -> None:
        """Perform jobs until stopped."""
        jobs.run_worker(**options)

    return worker
