"""The repeatable duties that any runner may do at any time."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from datetime import timedelta

from .. import signals
from ..clock import steady_seconds
from ..durations import millis
from ..job import DEAD, DONE
from ..log import logger
from ..logs import about
from ..signals import emit_cancelled, emit_safely
from .loop import Loop
from .telling import tell

if t.TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flask import Flask

    from ..job import Job
    from ..settings import Settings
    from ..store import Store
    from .aftermath import Aftermath
    from .loop import Outages

ROUND_SECONDS = 1.0
BATCHES_SECONDS = 5.0

BATCHES_KEPT = timedelta(hours=1)
"""For how long a finished batch is kept at least: its callback may look at it."""
SHORTEST_KEPT_MS = 1000
PRUNING_SECONDS = 5.0
"""How long one round deletes, a thousand jobs at a time; the next goes on from there."""


@dataclass(slots=True)
class Duty:
    """One thing to be done from time to time. Every write of it is conditional.

    So it may be done by several runners at once, or twice, and none is elected.

    :param every: Seconds between its rounds.
    """

    name: str
    every: float
    do: Callable[[], object]
    due_at: float = 0.0


def tell_recovered(app: Flask, job: Job) -> None:
    """Send the signals of a job that was put back or buried by a recovery."""

    def send(app: Flask) -> None:
        emit_safely(signals.job_recovered, app, job=job)
        if job.dead_reason == "cancelled":
            emit_cancelled(app, job)
        elif job.state == DEAD:
            emit_safely(signals.job_died, app, job=job, error=None, attempt=job.attempts)

    tell(app, send)


class Housekeeping:
    """Does each duty when it is due.

    :param more: Duties that come first, of the runner's own.
    """

    def __init__(
        self,
        app: Flask,
        store: Store,
        settings: Settings,
        outages: Outages,
        aftermath: Aftermath,
        more: Sequence[Duty] = (),
    ) -> None:
        self._app = app
        self._store = store
        self._settings = settings
        self._aftermath = aftermath
        self._duties = [*more, *self._declared()]
        self._outages = outages
        self._loop = Loop("henri-jobs-housekeeping", self.round)

    def start(self) -> None:
        """Start the rounds."""
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """End them."""
        return self._loop.stop(timeout)

    def round(self) -> float:
        """Do what is due. Return the seconds until something is."""
        for duty in self._duties:
            if duty.due_at <= steady_seconds():
                # Set first: a duty that fails is tried again at its own pace, and holds up none.
                duty.due_at = steady_seconds() + duty.every
                with self._outages.asking():
                    duty.do()
        return max(0.0, min(duty.due_at for duty in self._duties) - steady_seconds())

    def recover(self) -> None:
        """Put back the jobs whose runner stopped answering (Q4)."""
        recovered = self._store.leases.recover(self._settings.stuck_after)
        self._see_to(recovered, "Recovered %r from a runner that stopped answering.")

    def put_back(self, runner: str, why: str) -> None:
        """Put back at once what outlasted a runner's grace. It keeps its attempt, which did begin.

        :param why: What its history says of the runner.
        """
        with self._outages.tolerated():
            recovered = self._store.leases.recover_from(runner, why, suspect=False)
            self._see_to(recovered, "Put back %r, which outlasted the grace.")

    def sweep_permits(self) -> None:
        """Free the permits of runners that stopped answering (L3)."""
        for permit in self._store.permits.sweep(self._settings.stuck_after):
            logger.warning("Freed the permit %s#%d of %s.", permit.key, permit.slot, permit.runner)

    def prune(self) -> None:
        """Delete a step of what has been kept long enough (Q12)."""
        for state, kept in ((DONE, self._settings.keep_done), (DEAD, self._settings.keep_dead)):
            if kept is not None:
                self._prune(state, kept)
        if self._settings.keep_done is not None:
            kept = max(self._settings.keep_done, BATCHES_KEPT)
            self._store.batches.prune(self._store.clock.now() - millis(kept))

    def _see_to(self, recovered: Sequence[Job], text: str) -> None:
        self._aftermath.count(recovered)
        for job in recovered:
            with about(job):
                logger.warning(text, job)
            tell_recovered(self._app, job)

    def _prune(self, state: str, kept: timedelta) -> None:
        # A second at least: a job that has just ended may not be announced yet.
        before = self._store.clock.now() - max(millis(kept), SHORTEST_KEPT_MS)
        deadline = steady_seconds() + PRUNING_SECONDS
        while self._store.pruning.prune(state, before) and steady_seconds() < deadline:
            pass

    def _declared(self) -> list[Duty]:
        settings = self._settings
        recovery = min(30.0, max(0.2, settings.stuck_after.total_seconds() / 10))
        shortest = min(
            (kept for kept in (settings.keep_done, settings.keep_dead) if kept is not None),
            default=settings.stuck_after,
        )
        pruning = min(60.0, max(ROUND_SECONDS, shortest.total_seconds() / 10))
        return [
            Duty("recovery", recovery, self.recover),
            Duty("sweep of permits", recovery, self.sweep_permits),
            Duty("sweep of batches", BATCHES_SECONDS, self._aftermath.sweep),
            Duty("pruning", pruning, self.prune),
        ]
