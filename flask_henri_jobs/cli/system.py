"""Commands on the queue as a whole: its state, its collections, its configuration."""

from __future__ import annotations

import typing as t
from datetime import timedelta

import click

from ..job import STATES
from .command import jobs_command
from .failures import Refused
from .findings import configuration_findings
from .options import agreed, as_json, yes
from .output import in_colour, one_line, print_json, print_table, span, tell
from .pauses import print_pauses
from .queue_findings import queue_findings

if t.TYPE_CHECKING:
    from ..extension import HenriJobs
    from .findings import Finding


@jobs_command("status")
@as_json
def status(jobs: HenriJobs, *, as_json: bool) -> None:
    """Show each queue, how long its oldest due job has waited, and the tasks that wait."""
    found = jobs.status()
    if as_json:
        print_json(found)
        return
    titles = ("QUEUE", "PENDING", "RUNNING", "DONE", "DEAD", "OLDEST DUE", "PAUSED")
    print_table(titles, [_queue(queue) for queue in found["queues"]])
    unknown = found["unknown_tasks"]
    if found["waiting_tasks"]:
        click.echo()
        waiting = found["waiting_tasks"].items()
        rows = [(name, count, "no" if name in unknown else "yes") for name, count in waiting]
        print_table(("TASK", "WAITING", "KNOWN TO A WORKER"), rows)
    if pauses := jobs.pauses():
        click.echo()
        print_pauses(jobs, pauses)
    if not found["runners"]:
        tell("No worker runs: start one with 'flask jobs worker'.")
    elif unknown:
        tell(
            "Jobs of a task that no worker knows wait for ever. Is the module that declares it in"
            " HENRI_JOBS_IMPORTS, or is it another application's?"
        )


@jobs_command("install")
@as_json
def install(jobs: HenriJobs, *, as_json: bool) -> None:
    """Make the indexes that are missing. It may be repeated."""
    made = jobs.install()
    if as_json:
        print_json({"made": made})
    elif made:
        click.echo(f"Made {', '.join(made)}.")
    else:
        click.echo("Every index is there.")


@jobs_command("uninstall")
@yes
@as_json
def uninstall(jobs: HenriJobs, *, yes: bool, as_json: bool) -> None:
    """Drop the queue's collections, and with them every job."""
    settings = jobs.state.settings
    agreed(f"Drop {settings.collection} and what belongs to it, with every job?", yes)
    dropped = jobs.uninstall()
    if as_json:
        print_json({"dropped": dropped})
    else:
        click.echo(f"Dropped {', '.join(dropped) or 'nothing: there was none'}.")


@jobs_command("check", reaches=False)
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@as_json
def check(jobs: HenriJobs, *, repair: bool, as_json: bool) -> None:
    """Look for what is wrong with the settings, the tasks and what is stored.

    It changes nothing without --repair, and exits with 1 where something is left to be mended, so
    that a deploy stops there.
    """
    state = jobs.state
    report = _Report(as_json=as_json)
    for finding in configuration_findings(state, jobs.tasks):
        report.add(finding)
    try:
        state.reach()
        for found in queue_findings(state, jobs.tasks):
            report.add(found.finding, mended=repair and found.mend is not None and found.mend())
    finally:
        report.end()
    if report.left:
        raise Refused(f"{report.left} to be mended.")
    if not (as_json or report.findings):
        click.echo("Nothing found.")


class _Report:
    """What was found: printed as it comes, or as a list at the end.

    :ivar left: How much of it is not mended.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.findings: list[dict[str, t.Any]] = []
        self.left = 0
        self._as_json = as_json

    def add(self, finding: Finding, *, mended: bool = False) -> None:
        """Tell of a finding."""
        self.findings.append({**finding, "mended": mended})
        self.left += not mended
        if not self._as_json:
            about = in_colour(finding["about"], "green" if mended else "red")
            end = "Mended." if mended else one_line(finding["hint"])
            click.echo(f"{about}: {one_line(finding['message'])} {end}")

    def end(self) -> None:
        """Print the list, where it is for programs."""
        if self._as_json:
            print_json(self.findings)


def _queue(queue: dict[str, t.Any]) -> tuple[object, ...]:
    oldest = queue["oldest_ms"]
    waited = None if oldest is None else timedelta(milliseconds=oldest)
    counts = [queue[state] for state in STATES]
    return (queue["queue"], *counts, span(waited), "yes" if queue["paused"] else None)
