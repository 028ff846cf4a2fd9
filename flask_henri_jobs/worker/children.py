"""A supervisor's side of its runner processes: starting, stopping, and how each went."""

from __future__ import annotations

import os
import signal
import subprocess
import typing as t
from dataclasses import dataclass

from ..clock import steady_seconds
from .losses import Loss
from .marks import Stage, new_marks
from .post import Post, Role

if t.TYPE_CHECKING:
    from collections.abc import Sequence

OPTION = "--runner"
"""What makes ``flask jobs worker`` one of its own runners."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


class Child:
    """A runner process.

    :param command: Starts a worker; with one option more it starts a runner.
    """

    def __init__(self, role: Role, command: Sequence[str]) -> None:
        self.role = role
        self._marks = new_marks()
        reading, self._lifeline = os.pipe()
        post = Post(role=role, marks=self._marks, lifeline=reading)
        inherited = [reading, t.cast("int", self._marks.descriptor)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command that started us
                [*command, OPTION, post.text_for()], pass_fds=inherited
            )
        finally:
            os.close(reading)
        self.pid = self._process.pid
        self._kill_at: float | None = None
        self._was_worn = False
        self._was_killed = False

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone; it is reaped by this question."""
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        """The exit code of a process that has ended; of a signal, its number below zero."""
        return self._process.returncode

    @property
    def stage(self) -> Stage:
        """How far the process has come, as it says itself."""
        return self._marks.stage

    @property
    def is_leaving(self) -> bool:
        """Whether the process was told to stop."""
        return self._kill_at is not None

    @property
    def ended_in_order(self) -> bool:
        """Whether the process said that it left nothing behind."""
        return self._marks.stage is Stage.ENDED and self.code == 0

    def sees_suspects(self) -> bool:
        """Whether suspects wait that the process has seen since this was asked last."""
        wait = self._marks.suspects_wait
        self._marks.suspects_wait = False
        return wait

    def stop(self, within: float) -> None:
        """Tell the process to stop in order, once; it is killed when that takes too long.

        One that has stopped by itself is not told: it only has to be gone in time. Python waits
        for threads that are no daemons, and a task may have left one that does not end.
        """
        if self._kill_at is None:
            self._was_worn = self._marks.stage is Stage.WORN
            self._kill_at = steady_seconds() + within
            if self._marks.stage is not Stage.ENDED:
                self._process.send_signal(signal.SIGTERM)

    def hurry(self, within: float) -> None:
        """End the grace of a process that was told to stop."""
        self._marks.hurry = True
        self._kill_at = min(steady_seconds() + within, self._kill_at or float("inf"))
        self._process.send_signal(signal.SIGTERM)

    def kill_if_late(self) -> None:
        """Kill a process that has not stopped in time."""
        if self._kill_at is not None and steady_seconds() >= self._kill_at:
            self._was_killed = True
            self._process.kill()

    def went(self) -> str:
        """Return how a process ended: ``"was killed by signal 9"``."""
        if self._was_told_to:
            return "was recycled" if self._was_worn else "was stopped"
        if self.code < 0:
            return f"was killed by signal {-self.code}"
        return f"exited with code {self.code}"

    def loss(self) -> Loss | None:
        """Return what a process that has ended may have left; None where that is nothing."""
        runner = self._marks.runner
        if runner is None or self.ended_in_order:
            return None
        return Loss(
            runner=runner,
            begun=self._marks.begun(),
            performed=self._marks.performed(),
            committing=self._marks.committing(),
            reason=self.went(),
            suspect=not self._was_told_to,
        )

    @property
    def _was_told_to(self) -> bool:
        """Whether the process went as it was told, if not in time."""
        return self.is_leaving and (self._was_killed or self.code == 0)

    def release(self) -> None:
        """Give up what was held for the process."""
        os.close(self._lifeline)
        self._marks.close()


@dataclass(slots=True)
class Starts:
    """When the next process may be started: at once, unless the last ones died at their start."""

    failures: int = 0
    _not_before: float = 0.0

    @property
    def are_due(self) -> bool:
        """Whether a process may be started."""
        return steady_seconds() >= self._not_before

    def failed(self) -> float:
        """Note that a process died before it began. Return the seconds until the next."""
        pause = min(FIRST_PAUSE * 2.0 ** min(self.failures, 10), LONGEST_PAUSE)
        self.failures += 1
        self._not_before = steady_seconds() + pause
        return pause

    def succeeded(self) -> None:
        """Note that a process has begun."""
        self.failures = 0


def reap_orphans(own: Sequence[Child]) -> None:
    """Reap the processes that were left to this one, as process 1 of a container has to."""
    pids = {child.pid for child in own}
    # Python has it on macOS from 3.13 on; there are no containers there that need it.
    while hasattr(os, "waitid"):
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in pids:
            # One of its own stands in front, and is seen to first.
            return
        os.waitpid(ended.si_pid, os.WNOHANG)
