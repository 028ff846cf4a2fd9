"""Group commit: outcomes that are ready go in one write, and are announced when they stand (W2)."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import typing as t
from dataclasses import dataclass
from functools import partial

from .. import signals
from ..errors import StoreUnavailable
from ..job import DEAD
from ..log import logger
from ..outcome import Again, Dead, Done, HandedBack, Snoozed, cancelled
from ..signals import emit_cancelled, emit_safely
from .loop import Loop
from .outcome_log import OutcomeLog
from .telling import tell

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blinker import NamedSignal
    from flask import Flask

    from ..job import Job
    from ..store.outcomes import Outcomes
    from .execution import Ending
    from .loop import Outages

MOST_AT_ONCE = 200
MOST_REFUSALS = 3
MOST_OUTSTANDING = 2 * MOST_AT_ONCE
"""Outcomes that wait to be written; a thread that has one more waits (A8)."""

SPACING_SECONDS = 0.01
"""Between the begins of two writes, where the outcomes of other jobs in hand are still to come.

Without it, jobs of 20 ms on 8 threads are written by twos, and a third of all that a runner costs
is for that: 1.1 ms of a processor for each job against 0.7 (measured). The threads wait for the
interpreter meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Settled:
    """An attempt whose outcome is written.

    :param job: The job as it is stored now; None where the claim was lost, and the outcome with it.
    """

    ending: Ending
    job: Job | None


class Committer:
    """Writes the outcomes of a runner's attempts.

    An executing thread hands its outcome over and takes the next job. No thread waits for a fuller
    group. A write waits until some milliseconds after the one before it, where more outcomes are
    to come and nobody waits for what these free.

    :param in_hand: Returns how many claimed jobs have no outcome written yet.
    :param followed_up: Called with what ended, once that is written and before it is announced:
        permits are given back and batches counted. It may be called again with the same.
    :param let_go: Called with what ended, once, when nothing is left to do for it in the database.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        announcer: Announcer,
        followed_up: Callable[[list[Settled]], None],
        let_go: Callable[[list[Settled]], None],
        outages: Outages,
        in_hand: Callable[[], int],
    ) -> None:
        self._outcomes = outcomes
        self._announcer = announcer
        self._followed_up = followed_up
        self._let_go = let_go
        # One group is in hand while the next one fills this.
        self._ready: queue.Queue[Ending | None] = queue.Queue(MOST_OUTSTANDING - MOST_AT_ONCE)
        self._outages = outages
        self._in_hand = in_hand
        self._hurry = threading.Event()
        self._next_write_at = 0.0
        self._group: list[Ending] = []
        self._settled: list[Settled] = []
        self._writing = _Tries()
        self._following = _Tries()
        self._is_last = False
        self._ended = threading.Event()
        self._loop = Loop("henri-jobs-committer", self._round)

    def start(self) -> None:
        """Start writing."""
        self._loop.start()

    def hand_over(self, ending: Ending) -> None:
        """Have an outcome written and announced. It returns at once, unless very many wait."""
        self._ready.put(ending)
        if ending.job.permit or isinstance(ending.outcome, HandedBack):
            # What it frees is of use to others at once. It is in the queue by now, and in the group
            # that this ends the waiting for.
            self._hurry.set()

    def finish(self, timeout: float) -> bool:
        """Write what was handed over, and end. Return whether that was done in time."""
        try:
            self._ready.put(None, timeout=timeout)
        except queue.Full:
            # No database for so long that a whole queue of outcomes waits for it.
            return False
        self._hurry.set()
        return self._ended.wait(timeout) and self._loop.stop(timeout)

    def _round(self) -> float:
        """See one group through. Where it met no database, the next round goes on with it."""
        if not self._group and not self._settled:
            self._group = self._take_ready()
        if not self._group and not self._settled:
            self._ended.set()
            return 1.0
        with self._outages.asking():
            if not self._settled:
                self._settled = self._write()
            self._follow_up()
        self._let_go(self._settled)
        for settled in self._settled:
            self._announcer.announce(settled)
        self._settled = []
        return 0.0

    def _take_ready(self) -> list[Ending]:
        """Wait for an outcome, and return all that are there; none at the end."""
        group: list[Ending] = []
        self._fill(group, block=True)
        wait = self._next_write_at - time.monotonic()
        if wait > 0 and not self._is_last and len(group) < self._in_hand():
            self._hurry.wait(wait)
            self._hurry.clear()
            self._fill(group)
        self._next_write_at = time.monotonic() + SPACING_SECONDS
        return group

    def _fill(self, group: list[Ending], *, block: bool = False) -> None:
        """Add the outcomes that are there to a group."""
        while not self._is_last and len(group) < MOST_AT_ONCE:
            try:
                ending = self._ready.get(block=block and not group)
            except queue.Empty:
                break
            if ending is None:
                self._is_last = True
            else:
                group.append(ending)

    def _write(self) -> list[Settled]:
        # An outcome that the database refuses holds up no other: its group is written one by one
        # then, and it is dropped. Its job has no more heartbeats, and is recovered in time.
        part = self._group[: 1 if self._writing.refusals else None]
        now: Sequence[Job | None] = [None]
        if self._writing.are_over:
            logger.error("The ending of %r cannot be stored, and is dropped.", part[0].job)
        else:
            with self._writing.counted():
                now = self._written(part)
        self._group = self._group[len(part) :]
        self._writing.refusals = 1 if self._writing.refusals and self._group else 0
        return [Settled(_as_written(*each), each[1]) for each in zip(part, now, strict=True)]

    def _written(self, part: list[Ending]) -> list[Job | None]:
        """Write outcomes, but for those that stand already. Return the jobs as they are now."""
        endings = [(one.job, one.outcome) for one in part if one.stands is None]
        now = iter(self._outcomes.write_many(endings) if endings else ())
        return [next(now) if one.stands is None else one.stands for one in part]

    def _follow_up(self) -> None:
        # What the database refuses to be told here is mended by a sweep, and holds up no outcome.
        if not self._following.are_over:
            with self._following.counted():
                self._followed_up(self._settled)
        self._following.refusals = 0


def _as_written(ending: Ending, job: Job | None) -> Ending:
    """Return an ending with the outcome that stands: a cancelled job did not go back (W8)."""
    if job is not None and job.row["state"] == DEAD:
        match ending.outcome:
            case Again() | Snoozed():
                ending.outcome = cancelled(ending.job, ending.outcome)
    return ending


@dataclass(slots=True)
class _Tries:
    """How often the database has refused something. That it is away is no refusal."""

    refusals: int = 0

    @property
    def are_over(self) -> bool:
        """Whether trying it again is of no use."""
        return self.refusals >= MOST_REFUSALS

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count a refusal where the block raises one."""
        self.refusals += 1
        try:
            yield
        except StoreUnavailable:
            self.refusals -= 1
            raise
        self.refusals -= 1


