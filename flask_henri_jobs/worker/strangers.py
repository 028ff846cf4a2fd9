"""Jobs whose task this process does not know, as in a rolling deploy (Q6)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..log import logger

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..clock import Moment
    from ..job import Document, Job
    from ..registry import Registry
    from ..store.claims import Claims

LEFT_ALONE_MS = 30_000
"""A stranger is left to others for so long after it fell due: five of anyone's polls (A12)."""

FIRST_WAIT_MS, LONGEST_WAIT_MS = 60_000, 3_600_000


@dataclass(slots=True)
class _Wait:
    """How long the jobs of an unknown task are sent away for, and since when it is that long."""

    ms: int
    since: Moment

    def after(self, now: Moment) -> _Wait:
        """Return the wait for those that are sent away now: twice as long each time it is over."""
        is_over = now - self.since >= self.ms
        return _Wait(min(2 * self.ms, LONGEST_WAIT_MS), now) if is_over else self


class Strangers:
    """Steps over the jobs of unknown tasks, and sends away those that nobody takes.

    A job that is sent away goes back with its attempt restored and a wait, so that it does not
    stand in front for ever; it is never lost.
    """

    def __init__(self, tasks: Registry, now: Callable[[], Moment]) -> None:
        self._tasks = tasks
        self._now = now
        self._waits: dict[str, _Wait] = {}
        self._unsent: list[Job] = []

    @property
    def known(self) -> Iterable[str]:
        """The names of the tasks that are known."""
        return self._tasks

    def are_wanted(self, row: Document) -> bool:
        """Whether a job is to be claimed: its task is known, or it stood there for too long."""
        return row["name"] in self._tasks or row["run_at"] + LEFT_ALONE_MS <= self._now()

    def taken_from(self, jobs: Sequence[Job]) -> list[Job]:
        """Keep the strangers among claimed jobs, to be sent away. Return the others."""
        self._unsent += [job for job in jobs if job.name not in self._tasks]
        return [job for job in jobs if job.name in self._tasks]

    def send_away(self, claims: Claims) -> list[Job]:
        """Put back the strangers that were taken. Return those that are cancelled, and dead.

        :raises StoreUnavailable: The next call tries those again that are left.
        """
        cancelled: list[Job] = []
        while self._unsent:
            name = self._unsent[0].name
            due = self._now() + self._wait_for(name)
            sent = [job for job in self._unsent if job.name == name]
            cancelled += claims.hand_back(sent, run_at=due).cancelled
            self._unsent = [job for job in self._unsent if job.name != name]
        return cancelled

    def _wait_for(self, name: str) -> int:
        now, wait = self._now(), self._waits.get(name)
        if wait is None:
            logger.warning(
                "No task is named %r here: its jobs are left to runners that know it.", name
            )
        self._waits[name] = wait.after(now) if wait else _Wait(FIRST_WAIT_MS, now)
        return self._waits[name].ms
