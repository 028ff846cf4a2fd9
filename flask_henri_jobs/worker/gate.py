"""The last look at a claimed job before it begins."""

from __future__ import annotations

import typing as t
from enum import Enum, auto

from ..clock import steady_seconds
from ..errors import StoreUnavailable
from ..store.rates import Wanted
from .loop import Wakeup

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from ..job import Job
    from ..rate import Lane
    from ..store.pauses import Pauses
    from ..store.rates import Rates
    from .keeper import Keeper

RETRY_SECONDS = 0.5


class Leave(Enum):
    """What an executing thread may do with the job that is next."""

    BEGIN = auto()
    NOT_NOW = auto()
    """It goes back to its place: since it was claimed, what it is of was paused, or others spent
    its rate (X4)."""
    LOST = auto()
    """It is another runner's (W4)."""


class Gate:
    """Lets a job begin, or not. It asks the database only where it was not told of late."""

    def __init__(
        self, keeper: Keeper, pauses: Pauses, rates: Rates, lanes: Mapping[str, Lane]
    ) -> None:
        self._keeper = keeper
        self._pauses = pauses
        self._rates = rates
        self._lanes = lanes
        self._pause = Wakeup()

    def leave_for(self, job: Job) -> Leave:
        """Return whether a job may begin now. With the database away, it waits for it."""
        if not self._keeper.may_begin(job):
            return Leave.LOST
        while True:
            try:
                return self._leave_for(job)
            except StoreUnavailable:
                self._pause.sleep(RETRY_SECONDS)

    def _leave_for(self, job: Job) -> Leave:
        return Leave.NOT_NOW if self._is_held(job) or not self._has_start(job) else Leave.BEGIN

    def _is_held(self, job: Job) -> bool:
        paused = self._pauses.for_a_start()
        return bool(paused) and paused.holds(job.row)

    def _has_start(self, job: Job) -> bool:
        """Whether the job may begin by its task's rate: its start is counted, with the claim or
        now."""
        lane = self._lanes.get(job.name)
        if lane is None or lane.rate is None:
            return True
        start, job.start = job.start, None
        if start is None:
            # It was claimed alone, or others were faster.
            wanted = Wanted(lane.rate_bucket(job.concurrency_key), lane.rate, job)
            start = self._rates.take_one(wanted)
        while start is not None and steady_seconds() >= start.until:
            # The way here was long, and the start would be later than it was counted.
            start = self._rates.renew(start, lane.rate, job)
        return start is not None
