"""The tasks that are known here, by name."""

from __future__ import annotations

import typing as t
from difflib import get_close_matches

from .errors import ConfigError, UnknownTask
from .task import where_defined

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from .backoff import Backoff
    from .limit import Limit
    from .outcome import RetryPolicy
    from .rate import Lane, Rate
    from .task import Task

AnyTask: t.TypeAlias = "Task[..., t.Any]"


class Registry:
    """The tasks of one :class:`HenriJobs`. They are declared once, before there is an app."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}

    def add(self, task: AnyTask) -> None:
        """Make a task known.

        :raises ConfigError: Another function has its name.
        """
        known = self._tasks.get(task.name)
        # A module that is imported twice, as a reload does, declares the same task again.
        if known is not None and _place(known) != _place(task):
            raise ConfigError(
                f"Two tasks are named {task.name!r}: one at {_place(known)}, one at"
                f" {_place(task)}.",
                hint="Give one of them another name=.",
            )
        self._check_group(task)
        self._tasks[task.name] = task

    def find(self, name: str) -> AnyTask | None:
        """Return the task of a name, or None."""
        return self._tasks.get(name)

    def limits(self) -> dict[str, Limit]:
        """Return the limits of the tasks that have one, by the tasks' names."""
        return {name: task.limit for name, task in self._tasks.items() if task.limit is not None}

    def policies(self, backoff: Backoff) -> dict[str, RetryPolicy]:
        """Return what becomes of the failures of each task, by the tasks' names.

        :param backoff: The settings' backoff, for what a task's own leaves out.
        :raises ConfigError: The two do not go together.
        """
        return {name: task.policy(backoff) for name, task in self._tasks.items()}

    def lanes(self) -> dict[str, Lane]:
        """Return the lanes of the tasks with a limit or a rate, by the tasks' names."""
        return {name: task.lane for name, task in self._tasks.items() if task.lane is not None}

    def transactional(self) -> list[str]:
        """Return the names of the tasks that say that they need transactions (X2)."""
        return [name for name in self if self._tasks[name].defaults.transactional]

    def __getitem__(self, name: str) -> AnyTask:
        if name not in self._tasks:
            likely = get_close_matches(name, self._tasks, n=1)
            raise UnknownTask(
                f"No task is named {name!r:.200}.",
                hint=f"Did you mean {likely[0]!r}?"
                if likely
                else "Is the module that declares it in HENRI_JOBS_IMPORTS?",
            )
        return self._tasks[name]

    def _check_group(self, task: AnyTask) -> None:
        """Refuse a second opinion on how many of a group run at once, or begin in a time (L1)."""
        for other in self._tasks.values():
            if _disagree(other.limit, task.limit):
                raise ConfigError(
                    f"The tasks {other.name} and {task.name} are of one group and disagree on"
                    f" its limit: {other.limit}, {task.limit}.",
                    hint="Give both the same limit.",
                )
            if _rates_disagree(other, task):
                raise ConfigError(
                    f"The tasks {other.name} and {task.name} are of one group and disagree on"
                    f" its rate: {other.rate or 'none'}, {task.rate or 'none'}.",
                    hint="Give both the same rate.",
                )

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)


def _disagree(one: Limit | None, other: Limit | None) -> bool:
    return bool(one and other and one.group == other.group and one.most != other.most)


def _rates_disagree(one: AnyTask, other: AnyTask) -> bool:
    """Whether tasks that are counted together, or found by the same keys, have other rates."""
    if one.lane and other.lane and one.lane.group == other.lane.group:
        return one.lane.most != other.lane.most or _counts(one.rate) != _counts(other.rate)
    if one.rate and other.rate and one.rate.group == other.rate.group:
        return _counts(one.rate) != _counts(other.rate)
    return False


def _counts(rate: Rate | None) -> tuple[str, int, int, bool] | None:
    """Return what a rate counts, but for how it reads a key out of the arguments."""
    if rate is None:
        return None
    return rate.group, rate.most, rate.window, rate.key is None


def _place(task: AnyTask) -> str:
    return where_defined(task.function)
