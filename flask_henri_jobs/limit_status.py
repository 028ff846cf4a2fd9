"""A limit as it stands: what is declared, and who holds what."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .limit import Limit
    from .store.permits import Permit


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitStatus:
    """A group of tasks of which only so many run at once.

    :param limit: How many of one key run at once; None where permits are held of a group that no
        task here declares.
    :param tasks: The names of its tasks.
    :param held: The permits that are held, each by a runner for a job.
    """

    group: str
    limit: int | None
    tasks: tuple[str, ...]
    held: tuple[Permit, ...]

    def to_dict(self) -> dict[str, t.Any]:
        """Return it as JSON has it."""
        return {
            "group": self.group,
            "limit": self.limit,
            "tasks": list(self.tasks),
            "held": [permit.to_dict() for permit in self.held],
        }


def limit_statuses(limits: Mapping[str, Limit], held: Iterable[Permit]) -> list[LimitStatus]:
    """Return every group that is declared or held, by name.

    :param limits: The limits by the names of their tasks.
    """
    most = {limit.group: limit.most for limit in limits.values()}
    permits: dict[str, list[Permit]] = defaultdict(list)
    for permit in held:
        permits[_group_of(permit.key, most)].append(permit)
    return [
        LimitStatus(
            group=group,
            limit=most.get(group),
            tasks=tuple(sorted(name for name, limit in limits.items() if limit.group == group)),
            held=tuple(permits[group]),
        )
        for group in sorted(most.keys() | permits.keys())
    ]


def _group_of(key: str, known: Mapping[str, int]) -> str:
    """Return the group of a key: ``group`` or ``group:value``, the longest that is known."""
    group = key
    while group not in known:
        group, colon, _ = group.rpartition(":")
        if not colon:
            return key.partition(":")[0]
    return group
