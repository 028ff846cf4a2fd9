"""Things that each process makes for itself."""

from __future__ import annotations

import os
import threading
import typing as t
import weakref

T = t.TypeVar("T")


class ProcessLocal(t.Generic[T]):
    """A value that is made once in each process, when it is first asked for.

    A child of a fork (gunicorn's ``--preload``) makes its own: a database client's sockets and
    threads do not survive the fork.

    :param make: Makes the value.
    """

    def __init__(self, make: t.Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[int, T] | None = None
        self._inherited: tuple[int, T] | None = None
        _ALL.add(self)

    def get(self) -> T:
        """Return this process's value."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            return made[1]
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), self._make())
            return self._made[1]

    def forget(self) -> T | None:
        """Return this process's value if there is one; the next ``get`` makes another."""
        with self._lock:
            made, self._made = self._made, None
        return made[1] if made is not None and made[0] == os.getpid() else None

    def after_fork(self) -> None:
        """Begin anew in the child. Another thread may have held the lock when it forked."""
        self._lock = threading.Lock()
        # Kept, so that nothing here ever finalizes what the parent still uses.
        self._inherited = self._made
        self._made = None


_ALL: weakref.WeakSet[ProcessLocal[t.Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_ALL):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)
