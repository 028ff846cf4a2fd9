"""A thread that does one thing again and again until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import typing as t

from ..errors import StoreUnavailable

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger("flask_henri_jobs")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


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

    def __init__(self) -> None:
        self._away = False
        self._lock = threading.Lock()

    def began(self, error: StoreUnavailable) -> None:
        """Note that the database did not answer."""
        with self._lock:
            said, self._away = self._away, True
        if not said:
            logger.warning("The database is away; everything is tried again. %s", error)

    @contextlib.contextmanager
    def tolerated(self) -> Iterator[None]:
        """Go on after the block where the database is away: others will repair it later."""
        try:
            yield
        except StoreUnavailable as error:
            self.began(error)

    def ended(self) -> None:
        """Note that it answered."""
        if not self._away:
            return
        with self._lock:
            said, self._away = self._away, False
        if said:
            logger.warning("The database answers again.")


class Rounds:
    """Calls a round again and again, and survives those that fail.

    :param name: What the rounds do, for the log.
    :param tick: Does one round and returns the seconds to wait before the next.
    :param outages: Told of the rounds that met no database.
    """

    def __init__(self, name: str, tick: Callable[[], float], outages: Outages) -> None:
        self.name = name
        self._tick = tick
        self._outages = outages
        self._failures = 0

    def next(self) -> float:
        """Do one round. Return the seconds until the next is due."""
        try:
            wait = self._tick()
        except StoreUnavailable as error:
            self._outages.began(error)
        except Exception:
            # One bad round must not end the loop; that would be a runner that is alive and deaf.
            logger.exception("A round of %s failed.", self.name)
        else:
            self._outages.ended()
            self._failures = 0
            return wait
        self._failures += 1
        return min(SHORTEST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)


class Loop:
    """Does rounds in a thread of its own, and sleeps in between."""

    def __init__(self, name: str, tick: Callable[[], float], outages: Outages) -> None:
        self._rounds = Rounds(name, tick, outages)
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
