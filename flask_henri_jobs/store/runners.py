"""The ``runners`` collection: which processes work on the queue, and what each is doing."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import asdict, dataclass, field

from ..clock import to_datetime
from ..durations import millis
from ..job import RUNNING, Document, put_plain
from .candidates import CLAIM
from .connection import answering

if t.TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from pymongo.collection import Collection

    from ..clock import Clock

MOST_RUNNERS = 1000
MOST_DOING = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class InHand:
    """A job that a runner has claimed, and has or is about to begin."""

    id: str
    name: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRunner:
    """A process that performs jobs.

    :param id: ``host:pid:8hex``, which a job's ``claimed_by`` holds.
    :param app: The name of its application.
    :param queues: What it takes from, as it is written on a command line; ``*`` is every queue.
    :param role: ``jobs``; or ``suspects``, for one that performs alone what ran in a process that
        died (W6).
    :param tasks: The names of those it knows.
    :param doing: The jobs it has in hand.
    """

    id: str
    app: str
    host: str
    pid: int
    role: str
    queues: str
    threads: int
    tasks: Sequence[str]
    started_at: datetime | None
    heartbeat_at: datetime | None
    doing: Sequence[InHand] = field(default=())

    def to_dict(self) -> dict[str, t.Any]:
        """Return it as plain values, as ``flask jobs runners --json`` prints it."""
        shown: dict[str, t.Any] = {}
        for name, value in asdict(self).items():
            put_plain(shown, name, value)
        return shown


class Neighbour(t.NamedTuple):
    """A runner of the same machine, alive or not.

    :param born: When its process began, as the machine counts.
    :param jobs: The ids of those that it has in hand.
    """

    id: str
    pid: int
    born: str
    jobs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Runners:
    """Who is alive: each runner writes itself down again and again, and is swept when it stops."""

    runners: Collection[Document]
    jobs: Collection[Document]
    clock: Clock

    def write(self, runner: str, **facts: t.Any) -> None:
        """Note that a runner is alive, and what it is; ``started_at`` is of its first time."""
        now = self.clock.now()
        update = {"$set": {**facts, "heartbeat_at": now}, "$setOnInsert": {"started_at": now}}
        with answering("the runners"):
            self.runners.update_one({"_id": runner}, update, upsert=True)

    def remove(self, runner: str) -> None:
        """Note that a runner is gone."""
        with answering("the runners"):
            self.runners.delete_one({"_id": runner})

    def sweep(self, stuck_after: timedelta) -> None:
        """Forget the runners that have not been heard of for so long."""
        if self.clock.calm_for() < stuck_after:
            return
        before = self.clock.now() - millis(stuck_after)
        with answering("the runners"):
            self.runners.delete_many({"heartbeat_at": {"$lt": before}})

    def alive(self, stuck_after: timedelta) -> list[LiveRunner]:
        """Return the runners that were heard of within so long, those first that live longest."""
        since = self.clock.now() - millis(stuck_after)
        with answering("the runners"):
            rows = list(
                self.runners.find(
                    {"heartbeat_at": {"$gte": since}}, sort=[("started_at", 1)], limit=MOST_RUNNERS
                )
            )
            doing = self._doing() if rows else {}
        return [_to_runner(row, doing.get(row["_id"], ())) for row in rows]

    def of_machine(self, machine: str) -> list[Neighbour]:
        """Return the runners that wrote themselves down on a machine, alive or not."""
        with answering("the runners"):
            rows = list(self.runners.find({"machine": machine}, limit=MOST_RUNNERS))
            doing = self._doing() if rows else {}
        return [
            Neighbour(
                row["_id"],
                int(row["pid"]),
                str(row["born"]),
                [job.id for job in doing.get(row["_id"], ())],
            )
            for row in rows
        ]

    def _doing(self) -> dict[str, list[InHand]]:
        doing: dict[str, list[InHand]] = defaultdict(list)
        shown = {"name": True, "claimed_by": True, "started_at": True}
        rows = self.jobs.find({"state": RUNNING}, shown, hint=CLAIM.name, limit=MOST_DOING)
        for row in rows:
            since = to_datetime(row["started_at"])
            doing[row["claimed_by"]].append(InHand(id=row["_id"], name=row["name"], since=since))
        return doing


def _to_runner(row: Document, doing: Sequence[InHand]) -> LiveRunner:
    return LiveRunner(
        id=row["_id"],
        app=row["app"],
        host=row["host"],
        pid=int(row["pid"]),
        role=row["role"],
        queues=row["queues"],
        threads=int(row["threads"]),
        tasks=tuple(row["tasks"]),
        started_at=to_datetime(row["started_at"]),
        heartbeat_at=to_datetime(row["heartbeat_at"]),
        doing=tuple(doing),
    )
