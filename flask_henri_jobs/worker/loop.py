"""A thread that does one thing again and again until it is told to stop."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import typing as t

from ..errors import StoreUnavailable
from ..log import logger
from ..store.connection import DriverError, answers

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

BRIEF_SECONDS = 1.0
"""Before so long after it went the database is not said to be back."""


class Wakeup:
    """Something to sleep on that another thread, or a signal handler, can end.

    A queue, since its ``put`` may interrupt a ``get`` of the same thread, as a signal handler
    does; the lock inside an event may not be taken twice.
    """

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """End the sleep, or the next one."""
        self._rings.put(None)

    def sleep(self, seconds: float) -> bool:
        """Sleep for so long, or until somebody rings. Return whether somebody did."""
        try:
            self._rings.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return False
        while not self._rings.empty():
            self._rings.get()
        return True


class Outages:
    """Says once that the database is away, and once that it is back (W10)."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._away = False
        self._changed_at = float("-inf")
        self._is_said = False
        self._said_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether the database is away."""
        return self._away

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Note whether the database answers what is asked within the block.

        :raises StoreUnavailable: It does not.
        """
        asked_at, before = self._steady(), answers()
        try:
            yield
        except StoreUnavailable as error:
            if self._is_news(away=True, asked_at=asked_at):
                logger.warning("The database is away; everything is tried again. %s", error)
            raise
        if self._is_said and answers() > before and self._is_news(away=False, asked_at=asked_at):
            logger.warning("The database answers again.")

    @contextlib.contextmanager
    def tolerated(self) -> Iterator[None]:
        """Go on after the block where the database is away, or refuses: others repair it later."""
        try:
            with self.asking():
                yield
        except StoreUnavailable:
            pass
        except DriverError:
            logger.exception("The database refuses what a runner asks.")

    def _is_news(self, *, away: bool, asked_at: float) -> bool:
        """Note how a question went that was asked then. Return whether that is to be said."""
        with self._lock:
            # Several threads ask at once. What one of them asked before the last change is no
            # news, however late its answer comes.
            if asked_at < self._changed_at:
                return False
            now = self._steady()
            if self._away is not away:
                self._away, self._changed_at = away, now
            # A server that shuts down refuses one question and still answers the next.
            is_brief = not away and now - self._said_at < BRIEF_SECONDS
            if self._is_said is away or is_brief:
                return False
            self._is_said, self._said_at = away, now
            return True


class Rounds:
    """Calls a round again and again, and survives those that fail.

    :param name: What the rounds do, for the log.
    :param tick: Does one round and returns the seconds to wait before the next.
    :param caught: What a round may raise. In the main thread an exit or an interrupt is meant.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], float],
        caught: type[BaseException] = Exception,
    ) -> None:
        self.name = name
        self._caught = caught
        self._tick = tick
        self._failures = 0

    @property
    def are_failing(self) -> bool:
        """Whether the last round failed."""
        return self._failures > 0

    def next(self) -> float:
        """Do one round. Return the seconds until the next is due."""
        try:
            wait = self._tick()
        except StoreUnavailable:
            # Whoever asked has said so, once for all that is tried meanwhile.
            pass
        except self._caught:
            # One bad round must not end the loop; that would be a runner that is alive and deaf.
            logger.exception("A round of %s failed.", self.name)
        else:
            self._failures = 0
            return wait
        self._failures += 1
        return min(SHORTEST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)


class Loop:
    """Does rounds in a thread of its own, and sleeps in between."""

    def __init__(self, name: str, tick: Callable[[], float]) -> None:
        # A limit's key and a receiver are the application's, and even an exit of theirs would end
        # this thread, and leave a runner without it.
        self._rounds = Rounds(name, tick, BaseException)
        self._wakeup = Wakeup()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin the rounds, once."""
        self._thread.start()

    def wake(self) -> None:
        """Start the next round now rather than when the wait is over."""
        self._wakeup.ring()

    def stop(self, timeout: float | None = None) -> bool:
        """Ask for the end and wait for it. Return whether it came in time.

        It may be called twice, or before the start.
        """
        self._stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            wait = self._rounds.next()
            if not self._stopping:
                self._wakeup.sleep(wait)
