"""Keeping claimed jobs by heartbeat, and putting back those whose runner stopped answering."""

from __future__ import annotations

import contextlib
import math
import typing as t
from dataclasses import dataclass

from pymongo import UpdateOne

from ..durations import millis
from ..errors import StoreUnavailable
from ..job import DEAD, PENDING, RUNNING, Document, Job, Rows
from ..log import logger
from .cancels import ASKED, NOT_ASKED, Back, bury_asked, is_asked, those_written
from .candidates import CLAIM
from .connection import answering
from .documents import changed, freed_key, handed_back, held_by, update_of, with_entry
from .suspects import SUSPECT
from .wakeups import no_ring

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from pymongo.collection import Collection

    from ..clock import Clock, Moment
    from .permits import Permits
    from .wakeups import RingFor

MOST_RECOVERED = 100


LOCKED_SECONDS = 1.0
"""How long a write waits for a document that somebody's open transaction has locked.

A process that was killed may leave one, which the server ends after a minute and a half.
"""

# A filter looks at an array's entries as well, and NaN is above nothing.
_NUMBER: t.Final[Document] = {"$gt": -math.inf, "$not": {"$type": "array"}}

SOUND: t.Final[Document] = {
    "_id": {"$type": "string"},
    "claim_token": {"$type": "string"},
    "attempts": _NUMBER,
    "max_attempts": _NUMBER,
}
"""Matches what can be put back: one that some other program spoilt must keep no other from it."""

WHILE = "while performing this job"
AFTER = "after performing this job, before its outcome was stored"


class JobLocked(StoreUnavailable):
    """A job that could be read could not be written: a transaction that is open has locked it."""


