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
_RANDOM_BYTES = 6
_DRAWN_AT_ONCE = 64


class IdMaker:
    """Makes ids that grow within this process, also within one millisecond.

    Jobs of one moment keep the order in which they were enqueued, since the claim's last sort key
    is the id (Q2). Between two processes a tie of one millisecond is broken by chance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment = 0
        self._counter = 0
        self._random = b""
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
            return self._text()

    def _text(self) -> str:
        """Return a UUIDv7 of the moment and the counter."""
        moment = f"{self._moment & 0xFFFF_FFFF_FFFF:012x}"
        high, low = self._counter >> 14, self._counter & 0x3FFF
        # Version 7 stands before the upper half of the counter, the variant before the lower.
        return f"{moment[:8]}-{moment[8:]}-7{high:03x}-{0x8000 | low:04x}-{self._draw().hex()}"

    def _draw(self) -> bytes:
        # A question to the system costs more than the rest of an id.
        if not self._random:
            self._random = os.urandom(_RANDOM_BYTES * _DRAWN_AT_ONCE)
        drawn, self._random = self._random[:_RANDOM_BYTES], self._random[_RANDOM_BYTES:]
        return drawn

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._moment = 0
        self._random = b""


new_id = IdMaker()


def new_token() -> str:
    """Return a token that no other claim or permit has."""
    return secrets.token_hex(16)


def new_runner_id() -> str:
    """Return an id for this process as a runner: ``host:pid:8hex``."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
