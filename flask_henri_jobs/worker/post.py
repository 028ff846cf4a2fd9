"""A runner's side of its supervisor: what it was told, what it tells, and whether it is there."""

from __future__ import annotations

import os
import threading
import typing as t
from dataclasses import dataclass, field
from enum import StrEnum

from ..log import logger
from .loop import Loop
from .marks import Marks
from .recycling import RELOAD_SECONDS, Sources, Wear

if t.TYPE_CHECKING:
    from collections.abc import Callable


class Role(StrEnum):
    """Which jobs a runner performs."""

    ALONE = "alone"
    """All, without a supervisor: a suspect when it has nothing else in hand."""
    JOBS = "jobs"
    """All but suspects."""
    SUSPECTS = "suspects"
    """Suspects, one at a time."""


@dataclass(kw_only=True, slots=True)
class Post:
    """The place that a runner has in a worker.

    :param lifeline: The reading end of a pipe that only the supervisor holds open, and for as
        long as it lives.
    :param reload: Whether it ends when the project's code changes.
    """

    role: Role = Role.ALONE
    marks: Marks = field(default_factory=Marks)
    lifeline: int | None = None
    wear: Wear = field(default_factory=Wear)
    reload: bool = False
    _reloading: Loop | None = None

    @classmethod
    def read(cls, text: str, **how: t.Any) -> Post:
        """Return the post that a supervisor gave this process on its command line."""
        role, lifeline, marks = text.split(":")
        for descriptor in (lifeline, marks):
            # What a task starts must not hold on to them.
            os.set_inheritable(int(descriptor), False)
        return cls(role=Role(role), lifeline=int(lifeline), marks=Marks(int(marks)), **how)

    def text_for(self) -> str:
        """Return it as it is written on a command line."""
        return f"{self.role}:{self.lifeline}:{self.marks.descriptor}"

    def watch(self, stop: Callable[[], None]) -> None:
        """Have ``stop`` called when the supervisor is gone, or the code has changed."""
        if self.lifeline is not None:
            threading.Thread(
                target=self._await_loss, args=(stop,), name="henri-jobs-lifeline", daemon=True
            ).start()
        if self.reload:
            self._reloading = _reloading(stop)
            self._reloading.start()

    def _await_loss(self, stop: Callable[[], None]) -> None:
        assert self.lifeline is not None
        # Nothing is ever written: the read returns at the end of the last process that might.
        os.read(self.lifeline, 1)
        logger.warning("The supervisor is gone: this runner stops as well.")
        stop()


def _reloading(stop: Callable[[], None]) -> Loop:
    sources = Sources()

    def look() -> float:
        if path := sources.changed():
            logger.warning("%s has changed: this runner is started again.", path)
            stop()
        return RELOAD_SECONDS

    return Loop("henri-jobs-reload", look)
