"""The server's time, from one reading a minute and a steady clock."""

from __future__ import annotations

import pytest

from flask_henri_jobs.clock import JUMP, RENEW_AFTER, Clock, Moment, Reading
from flask_henri_jobs.errors import StoreUnavailable

START = 1_800_000_000_000


class Server:
    """A server whose clock a test sets, and the steady seconds of this host."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.ahead = START - 100_000
        self.member = "one"
        self.is_away = False
        self.clock = Clock(self.read, lambda: self.seconds)

    @property
    def time(self) -> Moment:
        return self.ahead + round(self.seconds * 1000)

    def read(self) -> Reading:
        if self.is_away:
            raise StoreUnavailable("away")
        return Reading(server=self.time, at=self.seconds, member=self.member)


@pytest.fixture
def server() -> Server:
    return Server()


def test_time_goes_on_between_readings(server: Server) -> None:
    """C1: The time is the server's last answer, and the steady seconds since."""
    assert server.clock.now() == START

    server.seconds += 12.345

    assert server.clock.now() == START + 12_345


def test_time_goes_on_without_the_server(server: Server) -> None:
    """C1: A server that is away leaves the time as it was read before."""
    server.clock.now()
    server.is_away = True
    server.seconds += 90

    with pytest.raises(StoreUnavailable):
        server.clock.renew()

    assert server.clock.now() == START + 90_000


def test_no_time_without_a_reading(server: Server) -> None:
    """C1: Before the first answer there is no time; the host's own is never taken instead."""
    server.is_away = True

    with pytest.raises(StoreUnavailable):
        server.clock.now()


def test_time_never_steps_back(server: Server) -> None:
    """B8: A server whose clock was set back lets the time stand still until it has caught up."""
    server.clock.now()
    server.ahead -= 3_000
    server.clock.renew()

    assert server.clock.now() == START
    server.seconds += 3
    assert server.clock.now() == START
    server.seconds += 0.5
    assert server.clock.now() == START + 500


def test_renewal_is_due_once_a_minute(server: Server) -> None:
    """C1: The server is asked at the start, and when its answer is a minute old."""
    due = [server.clock.is_due]
    server.clock.renew()
    for seconds in (RENEW_AFTER, 0.1):
        server.seconds += seconds
        due.append(server.clock.is_due)

    assert due == [True, False, True]


@pytest.mark.parametrize(("moved", "calm"), [(0, 70), (JUMP, 70), (JUMP + 1, 10), (-JUMP - 1, 10)])
def test_a_jump_ends_the_calm(server: Server, moved: int, calm: int) -> None:
    """B8: Heartbeats are not judged by a clock that moved by more than five seconds."""
    server.clock.now()
    server.seconds += 60
    server.ahead += moved
    server.clock.renew()
    server.seconds += 10

    assert server.clock.calm_for().total_seconds() == calm


def test_another_primary_ends_the_calm(server: Server) -> None:
    """B8: Each member has a clock of its own, so a failover begins the calm anew."""
    server.clock.now()
    server.seconds += 60
    server.member = "two"
    server.clock.renew()

    assert server.clock.calm_for().total_seconds() == 0
