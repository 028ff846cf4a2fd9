"""The runner's own line among those who are alive."""

from __future__ import annotations

import os
import socket
import typing as t
from dataclasses import dataclass

from .machine import own_traits

if t.TYPE_CHECKING:
    from ..queues import QueueSelection
    from ..settings import Settings
    from ..store.runners import Runners
    from .post import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Roll:
    """Writes down that a runner is alive, as often as its jobs have heartbeats.

    :param tasks: The names of those it knows.
    """

    runners: Runners
    settings: Settings
    runner: str
    role: Role
    queues: QueueSelection
    threads: int
    tasks: list[str]

    @property
    def every(self) -> float:
        """Seconds between two times."""
        return self.settings.heartbeat.total_seconds()

    def write(self) -> None:
        """Say that the runner is alive, and forget those that are not."""
        self.runners.write(
            self.runner,
            app=self.settings.app_name,
            host=socket.gethostname(),
            pid=os.getpid(),
            role=str(self.role),
            queues=str(self.queues),
            threads=self.threads,
            tasks=self.tasks,
            **own_traits(),
        )
        self.runners.sweep(self.settings.stuck_after)

    def remove(self) -> None:
        """Say that it is gone."""
        self.runners.remove(self.runner)
