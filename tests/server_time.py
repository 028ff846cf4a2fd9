"""The database server's time, and this host's steady seconds, which stand still until moved."""

from __future__ import annotations

from flask_henri_jobs.clock import Clock, Moment, Reading

START = 1_800_000_000_000


class ServerTime:
    """A clock for a test to move."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.ahead = 0
        self.member = "one"
        self.clock = Clock(self._read, lambda: self.seconds)
        self.clock.renew()

    @property
    def now(self) -> Moment:
        return START + self.ahead + round(self.seconds * 1000)

    def another_clock(self) -> Clock:
        """Return the clock of another process, which was just set."""
        clock = Clock(self._read, lambda: self.seconds)
        clock.renew()
        return clock

    def advance(self, seconds: float) -> None:
        """Let time pass, on the server and here."""
        self.seconds += seconds

    def jump(self, seconds: float) -> None:
        """Set the server's clock forward, or back; and ask it."""
        self.ahead += round(seconds * 1000)
        self.clock.renew()

    def _read(self) -> Reading:
        return Reading(server=self.now, at=self.seconds, member=self.member)
