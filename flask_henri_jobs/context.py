"""What the code that runs now belongs to: the job in hand."""

from __future__ import annotations

import re
import typing as t
from contextvars import ContextVar

from .clock import to_datetime
from .errors import OutsideJob
from .job import Job
from .progress import Progress, Track

if t.TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from .clock import Moment
    from .job import Document
    from .kept_lines import KeptLines

_SLOT = re.compile(r"recurring:.*:(\d+)", re.DOTALL)

_running: ContextVar[RunningJob | None] = ContextVar("flask_henri_jobs.running", default=None)


class RunningJob(Job):
    """The job in hand, as its task sees it."""

    __slots__ = ("_is_cancelled", "_track", "has_heeded", "lines")

    def __init__(
        self,
        job: Job,
        track: Track | None = None,
        lines: KeptLines | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(job.row, job._rows)
        self._is_cancelled = is_cancelled
        self.has_heeded = False
        """Whether the task has asked whether it is cancelled, and it was."""
        self.lines = lines
        """What its log lines go to; None where it keeps none."""
        self._track = Track(job) if track is None else track

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.attempts

    @property
    def due_at(self) -> datetime:
        """The moment the job was due at; for a recurring job, the slot of its schedule (S8)."""
        # A retry moves run_at, and not the slot.
        slot = _SLOT.fullmatch(self.unique_key or "")
        return t.cast("datetime", to_datetime(int(slot[1]))) if slot else self.run_at

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the end of the job (W8).

        It is cheap enough for every turn of a loop. A task that has seen it true and returns has
        stopped, and its job is dead as cancelled.
        """
        if self._is_cancelled():
            self.has_heeded = True
        return self.has_heeded

    def set_progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Say how far the job is. Outside a job it does nothing (X3).

        It is cheap enough for every turn of a loop: about twice a second what was said last is
        stored, by another thread, and at the end of the attempt in any case.

        :param done: How much is done, in whatever unit.
        :param total: How much there is to do, in the same unit.
        :param message: For people; what is longer than 512 bytes is cut.
        :raises ConfigError: It is no number from 0 on, or no text.
        """
        self._track.set(Progress.read(done, total, message))


def left_by(running: RunningJob, at: Moment) -> Document:
    """Return the fields that an attempt leaves with its job, at its end."""
    lines = {} if running.lines is None else running.lines.left()
    return running._track.left(at) | lines


class CurrentJob:
    """Stands for the job in hand, wherever it is used. Outside a job it is false."""

    def __bool__(self) -> bool:
        return _running.get() is not None

    def set_progress(self, *args: t.Any, **kwargs: t.Any) -> None:
        """Say how far the job is, if there is one: a task's function may be called by anybody."""
        running = _running.get()
        if running is not None:
            running.set_progress(*args, **kwargs)

    def __getattr__(self, name: str) -> t.Any:
        running = _running.get()
        if running is None:
            raise OutsideJob(
                f"current_job.{name} was asked for outside a job.",
                hint="Check 'if current_job:' first, or call it from a task that a worker runs.",
            )
        return getattr(running, name)

    def __repr__(self) -> str:
        running = _running.get()
        return repr(running) if running is not None else "<no current job>"


current_job: RunningJob = t.cast("RunningJob", CurrentJob())
"""The job in hand; false outside a job."""


def job_in_hand() -> RunningJob | None:
    """Return the job in hand, if there is one."""
    return _running.get()


class entered:  # noqa: N801 - used as a statement
    """A ``with`` statement in which a job is the one in hand."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running

    def __enter__(self) -> RunningJob:
        self._token = _running.set(self._running)
        return self._running

    def __exit__(self, *raised: object) -> None:
        _running.reset(self._token)
