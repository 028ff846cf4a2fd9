"""Jobs whose task this process does not know, as in a rolling deploy (Q6)."""

from __future__ import annotations

import logging
import typing as t

if t.TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..clock import Moment
    from ..job import Document, Job
    from ..registry import Registry
    from ..store.claims import Claims

logger = logging.getLogger("flask_henri_jobs")

LEFT_ALONE_MS = 30_000
"""A stranger is left to others for so long after it fell due: five of anyone's polls (A12)."""

FIRST_WAIT_MS, LONGEST_WAIT_MS = 60_000, 3_600_000


class Strangers:
    """Steps over the jobs of unknown tasks, and sends away those that nobody takes.

    A job that is sent away goes back with its attempt restored and a wait, so that it does not
    stand in front for ever; it is never lost.
    """

    def __init__(self, tasks: Registry, now: Callable[[], Moment]) -> None:
        self._tasks = tasks
        self._now = now
        self._waits: dict[str, int] = {}

    def are_wanted(self, row: Document) -> bool:
        """Whether a job is to be claimed: its task is known, or it stood there for too long."""
        return row["name"] in self._tasks or row["run_at"] + LEFT_ALONE_MS <= self._now()

    def sent_away(self, jobs: Sequence[Job], claims: Claims) -> list[Job]:
        """Put back the strangers among claimed jobs. Return the others."""
        unknown = [job for job in jobs if job.name not in self._tasks]
        if not unknown:
            return list(jobs)
        for name in {job.name for job in unknown}:
            self._send_away([job for job in unknown if job.name == name], name, claims)
        return [job for job in jobs if job.name in self._tasks]

    def _send_away(self, jobs: list[Job], name: str, claims: Claims) -> None:
        if name not in self._waits:
            logger.warning(
                "No task is named %r here: its jobs are left to runners that know it.", name
            )
        wait = min(2 * self._waits.get(name, FIRST_WAIT_MS // 2), LONGEST_WAIT_MS)
        self._waits[name] = wait
        claims.hand_back(jobs, run_at=self._now() + wait)
