"""The frame around a task: what its runner throws in lands inside it, or nowhere (W7)."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import typing as t

from ..errors import Interruption

if t.TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

LOCK_SECONDS = 1.0
"""How long a throw waits for a task that is just entered or left; then it is left out."""


class Frame:
    """A ``with`` statement around the call of a task, into which another thread may throw.

    An exception from outside reaches a thread between two steps of Python code, and so not before
    a system call has returned. It may come a moment late, when the task has just left; whatever
    comes out of this block or of :meth:`leave` is the last of it.

    :ivar thrown: What was thrown, with its message; None where nothing was.
    :ivar is_cancelled: Whether somebody asked for the end of the job (W8).
    """

    def __init__(self) -> None:
        # One that may be taken twice: what lands while it is taken must not lock its thread out.
        self._lock = threading.RLock()
        self._thread: int | None = None
        self._coroutine: _Coroutine | None = None
        self.thrown: Interruption | None = None
        self.is_cancelled = False

    def __enter__(self) -> None:
        with self._lock:
            if self.thrown is None:
                self._thread = threading.get_ident()
                return
        raise self.instance()

    def __exit__(self, *raised: object) -> None:
        self.leave()

    def leave(self) -> None:
        """See that nothing is thrown any more, and that nothing is on its way; repeatable.

        What a throw set off that came too late for the task ends here.
        """
        try:
            with self._lock:
                # First: nobody throws from here on, and what was thrown comes out within here.
                self._thread = None
                if self.thrown is not None:
                    _set_exception(threading.get_ident(), None)
        except Interruption:
            # That was it. No ``suppress()``: making one is a step, in which it would get through.
            pass

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Let nothing be thrown into the task within the block; :attr:`thrown` says what would be.

        What was on its way has come by then. It is thrown again after the block.
        """
        thread = self._thread
        self.leave()
        try:
            yield
        finally:
            with self._lock:
                self._thread = thread

    def throw(self, interruption: Interruption) -> bool:
        """Throw into the task. Return False where it is to be tried again in a moment.

        It may be repeated: a first one can be swallowed, by a ``__del__`` for instance. Where the
        task is not entered yet, it is not going to be; where it has been left, nothing happens.
        """
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            return False
        try:
            self.thrown = interruption
            if self._thread is None or (self._coroutine and self._coroutine.cancel()):
                return True
            if _is_logging(self._thread):
                return False
            _set_exception(self._thread, type(interruption))
            return True
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def cancelling(self, task: asyncio.Task[t.Any] | None) -> Iterator[None]:
        """Cancel a coroutine's task within the block, in place of throwing into its thread."""
        assert task is not None
        with self._lock:
            self._coroutine = _Coroutine(task)
            if self.thrown is not None:
                self._coroutine.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._coroutine = None

    def instance(self) -> Interruption:
        """Return what was thrown, anew: an exception that was raised holds on to its frames."""
        assert self.thrown is not None
        return type(self.thrown)(self.thrown.message, hint=self.thrown.hint)

    def name(self, raised: BaseException | None) -> None:
        """Give what was thrown its message: only a class can be thrown into a thread."""
        thrown = self.thrown
        if thrown is not None and isinstance(raised, type(thrown)) and not raised.message:
            raised.message, raised.hint = thrown.message, thrown.hint
            raised.args = thrown.args


class _Coroutine:
    """A coroutine's task, cancelled from another thread."""

    def __init__(self, task: asyncio.Task[t.Any]) -> None:
        self._task = task
        self._is_unheard = False

    def cancel(self) -> bool:
        """Have the task cancelled. Return False where the loop did not come to the last request.

        Then the coroutine does not wait: it is busy, or waits in a call that blocks its loop.
        """
        if self._is_unheard:
            return False
        self._is_unheard = True
        self._task.get_loop().call_soon_threadsafe(self._hear)
        return True

    def _hear(self) -> None:
        self._is_unheard = False
        self._task.cancel()


def _set_exception(thread: int, raised: type[BaseException] | None) -> None:
    """Have an exception raised in a thread at its next step, or none of those on their way."""
    of = None if raised is None else ctypes.py_object(raised)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), of)


def _is_logging(thread: int) -> bool:
    """Whether a thread is just within ``logging``, and may leave a handler locked for ever."""
    frame = sys._current_frames().get(thread)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("logging")
