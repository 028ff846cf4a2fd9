"""What is paused: a queue, a task or a tenant, of which no job begins (X4)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

QUEUE, TASK, TENANT = KINDS = ("queue", "task", "tenant")

_FIELDS = {QUEUE: "queue", TASK: "name", TENANT: "tenant"}
"""The field of a job that each kind of pause goes by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """One thing that is paused.

    :param kind: ``queue``, ``task`` or ``tenant``.
    :param name: Which of them.
    :param paused_at: When the first of those who paused it did so.
    """

    kind: str
    name: str
    paused_at: datetime

    def holds(self, row: Mapping[str, t.Any]) -> bool:
        """Whether a job is held back by it."""
        return bool(row.get(_FIELDS[self.kind]) == self.name)

    def to_dict(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return {"kind": self.kind, "name": self.name, "paused_at": self.paused_at.isoformat()}

    def __str__(self) -> str:
        """Return what is paused, as a sentence names it."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Paused:
    """All that is paused at one moment, so that a job can be judged by it."""

    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pauses: Iterable[Pause]) -> Paused:
        """Return what some pauses hold back together."""
        names: dict[str, set[str]] = {kind: set() for kind in KINDS}
        for pause in pauses:
            names[pause.kind].add(pause.name)
        return cls(*(frozenset(names[kind]) for kind in KINDS))

    def holds(self, row: Mapping[str, t.Any]) -> bool:
        """Whether a job is held back."""
        return (
            row["queue"] in self.queues
            or row["name"] in self.tasks
            or row.get("tenant") in self.tenants
        )

    @property
    def holds_some_of_a_queue(self) -> bool:
        """Whether jobs are held back beside others of their queue."""
        return bool(self.tasks or self.tenants)

    def __bool__(self) -> bool:
        return bool(self.queues or self.tasks or self.tenants)


NOTHING_PAUSED = Paused()
