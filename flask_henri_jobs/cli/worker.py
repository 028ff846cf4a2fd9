"""``flask jobs worker``: options into one call."""

from __future__ import annotations

import io
import os
import sys
import typing as t

import click
from flask import current_app

from ..setting_readers import MOST_THREADS
from .command import jobs_command
from .options import QUEUES, SIZE, SPAN, as_json
from .output import print_json, tell
from .progress import Tally

if t.TYPE_CHECKING:
    from ..extension import HenriJobs
    from ..worker.post import Post

_NO_TASKS = "none. Name the modules that declare them in HENRI_JOBS_IMPORTS."

_OF_PROCESSES = {
    "processes": "--processes",
    "max_jobs": "--max-jobs",
    "max_memory": "--max-memory",
    "reload": "--reload",
}


@jobs_command("worker", reaches=False, imports=False)
@click.option("-q", "--queues", type=QUEUES, help="Take from these only: high,low, or mail:4,*:1")
@click.option(
    "-t", "--threads", type=click.IntRange(1, MOST_THREADS), help="Perform so many jobs at once."
)
@click.option("-p", "--processes", type=click.IntRange(1, 256), help="Run so many processes.")
@click.option("--grace", type=SPAN, help="How long a stop waits for what runs: 25s")
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after so many jobs.")
@click.option("--max-memory", type=SIZE, help="Replace a process that takes so much: 512MB")
@click.option("--reload", is_flag=True, help="Start anew when the project's code changes.")
@click.option("--once", is_flag=True, help="End as soon as nothing is due.")
@click.option("--no-schedules", is_flag=True, help="Fire no schedules.")
@click.option("--runner", hidden=True, help="What a worker starts its own processes with.")
@as_json
def worker(jobs: HenriJobs, *, once: bool, as_json: bool, **options: t.Any) -> None:
    """Perform jobs until stopped.

    Ctrl-C or SIGTERM stops it in order: what runs is finished within --grace, the rest is handed
    back. A second one ends the grace. With --once, --json prints how many jobs ended in which way.
    """
    if as_json and not once:
        raise click.UsageError("--json is for --once: another worker's output has no end.")
    runner = options.pop("runner")
    of_processes = {name: options.pop(name) for name in _OF_PROCESSES}
    how = {"schedules": not options.pop("no_schedules")} | options
    if once:
        _refuse(of_processes)
        _work_once(jobs, as_json=as_json, how=how)
    elif runner is not None:
        _work(jobs, how, _post(runner, of_processes))
    else:
        _supervise(jobs, how, of_processes["processes"])


def _refuse(of_processes: dict[str, t.Any]) -> None:
    for name, option in _OF_PROCESSES.items():
        if of_processes[name]:
            raise click.UsageError(f"{option} is for a worker that goes on, and --once ends.")


def _work_once(jobs: HenriJobs, *, as_json: bool, how: dict[str, t.Any]) -> None:
    with Tally().of(current_app._get_current_object()) as tally:  # type: ignore[attr-defined]
        _work(jobs, how, once=True)
    if as_json:
        print_json(tally.counts)
    else:
        click.echo(f"Performed: {tally}.")


def _supervise(jobs: HenriJobs, how: dict[str, t.Any], processes: int | None) -> None:
    from ..worker import supervise
    from ..worker.supervisor import this_command

    context = click.get_current_context()
    command = this_command(str(context.info_name))
    if command is None or os.name == "nt":
        # Nothing could start another process like this one.
        _work(jobs, how)
        return
    context.exit(supervise(jobs, command, processes=processes, grace=how["grace"]))


def _work(
    jobs: HenriJobs, how: dict[str, t.Any], post: Post | None = None, *, once: bool = False
) -> None:
    from ..worker import work

    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a task prints is seen at once, also in a container's log.
        sys.stdout.reconfigure(line_buffering=True)
    jobs.state.import_tasks()
    tell(f"Tasks known here: {', '.join(jobs.tasks) or _NO_TASKS}")
    work(jobs, once=once, post=post, **how)


def _post(runner: str, of_processes: dict[str, t.Any]) -> Post:
    from ..worker.post import Post
    from ..worker.recycling import Wear

    wear = Wear(of_processes["max_jobs"], of_processes["max_memory"])
    return Post.read(runner, wear=wear, reload=of_processes["reload"])
