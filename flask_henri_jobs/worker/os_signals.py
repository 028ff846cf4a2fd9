"""What the operating system's signals mean to a worker (W5)."""

from __future__ import annotations

import contextlib
import signal
import threading
import typing as t

from .post import Role

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from .post import Post
    from .runner import Runner

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(runner: Runner, post: Post) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop a runner in order within the block; a second ends the grace.

    A runner with a supervisor counts none: a service manager signals both of them, and what comes
    from its supervisor as well is the same signal. That alone says when the grace is over; and
    Ctrl-C, which reaches both, is left to it altogether.

    Outside the main thread signals cannot be had, and are left as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if post.role is Role.ALONE:
            runner.stop(at_once=bool(received))
            received.append(number)
        elif number == signal.SIGTERM:
            runner.stop(at_once=post.marks.hurry)

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