class Announcer:
    """Sends the signals of outcomes, in the order of their writes, in a thread of its own.

    A slow receiver holds up no commit, until so many announcements wait that threads must (W2).
    """

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._log = OutcomeLog()
        self._waiting: queue.Queue[Callable[[Flask], None] | None] = queue.Queue(MOST_OUTSTANDING)
        self._thread = threading.Thread(target=self._run, name="henri-jobs-announcer", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def announce(self, settled: Settled) -> None:
        """Have an outcome told."""
        self._waiting.put(partial(self._tell_of, settled))

    def tell(self, signal: NamedSignal, **facts: t.Any) -> None:
        """Have a signal sent, after what was announced before."""
        if signal.receivers:
            self._waiting.put(partial(emit_safely, signal, **facts))

    def tell_cancelled(self, job: Job) -> None:
        """Have it told that a job is dead which was cancelled before it was begun."""
        self._waiting.put(partial(emit_cancelled, job=job))

    def finish(self, timeout: float) -> bool:
        """Send what waits, and end. Return whether that was done in time."""
        deadline = time.monotonic() + timeout
        try:
            self._waiting.put(None, timeout=timeout)
        except queue.Full:
            # A receiver has not returned for so long that a whole queue waits for it.
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _tell_of(self, settled: Settled, app: Flask) -> None:
        _send(settled, app)
        self._log.tell(settled)

    def _run(self) -> None:
        send: Callable[[Flask], None] | None
        while (send := self._waiting.get()) is not None:
            tell(self._app, send)
            # What was raised holds on to its frames; it goes before the next is waited for.
            del send


def _send(settled: Settled, app: Flask) -> None:
    ending, job = settled.ending, settled.job
    if job is None:
        emit_safely(signals.job_lost, app, job=ending.job)
        return
    failed = {"job": job, "error": ending.raised, "attempt": ending.attempt}
    match ending.outcome:
        case Done():
            emit_safely(
                signals.job_succeeded,
                app,
                job=job,
                result=ending.returned,
                duration=job.duration,
            )
        case Again(aborted=aborted):
            if not aborted:
                emit_safely(signals.job_failed, app, **failed)
            emit_safely(signals.job_retried, app, **failed)
        case Snoozed():
            emit_safely(signals.job_snoozed, app, job=job)
        case HandedBack():
            # Nothing happened to it: it is told of when it begins.
            pass
        case Dead(reason=reason):
            if ending.raised is not None:
                emit_safely(signals.job_failed, app, **failed)
            if reason == "cancelled":
                emit_safely(signals.job_cancelled, app, job=job)
            emit_safely(signals.job_died, app, **failed)
        case _:
            t.assert_never(ending.outcome)
