"""Closing what belonged to an owner that was dropped."""

from __future__ import annotations

import atexit
import os
import threading
import time
import typing as t
import weakref

ENDING_SECONDS = 2.0
"""For how long a process that ends goes on closing: each may wait for a server that is gone."""


class Closing:
    """Closes something of a dropped owner once the next such thing is opened, or the process ends.

    Not as its owner is collected: that happens in the middle of anything, where a lock is held or
    a context variable half set. CPython loses the variables of a thread whose collector sets one
    at that moment (its issue 148891).

    :param owner: It is not kept.
    :param close: May be called twice, and does not raise.
    """

    def __init__(self, owner: object, close: t.Callable[[], None]) -> None:
        if any(one.is_due for one in tuple(_ALL)):
            # In the way of nobody: who opens this has an enqueue to make.
            threading.Thread(target=close_dropped, name="henri-jobs-closing", daemon=True).start()
        self._owner = weakref.ref(owner)
        self._close = close
        # What a parent has open is kept by a child of a fork, and not closed there.
        self._process = os.getpid()
        _ALL.add(self)

    @property
    def is_here(self) -> bool:
        """Whether it is for this process to close."""
        return self._process == os.getpid()

    @property
    def is_due(self) -> bool:
        """Whether nobody has the owner any more, in this process."""
        return self.is_here and self._owner() is None

    def close(self) -> None:
        """Close it now, and not again."""
        _ALL.discard(self)
        self._close()


_ALL: set[Closing] = set()


def close_dropped() -> None:
    """Close what belonged to owners that are gone."""
    for one in tuple(_ALL):
        if one.is_due:
            one.close()


@atexit.register
def _close_all() -> None:
    until = time.monotonic() + ENDING_SECONDS
    for one in tuple(_ALL):
        if one.is_here and time.monotonic() < until:
            one.close()
