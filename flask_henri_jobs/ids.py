"""Ids that sort by time: UUIDv7 as text (RFC 9562)."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import typing as t

if t.TYPE_CHECKING:
    from .clock import Moment

_COUNTER_BITS = 26
_RANDOM_BITS = 48


class IdMaker:
    """Makes ids that grow within this process, also within one millisecond.

    Jobs of one moment keep the order in which they were enqueued, since the claim's last sort key
    is the id (Q2). Between two processes a tie of one millisecond is broken by chance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment = 0
        self._counter = 0
        # The counter starts anew in a child of a fork, which would otherwise repeat its parent's.
        os.register_at_fork(after_in_child=self._start_over)

    def __call__(self, now: Moment) -> str:
        """Return a new id for a moment."""
        with self._lock:
            if now > self._moment:
                self._moment = now
                # Half of the range is left to count in.
                self._counter = secrets.randbits(_COUNTER_BITS - 1)
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._moment += 1
                    self._counter = 0
            return _uuid7_text(self._moment, self._counter)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._moment = 0


def _uuid7_text(moment: Moment, counter: int) -> str:
    high, low = counter >> 14, counter & 0x3FFF
    value = (
        (moment & 0xFFFF_FFFF_FFFF) << 80
        | 0x7000 << 64
        | high << 64
        | 0b10 << 62
        | low << _RANDOM_BITS
        | int.from_bytes(os.urandom(6), "big")
    )
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


new_id = IdMaker()


def new_token() -> str:
    """Return a token that no other claim or permit has."""
    return secrets.token_hex(16)


def new_runner_id() -> str:
    """Return an id for this process as a runner: ``host:pid:8hex``."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
