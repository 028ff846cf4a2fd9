"""``flask jobs runners``: who performs jobs now, and which."""

from __future__ import annotations

import typing as t

from ..clock import to_datetime
from ..pause import QUEUE
from ..queues import QueueSelection
from .command import jobs_command
from .options import as_json
from .output import age, print_json, print_table

if t.TYPE_CHECKING:
    from datetime import datetime

    from ..extension import HenriJobs
    from ..store.runners import LiveRunner

MOST_SHOWN = 3


@jobs_command("runners")
@as_json
def runners(jobs: HenriJobs, *, as_json: bool) -> None:
    """Show the processes that perform jobs, since when, from which queues, and what they do."""
    alive = jobs.runners()
    paused = [pause.name for pause in jobs.pauses() if pause.kind == QUEUE]
    if as_json:
        print_json([one.to_dict() | {"paused": _paused_for(one, paused)} for one in alive])
        return
    now = to_datetime(jobs.state.store.clock.now())
    titles = ("RUNNER", "SINCE", "SEEN", "QUEUES", "THREADS", "TASKS", "DOING")
    print_table(titles, [_row(runner, paused, t.cast("datetime", now)) for runner in alive])


def _paused_for(runner: LiveRunner, paused: list[str]) -> list[str]:
    """Return the queues that a runner would take from, were they not paused."""
    selection = QueueSelection.read(runner.queues, "queues")
    return [queue for queue in paused if selection.covers(queue)]


def _row(runner: LiveRunner, paused: list[str], now: datetime) -> tuple[object, ...]:
    held = ", ".join(_paused_for(runner, paused))
    return (
        runner.id,
        age(runner.started_at, now),
        age(runner.heartbeat_at, now),
        runner.queues
        + (" (suspects)" if runner.role == "suspects" else "")
        + (f" (paused: {held})" if held else ""),
        runner.threads,
        len(runner.tasks),
        _doing(runner),
    )


def _doing(runner: LiveRunner) -> str:
    names = [job.name for job in runner.doing[:MOST_SHOWN]]
    more = len(runner.doing) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
