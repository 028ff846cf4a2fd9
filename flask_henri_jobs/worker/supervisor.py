"""Starting, watching, replacing and stopping runner processes (W5, W6, W11)."""

from __future__ import annotations

import contextlib
import signal
import sys
import typing as t

from ..log import logger
from .children import Child, Starts, reap_orphans
from .loop import Wakeup
from .losses import Losses
from .marks import Stage
from .os_signals import STOPPING
from .post import Role

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flask import Flask

    from ..app_state import AppState

TICK_SECONDS = 0.5
"""How often it looks at what its processes tell it; their ends wake it."""

LEAVING_SECONDS = 5.0
"""What a process has on top of its grace, to write its outcomes and end."""

CLOSING_SECONDS = 3.0
"""For how long it goes on putting back what they had, when all have ended."""

BAD_START = frozenset({1, 2})
"""Exit codes of a runner that was refused: a wrong setting, a missing index. Not the database
being out of reach, which passes."""


class Supervisor:
    """Keeps so many runner processes at work. It forks nothing that lives, and takes no jobs.

    :param command: Starts this worker.
    :param grace: Seconds that a stop waits for what runs.
    """

    def __init__(
        self,
        app: Flask,
        state: AppState,
        *,
        command: Sequence[str],
        processes: int,
        grace: float,
    ) -> None:
        self._command = command
        self._processes = processes
        self._grace = grace
        self._children: list[Child] = []
        self._starts = {role: Starts() for role in Role}
        self._has_ever_begun = False
        self._signals = 0
        self._stop_was_told = 0
        self._code = 0
        self._suspects_wait = False
        self._wakeup = Wakeup()
        self._losses = Losses(app, state.store_apart, self._note_suspects)

    def run(self) -> int:
        """Work until told to stop, and return the exit code."""
        with self._hearing_signals():
            self._losses.start()
            while self._children or not self._is_stopping:
                self._see_to_ended()
                self._pass_signals_on()
                if not self._is_stopping:
                    self._fill()
                    self._retire()
                self._wakeup.sleep(TICK_SECONDS)
            self._losses.finish(CLOSING_SECONDS)
        return self._code

    @property
    def _is_stopping(self) -> bool:
        return self._signals > 0

    def _see_to_ended(self) -> None:
        for child in [one for one in self._children if one.has_ended]:
            self._children.remove(child)
            self._see_to(child)
            child.release()
        reap_orphans(self._children)

    def _see_to(self, child: Child) -> None:
        if loss := child.loss():
            self._losses.add(loss)
        has_begun = child.stage is not Stage.STARTING
        if has_begun:
            self._has_ever_begun = True
        if self._is_stopping:
            return
        if has_begun:
            self._starts[child.role].succeeded()
            # The one that ended it may be dead, and others wait behind it.
            self._suspects_wait |= child.role is Role.SUSPECTS and not child.ended_in_order
            if not child.ended_in_order:
                logger.warning("The runner process %d %s; it is replaced.", child.pid, child.went())
        elif not self._has_ever_begun and child.code in BAD_START:
            # It said why. What no process of this worker ever got over is no accident.
            self._code = child.code
            self._signals = 1
        else:
            pause = self._starts[child.role].failed()
            logger.warning(
                "The runner process %d %s before it began; the next starts in %g s.",
                child.pid,
                child.went(),
                pause,
            )

    def _pass_signals_on(self) -> None:
        """Tell the processes of the first signal, and of the second; more change nothing."""
        if self._is_stopping:
            for child in self._children:
                child.stop(self._grace + LEAVING_SECONDS)
        if self._signals > 1 and self._stop_was_told < 2:
            self._stop_was_told = 2
            for child in self._children:
                child.hurry(LEAVING_SECONDS)
        for child in self._children:
            child.kill_if_late()

    def _fill(self) -> None:
        """Start the processes that are missing."""
        going_on = self._with_stage(Stage.STARTING, Stage.AT_WORK)
        worn = self._with_stage(Stage.WORN)
        missing = self._processes - len(going_on)
        # At most one successor each, even where every one is worn as soon as it begins.
        for _ in range(min(missing, 2 * self._processes - len(going_on) - len(worn))):
            self._start(Role.JOBS)
        seen = [child.sees_suspects() for child in self._children]
        self._suspects_wait = self._suspects_wait or any(seen)
        if self._suspects_wait and not any(one.role is Role.SUSPECTS for one in self._children):
            self._start(Role.SUSPECTS)

    def _start(self, role: Role) -> None:
        if self._starts[role].are_due:
            if role is Role.SUSPECTS:
                self._suspects_wait = False
            self._children.append(Child(role, self._command))

    def _retire(self) -> None:
        """Stop those that are worn, the oldest first, as far as enough others are at work."""
        worn = self._with_stage(Stage.WORN)
        spare = len(self._with_stage(Stage.AT_WORK)) + len(worn) - self._processes
        ended = [child for child in self._children if child.stage is Stage.ENDED]
        suspects = self._with_stage(Stage.WORN, role=Role.SUSPECTS)
        for child in [*worn[: max(0, spare)], *suspects, *ended]:
            child.stop(self._grace + LEAVING_SECONDS)

    def _with_stage(self, *stages: Stage, role: Role = Role.JOBS) -> list[Child]:
        """Return the processes that have come so far, and were not told to stop; oldest first."""
        return [
            child
            for child in self._children
            if child.role is role and child.stage in stages and not child.is_leaving
        ]

    def _note_suspects(self) -> None:
        self._suspects_wait = True
        self._wakeup.ring()

    @contextlib.contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        def stop(_number: int, _frame: object) -> None:
            self._signals += 1
            self._wakeup.ring()

        def ended(_number: int, _frame: object) -> None:
            self._wakeup.ring()

        handlers = dict.fromkeys(STOPPING, stop) | {signal.SIGCHLD: ended}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def this_command(name: str) -> list[str] | None:
    """Return what started this process, to be run again; None where that was not this command.

    :param name: The command's name: an application may call its commands from its own code.
    """
    return [sys.executable, *sys.orig_argv[1:]] if name in sys.orig_argv else None
