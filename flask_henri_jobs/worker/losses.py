"""Putting back at once what a process had that has died (W6)."""

from __future__ import annotations

import collections
import threading
import typing as t
from dataclasses import dataclass, field
from functools import partial

from ..clock import steady_seconds
from ..errors import StoreUnavailable
from ..job import PENDING
from ..log import logger
from ..logs import about
from ..signals import emit_cancelled
from ..store.leases import AFTER, WHILE, JobLocked
from .housekeeping import tell_recovered
from .loop import Loop, Outages
from .machine import born_at, this_machine
from .telling import tell

if t.TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from flask import Flask

    from ..job import Job
    from ..store import Store

REPEATED_AFTER = (1.0, 5.0, 30.0)
"""Seconds after which it is repeated: a claim in flight takes effect after its process (A5)."""

AGAIN_SECONDS = 1.0
IDLE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A process that is gone, and may have left jobs behind.

    :param runner: Its runner's id.
    :param begun: The ids of the jobs that it was performing.
    :param performed: The ids of those that had returned, and whose outcome may not be stored.
    :param committing: The ids of those that were about to end in their transactions.
    :param reason: How it went, such as ``"was killed by signal 9"``.
    :param suspect: Whether one of those jobs may be why.
    :param is_certain: Whether nothing of it can take effect any more.
    """

    runner: str
    begun: Sequence[str]
    reason: str
    suspect: bool
    performed: Sequence[str] = ()
    committing: Sequence[str] = ()
    is_certain: bool = False


@dataclass(slots=True)
class _Due:
    """When a loss is looked at next, and after which times it is looked at again."""

    loss: Loss
    at: float
    repeats: list[float]
    is_first: bool = field(default=True)


class _Locked(t.NamedTuple):
    """A job that could not be put back: a transaction that is open on the server may lock it."""

    loss: Loss
    job_id: str
    at: float


class Losses:
    """Puts back what is left of processes, in a thread: no other waits for the database.

    :param open_store: Returns the store for a block. It is called when there is something to do.
    :param on_suspects: Called when suspects were put back and wait.
    """

    def __init__(
        self,
        app: Flask,
        open_store: Callable[[], AbstractContextManager[Store]],
        on_suspects: Callable[[], None],
    ) -> None:
        self._app = app
        self._open_store = open_store
        self._on_suspects = on_suspects
        self._outages = Outages()
        self._due: collections.deque[_Due] = collections.deque()
        self._locked: collections.deque[_Locked] = collections.deque()
        self._lock = threading.Lock()
        self._look_at: float | None = 0.0
        self._loop = Loop("henri-jobs-losses", self._round)

    def start(self) -> None:
        """Start putting back what :meth:`add` is given, and what dead runners of this machine have.

        A worker that is killed whole has nobody left to do that for it; the next one does.
        """
        self._loop.start()

    def add(self, loss: Loss) -> None:
        """Have a process's jobs put back now, and looked for again."""
        now = steady_seconds()
        repeats = [] if loss.is_certain else [now + after for after in REPEATED_AFTER]
        with self._lock:
            self._due.append(_Due(loss, now, repeats))
        self._loop.wake()

    def finish(self, timeout: float) -> None:
        """Put back what was not yet, once, and end. Others find what is left by its heartbeat."""
        if self._loop.stop(timeout):
            for due in self._due:
                if due.is_first:
                    self._put_back(due.loss)
            for _ in range(len(self._locked)):
                self._try_locked()

    def _round(self) -> float:
        now = steady_seconds()
        if self._look_at is not None and self._look_at <= now:
            self._look_at = None if self._answers(self._look_for_dead) else now + AGAIN_SECONDS
        for due in [one for one in self._due if one.at <= now]:
            if not self._put_back(due.loss):
                due.at = now + AGAIN_SECONDS
                continue
            due.is_first = False
            if due.repeats:
                due.at = due.repeats.pop(0)
            else:
                with self._lock:
                    self._due.remove(due)
        if self._locked and self._locked[0].at <= now:
            # One a round: what another process had comes before the next.
            self._try_locked()
        with self._lock:
            waits = [*[due.at for due in self._due], *[locked.at for locked in self._locked]]
            next_at = min(waits, default=now + IDLE_SECONDS)
        return max(0.0, min(next_at, self._look_at or next_at) - steady_seconds())

    def _look_for_dead(self) -> None:
        if (machine := this_machine()) is None:
            return
        with self._open_store() as store:
            runners = store.runners.of_machine(machine)
        for runner in runners:
            if born_at(runner.pid) != runner.born:
                reason = "was killed with its worker"
                self.add(Loss(runner=runner.id, begun=runner.jobs, reason=reason, suspect=True))

    def _put_back(self, loss: Loss) -> bool:
        """Put back what a process has. Return whether the database answered to all of it."""
        # Their transactions may be open on the server for a while: the others come first (X2).
        for job_id in loss.committing:
            self._note_locked(loss, job_id)
        with self._open_store() as store:
            answered = [
                self._answers(self._hand_back, store, loss),
                *[
                    self._answers(self._recover, store, loss, job_id)
                    for job_id in [*loss.begun, *loss.performed]
                ],
                self._answers(store.permits.release_all_of, loss.runner),
            ]
            return all(answered) and self._answers(self._strike_off, store, loss.runner)

    def _note_locked(self, loss: Loss, job_id: str, at: float = 0.0) -> None:
        if not self._is_locked(job_id):
            self._locked.append(_Locked(loss, job_id, at))

    def _is_locked(self, job_id: str) -> bool:
        return any(locked.job_id == job_id for locked in self._locked)

    def _try_locked(self) -> None:
        """Put back one job whose document may be locked, or see to it later."""
        locked = self._locked.popleft()
        with self._open_store() as store:
            if not self._answers(self._recover, store, locked.loss, locked.job_id):
                self._note_locked(locked.loss, locked.job_id, steady_seconds() + AGAIN_SECONDS)
            self._answers(self._strike_off, store, locked.loss.runner)

    def _strike_off(self, store: Store, runner: str) -> None:
        """Take a runner out of the living, once nothing of it is left."""
        if all(locked.loss.runner != runner for locked in self._locked):
            store.runners.remove(runner)

    def _answers(self, ask: Callable[..., object], *args: t.Any) -> bool:
        try:
            with self._outages.asking():
                ask(*args)
        except StoreUnavailable:
            return False
        return True

    def _hand_back(self, store: Store, loss: Loss) -> None:
        begun = [*loss.begun, *loss.performed, *loss.committing]
        back = store.leases.hand_back_from(loss.runner, begun)
        if back.returned:
            logger.warning("%s %s: handed back %d.", loss.runner, loss.reason, back.returned)
        for job in back.cancelled:
            tell(self._app, partial(emit_cancelled, job=job))

    def _recover(self, store: Store, loss: Loss, job_id: str) -> None:
        if self._is_locked(job_id):
            return
        # Of one that had returned the attempt counts as well: the task has done what it does. It
        # is not why the process is gone.
        is_suspect = loss.suspect and job_id in loss.begun
        when = WHILE if job_id in loss.begun else AFTER
        try:
            recovered = store.leases.recover_from(
                loss.runner, loss.reason, [job_id], suspect=is_suspect, when=when
            )
        except JobLocked as error:
            logger.debug(error.message)
            self._note_locked(loss, job_id, steady_seconds() + AGAIN_SECONDS)
            return
        self._tell_of(recovered, loss.runner, f"{loss.reason} {when}")
        if is_suspect and any(job.state == PENDING for job in recovered):
            self._on_suspects()

    def _tell_of(self, recovered: list[Job], runner: str, reason: str) -> None:
        for job in recovered:
            with about(job):
                logger.warning("Put back %r: %s %s.", job, runner, reason)
            tell_recovered(self._app, job)
