"""What there is in the queue, in numbers, at a cost that does not grow with what is done."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from ..clock import Moment, steady_seconds
from ..durations import millis
from ..job import DEAD, DONE, PENDING, RUNNING, STATES, Document
from .candidates import CLAIM
from .connection import answering
from .documents import ANY_PRIORITY
from .filters import RECENT
from .walks import MOST_EXAMINED
from .wish import is_number

if t.TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymongo.collection import Collection

    from ..job import Job
    from .indexes import Index

DONE_SECONDS = 10.0
"""How long the count of done jobs stands: it is by far the longest to take (B5)."""

MOST_TIMED = 10_000
MOST_PRIORITIES = 50


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the jobs of a queue took of late.

    :param runs: How many jobs that says.
    """

    runs: int
    average: timedelta
    shortest: timedelta
    longest: timedelta


@dataclass(slots=True)
class Figures:
    """Counts and times, by queue."""

    jobs: Collection[Document]
    now: Callable[[], Moment]
    steady: Callable[[], float] = steady_seconds
    _done: dict[str, int] = field(default_factory=dict)
    _done_until: float = 0.0

    INDEXES: t.ClassVar[tuple[Index, ...]] = (CLAIM, RECENT)

    def status(self) -> dict[str, t.Any]:
        """Return the queues, and the tasks that wait, as ``flask jobs status`` shows them.

        ``queues`` is a list of ``{queue, pending, running, done, dead, oldest_ms}``, where
        ``oldest_ms`` is None where nothing is due; ``waiting_tasks`` is as :meth:`waiting_tasks`.
        """
        oldest = self.oldest(self.now())
        queues = [
            {"queue": queue, **counts, "oldest_ms": _millis_or_none(oldest.get(queue))}
            for queue, counts in sorted(self.counts().items())
        ]
        return {"queues": queues, "waiting_tasks": self.waiting_tasks()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many jobs each queue has in each state; those done as of 10 s ago at most."""
        counts: dict[str, dict[str, int]] = {}
        with answering("the counts"):
            for queue, count in self._count_done().items():
                _put(counts, queue, DONE, count)
            for row in self._count([PENDING, RUNNING, DEAD]):
                _put(counts, str(row["_id"].get("queue")), row["_id"]["state"], row["jobs"])
        return counts

    def timings(self) -> dict[str, Timing]:
        """Return how long jobs took, by queue, over the 10,000 that were done last."""
        with answering("the timings"):
            rows = self.jobs.aggregate(
                [
                    {"$match": {"state": DONE}},
                    {"$sort": {"updated_at": -1, "_id": 1}},
                    {"$limit": MOST_TIMED},
                    {"$match": {"duration_ms": {"$ne": None}}},
                    {"$group": {"_id": "$queue", **_TIMED}},
                ],
                hint=RECENT.name,
            )
            return {row["_id"]: _timing(row) for row in rows}

    def queues_with_work(self) -> list[str]:
        """Return the queues that have waiting jobs."""
        with answering("the queues"):
            found = self.jobs.distinct("queue", {"state": PENDING})
            return [queue for queue in found if isinstance(queue, str)]

    def oldest(self, now: Moment) -> dict[str, timedelta]:
        """Return for how long the longest waiting job of each queue has been due.

        A queue where nothing is due is left out. Of a queue with more than 50 priorities the most
        urgent 50 are looked at.
        """
        oldest = {}
        with answering("the oldest jobs"):
            for queue in self.queues_with_work():
                due = self._oldest_due(queue, now)
                if due is not None:
                    oldest[queue] = timedelta(milliseconds=now - due)
        return oldest

    def in_front(self, job: Job, now: Moment, at_most: int) -> int:
        """Return how many due jobs of its queue come before a job, up to so many (Q2)."""
        priority, run_at, queue = (job.row[key] for key in ("priority", "run_at", "queue"))
        before: list[Document] = [
            {"priority": {"$lt": priority}, "run_at": {"$lte": now}},
            {"priority": priority, "run_at": {"$lt": run_at}},
            {"priority": priority, "run_at": run_at, "_id": {"$lt": job.row["_id"]}},
        ]
        found = 0
        with answering("the place in the queue"):
            for part in before:
                if found < at_most:
                    which = {"state": PENDING, "queue": queue, **part}
                    left = at_most - found
                    found += self.jobs.count_documents(which, hint=CLAIM.name, limit=left)
        return found

    def waiting_tasks(self, most_examined: int = MOST_EXAMINED) -> dict[str, int]:
        """Return the names of the tasks with waiting jobs and how many each has, most first.

        :param most_examined: Where more jobs wait, those that changed longest ago are looked at:
            a job that no runner knows is one that stays.
        """
        with answering("the waiting tasks"):
            rows = self.jobs.aggregate(
                [
                    {"$match": {"state": PENDING}},
                    {"$sort": {"updated_at": 1, "_id": -1}},
                    {"$limit": most_examined},
                    {"$group": {"_id": "$name", "jobs": {"$sum": 1}}},
                ],
                hint=RECENT.name,
            )
            names: Counter[str] = Counter()
            for row in rows:
                # Two of what some other program left in the place of a name may look alike.
                names[str(row["_id"])] += row["jobs"]
        return dict(names.most_common())

    def _count_done(self) -> Mapping[str, int]:
        if self.steady() >= self._done_until:
            self._done = {str(row["_id"].get("queue")): row["jobs"] for row in self._count([DONE])}
            self._done_until = self.steady() + DONE_SECONDS
        return self._done

    def _count(self, states: list[str]) -> list[Document]:
        group: Document = {"_id": {"queue": "$queue", "state": "$state"}, "jobs": {"$sum": 1}}
        steps: list[Document] = [{"$match": {"state": {"$in": states}}}, {"$group": group}]
        return list(self.jobs.aggregate(steps, hint=CLAIM.name))

    def _oldest_due(self, queue: str, now: Moment) -> Moment | None:
        """Return the earliest due moment in a queue, a priority at a time.

        Under one priority of one concurrency key the index is in the order of ``run_at``: its
        first entry is the oldest, and one jump through the index finds it for every key.
        """
        oldest: Moment | None = None
        behind: Document = {"priority": ANY_PRIORITY}
        for _ in range(MOST_PRIORITIES):
            heads = self._heads({"queue": queue, "run_at": {"$lte": now}} | behind)
            heads = [head for head in heads if is_number(head["run_at"])]
            if not heads:
                break
            priority = min(head["priority"] for head in heads)
            due = min(int(head["run_at"]) for head in heads if head["priority"] == priority)
            oldest = due if oldest is None else min(oldest, due)
            behind = {"priority": {"$gt": priority}}
        return oldest

    def _heads(self, which: Document) -> list[Document]:
        """Return the first job of each concurrency key, and of those without one."""
        steps = [
            {"$match": {"state": PENDING, **which}},
            {"$sort": CLAIM.keys},
            {"$group": {"_id": "$concurrency_key", **_HEAD}},
        ]
        return list(self.jobs.aggregate(steps, hint=CLAIM.name))


_TIMED: Document = {
    "runs": {"$sum": 1},
    "average": {"$avg": "$duration_ms"},
    "shortest": {"$min": "$duration_ms"},
    "longest": {"$max": "$duration_ms"},
}

_HEAD: Document = {"priority": {"$first": "$priority"}, "run_at": {"$first": "$run_at"}}


def _put(counts: dict[str, dict[str, int]], queue: str, state: str, count: int) -> None:
    counts.setdefault(queue, dict.fromkeys(STATES, 0))[state] = count


def _timing(row: Document) -> Timing:
    average, shortest, longest = (
        timedelta(milliseconds=row[key]) for key in ("average", "shortest", "longest")
    )
    return Timing(runs=row["runs"], average=average, shortest=shortest, longest=longest)


def _millis_or_none(duration: timedelta | None) -> int | None:
    return None if duration is None else millis(duration)
