"""What time it is on the database server (C1)."""

from __future__ import annotations

import threading
import time
import typing as t
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

Moment: t.TypeAlias = int
"""Milliseconds since the epoch, by the database server's clock."""

RENEW_AFTER = 60.0
"""Seconds after which the server is asked again."""

JUMP = 5_000
"""A change of the offset by more than this many milliseconds is a jump, not a drift."""


def steady_seconds() -> float:
    """Return seconds that only grow, at the same rate whatever becomes of the wall clock.

    Where the system has it, the clock goes on while the machine is suspended: a runner that was
    paused must know how long ago its last heartbeat was (W4).
    """
    return time.clock_gettime(_STEADY)


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One answer of the server to the question what time it is.

    :param server: What it answered.
    :param at: The steady seconds at which that was true: the middle of the round trip.
    :param member: Which server answered; a replica set has a clock a member.
    """

    server: Moment
    at: float
    member: object = None


class Clock:
    """Tells the server's time from one reading a minute and this host's steady clock.

    The host's wall clock is never looked at, so it may be wrong, or jump, without effect.

    :param read: Asks the server. It may raise; the time goes on from the last reading then.
    :param steady: The steady seconds of this host; a test moves them.
    """

    def __init__(
        self, read: t.Callable[[], Reading], steady: t.Callable[[], float] = steady_seconds
    ) -> None:
        self._read = read
        self._steady = steady
        self._reading: Reading | None = None
        self._latest: Moment = 0
        self._calm_since = steady()
        self._lock = threading.Lock()

    def now(self) -> Moment:
        """Return the server's time. It never steps back within a process.

        :raises StoreUnavailable: No reading was ever had, and the server does not answer.
        """
        reading = self._reading
        if reading is None:
            reading = self.renew()
        moment = reading.server + round((self._steady() - reading.at) * 1000)
        # Two threads may store a little out of order; both stand above every earlier answer.
        latest = self._latest
        if moment <= latest:
            return latest
        self._latest = moment
        return moment

    @property
    def is_due(self) -> bool:
        """Whether the last reading is older than a minute, or there is none."""
        return self._reading is None or self._steady() - self._reading.at > RENEW_AFTER

    def renew(self) -> Reading:
        """Ask the server now, and go by its answer from here on."""
        reading = self._read()
        with self._lock:
            before, self._reading = self._reading, reading
            if before is not None and self._has_jumped(before, reading):
                self._calm_since = self._steady()
        return reading

    def ask_by(self, read: t.Callable[[], Reading]) -> None:
        """Ask the same server another way from here on. The last reading still holds."""
        self._read = read

    def go_by(self, read: t.Callable[[], Reading], steady: t.Callable[[], float]) -> None:
        """Tell the time from another source from here on, be it earlier; a test has one to move."""
        with self._lock:
            self._read, self._steady = read, steady
            self._reading, self._latest = None, 0
            self._calm_since = steady()

    @property
    def source(self) -> tuple[t.Callable[[], Reading], t.Callable[[], float]]:
        """Where the time is from, for :meth:`go_by`."""
        return self._read, self._steady

    def calm_for(self) -> timedelta:
        """Return for how long the server's clock has not jumped, and was the same server's.

        Heartbeats that were stamped by another clock look older than they are. Whoever judges by
        their age first waits until every living runner has stamped anew.
        """
        return timedelta(seconds=self._steady() - self._calm_since)

    @staticmethod
    def _has_jumped(before: Reading, after: Reading) -> bool:
        expected = before.server + round((after.at - before.at) * 1000)
        return before.member != after.member or abs(after.server - expected) > JUMP


def to_datetime(moment: float | None) -> datetime | None:
    """Return a stored moment as an aware datetime in UTC."""
    return None if moment is None else EPOCH + timedelta(milliseconds=int(moment))


def to_moment(at: datetime) -> Moment:
    """Return an aware datetime as a moment."""
    return (at - EPOCH) // timedelta(milliseconds=1)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
