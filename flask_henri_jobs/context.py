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
    from contextlib import AbstractContextManager
    from datetime import datetime

    from .clock import Moment
    from .job import Document
    from .kept_lines import KeptLines
    from .store.connection import Client
    from .store.job_transactions import JobSession

R = t.TypeVar("R")

_SLOT = re.compile(r"recurring:.*:(\d+)", re.DOTALL)

_running: ContextVar[RunningJob | None] = ContextVar("flask_henri_jobs.running", default=None)


class Transactional(t.Protocol):
    """What makes the transaction of the job in hand."""

    def block(self, client: Client | None) -> AbstractContextManager[JobSession]:
        """Run a block in it."""
        ...

    def run(self, work: Callable[[JobSession], R], client: Client | None) -> R:
        """Call a function in it, again where that was aborted."""
        ...


class RunningJob(Job):
    """The job in hand, as its task sees it."""

    __slots__ = ("_has_heeded", "_is_cancelled", "_track", "_transactional", "lines")

    def __init__(
        self,
        job: Job,
        track: Track | None = None,
        lines: KeptLines | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(job.row, job._rows)
        self._is_cancelled = is_cancelled
        self._has_heeded = False
        self.lines = lines
        """What its log lines go to; None where it keeps none."""
        self._track = Track(job) if track is None else track
        self._transactional: Transactional | None = None

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
            self._has_heeded = True
        return self._has_heeded

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

    def transaction(self, client: Client | None = None) -> AbstractContextManager[JobSession]:
        """Return a ``with`` statement in whose transaction the job ends: its effects are there
        once (X2).

        Its value is a session of the driver's, for ``session=`` of the task's own writes. They and
        the job's outcome are committed together at the end of the block: after any crash all of
        them are there and the job is done, or none is and the job runs again. What the task does
        after the block changes nothing about the job. What ``store_result`` is to store is set in
        the block: ``session.result = ...``.

        :param client: The ``MongoClient`` that the task writes with; None for ``jobs.client``.
        :raises TransactionRefused: The attempt has had its transaction; the server is in no
            replica set; or the client is of another deployment.
        :raises TransactionAborted: At the end, or for what the driver raised within: the server
            has aborted it. The job goes back and its attempt does not count.
        """
        assert self._transactional is not None
        return self._transactional.block(client)

    def run_in_transaction(
        self, work: Callable[[JobSession], R], client: Client | None = None
    ) -> R:
        """Call a function in the transaction in which the job ends, and return what it returns.

        It is called again, in a transaction of its own each time, where that was aborted by no
        fault of the task, up to ten times. What it returns is also the job's result, unless it
        has set another.

        :param work: Takes the session. It must do no harm when it is called again.
        :raises TransactionRefused: As :meth:`transaction` does.
        :raises TransactionAborted: The last of its transactions was aborted as well.
        """
        assert self._transactional is not None
        return self._transactional.run(work, client)


def left_by(running: RunningJob, at: Moment) -> Document:
    """Return the fields that an attempt leaves with its job, at its end."""
    lines = {} if running.lines is None else running.lines.left()
    return running._track.left(at) | lines


def be_transactional(running: RunningJob, by: Transactional) -> None:
    """Give the job in hand what makes its transaction (X2)."""
    running._transactional = by


def track_of(running: RunningJob) -> Track:
    """Return the progress of the job in hand."""
    return running._track


def has_heeded(running: RunningJob) -> bool:
    """Whether the task of a job in hand has asked whether it is cancelled, and it was."""
    return running._has_heeded


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
