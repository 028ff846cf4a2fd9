"""The last look at a claimed job before it begins."""

from __future__ import annotations

import typing as t
from enum import Enum, auto

from ..errors import StoreUnavailable
from .loop import Wakeup

if t.TYPE_CHECKING:
    from ..job import Job
    from ..store.pauses import Pauses
    from .keeper import Keeper

RETRY_SECONDS = 0.5


class Leave(Enum):
    """What an executing thread may do with the job that is next."""

    BEGIN = auto()
    NOT_NOW = auto()
    """It goes back to its place: what it is of was paused since it was claimed (X4)."""
    LOST = auto()
    """It is another runner's (W4)."""


class Gate:
    """Lets a job begin, or not. It asks the database only where it was not told of late."""

    def __init__(self, keeper: Keeper, pauses: Pauses) -> None:
        self._keeper = keeper
        self._pauses = pauses
        self._pause = Wakeup()

    def leave_for(self, job: Job) -> Leave:
        """Return whether a job may begin now. With the database away, it waits for it."""
        if not self._keeper.may_begin(job):
            return Leave.LOST
        while True:
            try:
                return Leave.NOT_NOW if self._is_held(job) else Leave.BEGIN
            except StoreUnavailable:
                self._pause.sleep(RETRY_SECONDS)

    def _is_held(self, job: Job) -> bool:
        paused = self._pauses.for_a_start()
        return bool(paused) and paused.holds(job.row)
