"""What the operating system's signals mean to a worker (W5)."""

from __future__ import annotations

import contextlib
import signal
import threading
import typing as t

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from .runner import Runner

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(runner: Runner) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop a runner in order within the block; a second ends the grace.

    Outside the main thread signals cannot be had, and are left as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        runner.stop(at_once=bool(received))
        received.append(number)

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