@dataclass(frozen=True, slots=True)
class Leases:
    """The heartbeats of running jobs (Q4)."""

    jobs: Collection[Document]
    clock: Clock
    permits: Permits
    rows: Rows | None = None
    ring_for: RingFor = no_ring

    def keep(self, jobs: Sequence[Job]) -> set[str]:
        """Stamp the heartbeat of jobs. Return the ids of those whose claim is gone."""
        if not jobs:
            return set()
        ours = _still_ours(jobs)
        with answering("a heartbeat"):
            kept = self.jobs.update_many(ours, {"$set": {"heartbeat_at": self.clock.now()}})
            if kept.matched_count == len(jobs):
                return set()
            found = {row["_id"] for row in self.jobs.find(ours, {"_id": True})}
        return {job.row["_id"] for job in jobs} - found

    def taken_over(self, jobs: Sequence[Job]) -> list[Job]:
        """Return those of some jobs whose claim is gone that did not end by their own outcome."""
        which = _claimed_by(jobs) | {"state": {"$ne": RUNNING}}
        with answering("the claims that are gone"):
            # An outcome leaves the token, and whatever puts a job back from outside removes it.
            ended = {row["_id"] for row in self.jobs.find(which, {"_id": True})} if jobs else set()
        return [job for job in jobs if job.row["_id"] not in ended]

    def cancelled(self, jobs: Sequence[Job]) -> list[Job]:
        """Return those of some running jobs whose end somebody asked for (W8)."""
        if not jobs:
            return []
        with answering("the look for cancelled jobs"):
            found = self.jobs.find(_still_ours(jobs) | ASKED, ["_id"], hint=[("_id", 1)])
            asked = {row["_id"] for row in found}
        return [job for job in jobs if job.row["_id"] in asked]

    def report(self, progress: Sequence[tuple[Job, Document]]) -> list[Job | None]:
        """Store how far jobs are, in one write.

        :return: The jobs as they are now, in the order given; None for each whose claim is gone.
        """
        writes = [UpdateOne(held_by(job), {"$set": {"progress": far}}) for job, far in progress]
        jobs = [job for job, _ in progress]
        with answering("the progress of jobs"):
            written = self.jobs.bulk_write(writes, ordered=False)
            stand = {job.row["_id"] for job in jobs}
            if written.matched_count < len(jobs):
                stand = {row["_id"] for row in self.jobs.find(_still_ours(jobs), {"_id": True})}
        return [
            job.with_row({**job.row, "progress": far}) if job.row["_id"] in stand else None
            for job, far in progress
        ]

    def recover(self, stuck_after: timedelta, *, at_once: bool = False) -> list[Job]:
        """Put back the running jobs with an old heartbeat; bury those without attempts left, and
        those that were cancelled.

        Nothing is recovered until the server's clock has been the same for that long (B8).

        :param at_once: An operator's word that it has.
        :return: What this call changed, as it is now.
        """
        if self.clock.calm_for() < stuck_after and not at_once:
            return []
        before = self.clock.now() - millis(stuck_after)
        which = {"state": RUNNING, "heartbeat_at": {"$lt": before}} | SOUND
        with answering("a recovery"):
            stuck = list(self.jobs.find(which, limit=MOST_RECOVERED, hint=CLAIM.name))
            try:
                return self._put_back(stuck, f"stopped answering {WHILE}.")
            except JobLocked as error:
                logger.debug(error.message)
                return []

    def recover_from(
        self,
        runner: str,
        reason: str,
        only: Iterable[str] | None = None,
        *,
        suspect: bool = True,
        when: str = WHILE,
    ) -> list[Job]:
        """Put back at once what a runner has that is known to be gone.

        :param reason: How it went, such as ``"was killed by signal 9"``.
        :param only: The jobs to put back; None for all.
        :param suspect: Whether they may be why, and are performed alone from now on (W6).
        :param when: How far the jobs were.
        :raises JobLocked: There is one such job, and it was locked. Where there are several, those
            that were are left as they are.
        """
        which: Document = {"state": RUNNING, "claimed_by": runner} | SOUND
        if only is not None:
            which["_id"] = {"$in": list(only)}
        with answering("a recovery"):
            rows = self.jobs.find(which, hint=CLAIM.name)
            return self._put_back(list(rows), f"{reason} {when}.", suspect)

    def hand_back_from(self, runner: str, besides: Iterable[str]) -> Back:
        """Put back what a runner that is gone had claimed and not begun, as if it had not.

        Those that somebody cancelled are dead instead (W8).

        :param besides: The jobs that it had begun; they are left as they are.
        """
        which = {"state": RUNNING, "claimed_by": runner, "_id": {"$nin": list(besides)}}
        shown = {"queue": True, "run_at": True}
        with answering("a hand-back"):
            rows = list(self.jobs.find(which, shown, hint=CLAIM.name, limit=MOST_RECOVERED))
            now = self.clock.now()
            back = self.jobs.update_many(which | NOT_ASKED, handed_back(now), hint=CLAIM.name)
            self.ring_for(rows)
            return Back(back.modified_count, bury_asked(self.jobs, which, now, self.rows))

    def _put_back(self, rows: list[Document], said: str, suspect: bool = True) -> list[Job]:
        if not rows:
            return []
        now = self.clock.now()
        mark = SUSPECT if suspect else {}
        updates = {row["_id"]: _recovery(row, now, f"{_runner(row)} {said}", mark) for row in rows}
        ours = self._written(rows, updates)
        missed = self._asked_meanwhile([row for row in rows if row not in ours])
        self.permits.forget(Job(row) for row in ours)
        jobs = [Job(changed(row, updates[row["_id"]]), self.rows) for row in ours]
        self.ring_for(job.row for job in jobs if job.row["state"] == PENDING)
        return jobs + self._put_back(missed, said, suspect)

    def _written(self, rows: list[Document], updates: dict[str, Document]) -> list[Document]:
        """Write what puts jobs back. Return those that it did put back.

        One whose document is locked holds up the others for a second, and is left.
        """
        try:
            with answering("a recovery", LOCKED_SECONDS):
                written = self.jobs.bulk_write(
                    [
                        UpdateOne(
                            _as_found(row) | ({} if is_asked(row) else NOT_ASKED),
                            updates[row["_id"]],
                        )
                        for row in rows
                    ],
                    ordered=False,
                )
                return those_written(self.jobs, rows, updates, written.modified_count)
        except StoreUnavailable as error:
            if len(rows) == 1:
                raise JobLocked(f"The job {rows[0]['_id']} is put back later: {error}") from error
        for row in rows:
            with contextlib.suppress(StoreUnavailable):
                self._written([row], updates)
        # Of what was cut off, some had been written.
        return those_written(self.jobs, rows, updates)

    def _asked_meanwhile(self, rows: list[Document]) -> list[Document]:
        """Return the jobs that were cancelled since they were read, and are as they were else."""
        same = [_as_found(row) for row in rows if not is_asked(row)]
        return list(self.jobs.find({"$or": same} | ASKED)) if same else []


def _as_found(row: Document) -> Document:
    # The heartbeat is in the guard: a runner that woke up in between keeps its job.
    return held_by(Job(row)) | {"heartbeat_at": row["heartbeat_at"]}


def _still_ours(jobs: Sequence[Job]) -> Document:
    return _claimed_by(jobs) | {"state": RUNNING}


def _claimed_by(jobs: Sequence[Job]) -> Document:
    return {
        "_id": {"$in": [job.row["_id"] for job in jobs]},
        "claim_token": {"$in": list({job.row["claim_token"] for job in jobs})},
    }


def _runner(row: Document) -> str:
    return f"The runner {row.get('claimed_by')}"


def _recovery(row: Document, now: Moment, message: str, mark: Document) -> Document:
    fields: Document = {
        "error_message": message,
        "history": with_entry(row, at=now, message=message),
        "updated_at": now,
        "claimed_at": None,
        "heartbeat_at": None,
        **mark,
    }
    if is_asked(row) or row["attempts"] >= row["max_attempts"]:
        reason = "cancelled" if is_asked(row) else "lost"
        fields |= {"state": DEAD, "finished_at": now, "dead_reason": reason}
        return update_of(fields, [*freed_key(row), "claim_token"])
    fields |= {"state": PENDING, "run_at": now, "finished_at": None, "claimed_by": None}
    return update_of(fields, ["claim_token"])
