"""What crashes leave behind: found without a write, and mended by guarded ones."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ..batch import Batch
from ..durations import millis
from ..job import DEAD, DONE, PENDING, RUNNING, Document, Job
from .candidates import CLAIM
from .connection import answering
from .permits import in_use, to_permit

if t.TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from pymongo.collection import Collection

    from ..clock import Clock
    from .leases import Leases
    from .permits import Permit, Permits
    from .tallies import Tallies

QUIET_MS = 60_000
"""What has changed since may be in the hands of a process that goes on with it."""

MOST_FOUND = 1000


class Miscount(t.NamedTuple):
    """A batch whose counters are not what its members' states say.

    :param batch: As it is stored.
    :param done: How many members have ended, and ``failed`` how many of them badly.
    :param is_over: Whether none waits or runs, so that the batch is to be ended.
    """

    batch: Batch
    done: int
    failed: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class Repairs:
    """Finds what nobody goes on with, and puts it right.

    Workers do most of it as they go. This is for whoever wants to know now, and without a worker.
    Each mend is conditional on what was found being as it was.
    """

    jobs: Collection[Document]
    runners: Collection[Document]
    clock: Clock
    permits: Permits
    tallies: Tallies
    leases: Leases

    def stray_permits(self) -> list[Permit]:
        """Return the permits that were taken a while ago and under which no job runs (L3)."""
        with answering("the permits"):
            return [to_permit(row) for row in self._stray()]

    def free_stray_permits(self) -> int:
        """Give those back. Return how many."""
        with answering("the permits"):
            # A claim's token is used once: under which no job runs now, none ever will.
            return sum(
                self.permits.limits.delete_one(
                    {name: row[name] for name in ("_id", "runner", "job_id", "taken_at")}
                    | {"token": row.get("token")}
                ).deleted_count
                for row in self._stray()
            )

    def miscounts(self) -> list[Miscount]:
        """Return the unfinished batches that nobody touched lately and that are over, or whose
        counters differ from their members' states."""
        quiet = self.clock.now() - QUIET_MS
        which = {"finished_at": None, "updated_at": {"$lt": quiet}}
        with answering("the batches"):
            rows = list(self.tallies.batches.find(which, sort=[("_id", 1)], limit=MOST_FOUND))
            looks = [self._look_at(Batch(row, self.tallies.rows)) for row in rows]
        return [look for look in looks if look.is_over or _differs(look)]

    def recount(self, found: Miscount) -> bool:
        """Give a batch the counts of its members' states; return whether it was as it was found.

        Its end, where it is over, is another matter.
        """
        row = found.batch.row
        as_read = {name: row.get(name) for name in ("done", "failed", "updated_at", "finished_at")}
        counts = {"done": found.done, "failed": found.failed, "updated_at": self.clock.now()}
        with answering("the count of a batch"):
            written = self.tallies.batches.update_one(
                {"_id": row["_id"], **as_read}, {"$set": counts}
            )
            return written.matched_count == 1

    def gone(self, stuck_after: timedelta) -> Mapping[str, int]:
        """Return the runners that were not heard of for so long, and how many jobs each has."""
        silent = self._silent(stuck_after)
        with answering("the runners"):
            names = [row["_id"] for row in self.runners.find(silent, {"_id": True})]
            stuck = self.jobs.find(
                {"state": RUNNING, **silent},
                {"claimed_by": True},
                limit=MOST_FOUND,
                hint=CLAIM.name,
            )
            return dict.fromkeys(names, 0) | Counter(row["claimed_by"] for row in stuck)

    def put_back_from_gone(self, stuck_after: timedelta) -> list[Job]:
        """Forget the runners that are gone, and put back the jobs that they have.

        :return: The jobs as they are now.
        """
        recovered: list[Job] = []
        while some := self.leases.recover(stuck_after, at_once=True):
            recovered += some
        with answering("the runners"):
            self.runners.delete_many(self._silent(stuck_after))
        return recovered

    def _silent(self, stuck_after: timedelta) -> Document:
        return {"heartbeat_at": {"$lt": self.clock.now() - millis(stuck_after)}}

    def _stray(self) -> list[Document]:
        before = self.clock.now() - QUIET_MS
        old = list(self.permits.limits.find({"taken_at": {"$lt": before}}, limit=MOST_FOUND))
        kept = in_use(old, self.jobs)
        return [row for row in old if row["_id"] not in kept]

    def _look_at(self, batch: Batch) -> Miscount:
        found = self.tallies.found(batch.id)
        ended, live = found[DONE] + found[DEAD], found[PENDING] + found[RUNNING]
        if batch.state != "running":
            return Miscount(batch, ended, found[DEAD], is_over=False)
        # A member that somebody deleted counts as ended, and as whatever it was counted.
        done = max(ended, batch.total - live)
        failed = min(max(batch.failed, found[DEAD]), found[DEAD] + done - ended)
        return Miscount(batch, done, failed, is_over=not live)


def _differs(look: Miscount) -> bool:
    return (look.batch.done, look.batch.failed) != (look.done, look.failed)
