"""``flask jobs limits``."""

from __future__ import annotations

import typing as t

from .command import jobs_command
from .jobs import server_time
from .options import as_json
from .output import NOTHING, age, print_json, print_table

if t.TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ..extension import HenriJobs
    from ..limit_status import LimitStatus


@jobs_command("limits")
@as_json
def limits(jobs: HenriJobs, *, as_json: bool) -> None:
    """Show how many of what may run at once, and who holds a permit for which job."""
    statuses = jobs.limits()
    if as_json:
        print_json([status.to_dict() for status in statuses])
        return
    now = server_time(jobs)
    titles = ("GROUP", "LIMIT", "KEY", "SLOT", "JOB", "HELD", "RUNNER")
    print_table(titles, [row for status in statuses for row in _rows(status, now)])


def _rows(status: LimitStatus, now: datetime) -> Iterator[tuple[object, ...]]:
    limit = NOTHING if status.limit is None else status.limit
    if not status.held:
        yield status.group, limit, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING
    for permit in status.held:
        held = age(permit.taken_at, now)
        job = permit.job_id or NOTHING
        yield status.group, limit, permit.key, permit.slot, job, held, permit.runner
