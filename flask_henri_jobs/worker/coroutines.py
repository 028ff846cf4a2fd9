"""Performing ``async def`` tasks, each on an event loop of its own."""

from __future__ import annotations

import asyncio
import contextvars
import typing as t
from asyncio import taskgroups
from concurrent.futures import ThreadPoolExecutor

if t.TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from .frame import Frame


def run_coroutine(coroutine: Coroutine[t.Any, t.Any, t.Any], frame: Frame) -> t.Any:
    """Return what a coroutine returns, on an event loop of its own that is closed afterwards.

    A loop shared between jobs would be ended for all of them by one ``SystemExit`` (W9).

    :param frame: What is thrown into it cancels the coroutine's task, and is raised (W7).
    """
    if not _has_loop():
        return _Coroutine(coroutine, frame).run()
    # A thread runs one loop at a time, and this one runs the application's: a job is performed
    # inline, by an ``async def`` view.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(
            contextvars.copy_context().run, _Coroutine(coroutine, frame).run
        ).result()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Coroutine:
    """A coroutine whose exception does not go through asyncio, which would keep it in a circle."""

    def __init__(self, coroutine: Coroutine[t.Any, t.Any, t.Any], frame: Frame) -> None:
        self._coroutine = coroutine
        self._frame = frame
        self._returned: t.Any = None
        self._raised: BaseException | None = None

    def run(self) -> t.Any:
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(_hear)
            runner.run(self._await())
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            del raised
        return self._returned

    async def _await(self) -> None:
        try:
            with self._frame.cancelling(asyncio.current_task()):
                self._returned = await self._coroutine
        except asyncio.CancelledError as cancelled:
            if self._frame.thrown is None:
                # By Ctrl-C, where it runs in the main thread: asyncio says so.
                raise
            self._raised = self._frame.instance().with_traceback(below(cancelled).__traceback__)
        except BaseException as raised:  # noqa: BLE001 - it is raised outside the loop
            self._raised = below(raised)
            _open_circles(raised)


def _hear(loop: asyncio.AbstractEventLoop, context: dict[str, t.Any]) -> None:
    """Have asyncio log what went wrong, but for an exit: that has ended the loop, and its attempt.

    It would be told as never retrieved when the garbage is collected, in the middle of anything.
    """
    if not isinstance(context.get("exception"), (SystemExit, KeyboardInterrupt)):
        loop.default_exception_handler(context)


def _open_circles(raised: BaseException) -> None:
    """Take a ``TaskGroup`` out of the traceback of what it raised, which its frame holds on to."""
    groups = [raised] if isinstance(raised, BaseExceptionGroup) else []
    while groups:
        group = groups.pop()
        group.__traceback__ = _without_task_groups(group.__traceback__)
        groups += [one for one in group.exceptions if isinstance(one, BaseExceptionGroup)]


def _without_task_groups(traceback: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename != taskgroups.__file__:
            entries.append(traceback)
        traceback = traceback.tb_next
    for entry, following in zip(entries, [*entries[1:], None], strict=False):
        entry.tb_next = following
    return entries[0] if entries else None


def below(raised: BaseException) -> BaseException:
    """Return an exception whose traceback begins below the frame that caught it."""
    return raised.with_traceback(raised.__traceback__.tb_next if raised.__traceback__ else None)
