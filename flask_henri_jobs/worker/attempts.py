"""The attempts that run in this process, and the end of those whose time is up (W7, W8)."""

from __future__ import annotations

import math
import sys
import threading
import types
import typing as t
from datetime import timedelta

from ..clock import steady_seconds
from ..durations import to_text
from ..errors import JobCancelled, JobLost, JobTimeout
from .frame import Frame
from .loop import Loop

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..errors import Interruption
    from ..job import Job
    from .execution import Execution

PATIENCE_SECONDS = 5.0
"""How long an attempt has to end that was told to; then it is given up."""

AGAIN_SECONDS = 1.0
"""After which it is told again: an exception may be swallowed."""

SOON_SECONDS = 0.01
"""After which it is tried again to tell one that could not be told just now."""

POLLING_SECONDS = 1.0
"""How long a cancelled job has to end by itself, if it asks ``current_job.cancelled``."""

IDLE_SECONDS = 3600.0


class RunningAttempt:
    """An attempt at a job, in the thread that made this.

    :ivar execution: What performs it, as soon as it does.
    :ivar is_held: Whether it is to be left alone for now.
    :ivar due_at: The steady seconds at which there is something to do about it.
    """

    def __init__(self, job: Job, began: float) -> None:
        self.job = job
        self.began = began
        self.frame = Frame()
        self.execution: Execution | None = None
        self.interruption: Interruption | None = None
        self.thread = threading.get_ident()
        self.is_held = False
        self._timeout = _seconds(job.row.get("timeout_ms"))
        self.due_at = began + self._timeout
        self._given_up_at = math.inf

    def is_hopeless(self, now: float) -> bool:
        """Whether it was told to end so long ago that it will not."""
        return now >= self._given_up_at

    def interrupt(self, now: float) -> None:
        """Tell the attempt to end, for the first time or again."""
        if self.interruption is None:
            text = to_text(timedelta(seconds=self._timeout))
            self.interruption = JobTimeout(f"The attempt took longer than {text}.")
        self._given_up_at = min(self._given_up_at, now + PATIENCE_SECONDS)
        thrown = self.frame.throw(self.interruption)
        self.due_at = min(now + (AGAIN_SECONDS if thrown else SOON_SECONDS), self._given_up_at)

    def cancel(self, now: float) -> None:
        """Let the task know that it is to end, and tell it to if it does not."""
        self.frame.is_cancelled = True
        if self.interruption is None:
            self.interruption = JobCancelled("The job was cancelled.")
            self.due_at = min(self.due_at, now + POLLING_SECONDS)

    def lose(self, now: float) -> None:
        """Have the task told that its claim is gone."""
        self.interruption = JobLost("The claim of the job is gone: another runner has it.")
        self.due_at = now

    def unheard(self) -> Interruption:
        """Return what it was told and did not hear, with where its thread is just now."""
        assert self.interruption is not None
        unheard = type(self.interruption)(self.interruption.message)
        return unheard.with_traceback(_traceback_of(self.thread))


class Attempts:
    """Knows what runs, and tells an attempt to end, again and again until it has.

    :param steady: The steady seconds of this host.
    """

    def __init__(self, steady: Callable[[], float] = steady_seconds) -> None:
        self._steady = steady
        self._lock = threading.Lock()
        self._running: set[RunningAttempt] = set()
        self._give_up: Callable[[RunningAttempt], None] = _nothing
        self._look_at = math.inf
        self._loop = Loop("henri-jobs-timeouts", self.round)

    def start(self, give_up: Callable[[RunningAttempt], None]) -> None:
        """Start telling.

        :param give_up: Called with an attempt that has not ended; what it comes to is not asked.
        """
        self._give_up = give_up
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """End. Return whether that was done in time."""
        return self._loop.stop(timeout)

    def begin(self, job: Job) -> RunningAttempt:
        """Note that an attempt begins, in this thread."""
        attempt = RunningAttempt(job, self._steady())
        with self._lock:
            self._running.add(attempt)
        self._look_by(attempt.due_at)
        return attempt

    def end(self, attempt: RunningAttempt) -> bool:
        """Note that an attempt has ended. Return whether it was not given up before."""
        with self._lock:
            was_there = attempt in self._running
            self._running.discard(attempt)
        return was_there

    def hold(self, attempt: RunningAttempt) -> bool:
        """Leave an attempt alone from here on. Return False where it was given up already."""
        with self._lock:
            attempt.is_held = attempt in self._running
        return attempt.is_held

    def release(self, attempt: RunningAttempt) -> None:
        """Tell an attempt to end again, when that is due."""
        attempt.is_held = False
        self._look_by(attempt.due_at)

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Have the attempts at jobs end (W8): by themselves, or else told to."""
        self._for_each(jobs, RunningAttempt.cancel)

    def lose(self, jobs: Iterable[Job]) -> None:
        """Have the attempts at jobs end whose claims are gone (A9)."""
        self._for_each(jobs, RunningAttempt.lose)

    def round(self) -> float:
        """Tell those whose time is up. Return the seconds until that of the next is."""
        now = self._steady()
        with self._lock:
            due = [attempt for attempt in self._free() if attempt.due_at <= now]
        for attempt in due:
            if not attempt.is_hopeless(now):
                attempt.interrupt(now)
            elif self._lose(attempt):
                self._give_up(attempt)
        with self._lock:
            next_at = min((attempt.due_at for attempt in self._free()), default=math.inf)
            if self._look_at <= now or next_at < self._look_at:
                # Never later while there is time: short jobs would wake this with each begin.
                self._look_at = next_at
            return min(max(0.0, self._look_at - now), IDLE_SECONDS)

    def _lose(self, attempt: RunningAttempt) -> bool:
        """Note that an attempt is given up, unless it has ended or is to be left alone."""
        with self._lock:
            is_lost = attempt in self._free()
            if is_lost:
                self._running.discard(attempt)
        return is_lost

    def _free(self) -> list[RunningAttempt]:
        return [attempt for attempt in self._running if not attempt.is_held]

    def _for_each(self, jobs: Iterable[Job], do: Callable[[RunningAttempt, float], None]) -> None:
        now, held = self._steady(), {(job.row["_id"], job.row["claim_token"]) for job in jobs}
        with self._lock:
            meant = [
                attempt
                for attempt in self._running
                if (attempt.job.row["_id"], attempt.job.row["claim_token"]) in held
            ]
        for attempt in meant:
            do(attempt, now)
            self._look_by(attempt.due_at)

    def _look_by(self, at: float) -> None:
        with self._lock:
            if at >= self._look_at:
                return
            self._look_at = at
        self._loop.wake()


def _seconds(timeout_ms: float | None) -> float:
    # Whoever wrote it: a henri application may have written nonsense.
    return timeout_ms / 1000 if timeout_ms is not None and timeout_ms > 0 else math.inf


def _traceback_of(thread: int) -> types.TracebackType | None:
    """Return where in its task a thread is, as if it had been raised there."""
    traceback = None
    frame = sys._current_frames().get(thread)
    while frame is not None and not _is_ours(frame):
        traceback = types.TracebackType(traceback, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return traceback


def _is_ours(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__") == f"{__package__}.execution"


def _nothing(_attempt: RunningAttempt) -> None:
    pass
