"""What an operator does to jobs: delete and retry, one or many; cancel."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from pymongo import ReturnDocument, UpdateOne

from ..checks import checked_int
from ..errors import InvalidFilter, JobBusy
from ..job import DEAD, DONE, PENDING, RUNNING, Document, Job
from .cancels import NOT_ASKED, buried, is_asked
from .connection import answering
from .documents import is_as_read, one_batch
from .filters import RECENT, TENANT
from .lookup import ENDED, Lookup, checked_id
from .wakeups import no_ring
from .walks import STEP, Walk

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment
    from .filters import JobFilter
    from .indexes import Index
    from .wakeups import RingFor


MOST_JOBS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Admin(Lookup):
    """The jobs as an operator has them in hand. A running job is the runner's, and is refused."""

    batches: Collection[Document]
    now: Callable[[], Moment]
    ring_for: RingFor = no_ring
    ring_ended: Callable[[list[str]], None] = lambda _: None

    def delete(self, job_id: str) -> Job | None:
        """Delete a job. Return it as it was, or None where there is none with that id.

        :raises JobBusy: It is running.
        """
        which = {"_id": checked_id(job_id), "state": {"$ne": RUNNING}}
        with answering(f"the deletion of job {job_id}"):
            while True:
                if (row := self.jobs.find_one_and_delete(which)) is not None:
                    self.ring_ended([job_id])
                    return Job(row, self)
                # One that stopped running since is tried again.
                state = self._state_of(job_id)
                if state is None:
                    return None
                if state == RUNNING:
                    raise _busy(job_id, "deleted")

    def delete_many(self, which: JobFilter, most: int | None = None) -> Iterator[Job]:
        """Delete the jobs that fit and do not run, a thousand at a time; yield each as it was.

        It goes on only as the caller does: what was not asked for may not be deleted yet.

        :param most: Delete no more.
        :raises InvalidFilter: It selects everything, which nobody asks for by leaving all out.
        """
        if which.is_empty:
            raise InvalidFilter(
                "Nothing says which jobs are to be deleted.",
                hint='Give a filter, such as state="dead".',
            )
        if which.state == RUNNING:
            raise JobBusy("Running jobs are not deleted.", hint="Cancel them first.")
        return self._delete_in_steps(which, _checked_most(most))

    def retry(self, job_id: str) -> Job:
        """Have a job performed again, now and with all its attempts; its history stays (Q10).

        A member of an unfinished batch gives its count back first. A job that waits is due now,
        with the attempts that it has left.

        :return: The job as it is now.
        :raises UnknownJob: There is none with that id.
        :raises JobBusy: It is running.
        """
        with answering(f"the retry of job {checked_id(job_id)}"):
            while True:
                row = self.row_of(job_id)
                if row["state"] == RUNNING:
                    raise _busy(job_id, "retried")
                if row["state"] in ENDED:
                    self._give_counts_back([row])
                    update = _again(self.now())
                else:
                    update = _due(self.now())
                changed = self.jobs.find_one_and_update(
                    _unchanged(row), update, return_document=ReturnDocument.AFTER
                )
                if changed is not None:
                    self.ring_for([changed])
                    return Job(changed, self)

    def cancel(self, job_id: str) -> tuple[str, Job]:
        """Bury a job that waits; have one that runs told to end; leave one that has ended (W8).

        :return: In which state it was, and the job as it is now.
        :raises UnknownJob: There is none with that id.
        """
        with answering(f"the cancelling of job {checked_id(job_id)}"):
            while True:
                row = self.row_of(job_id)
                if row["state"] in ENDED or (row["state"] == RUNNING and is_asked(row)):
                    return row["state"], Job(row, self)
                # Either may be too late: a runner claims it, or it goes back.
                if row["state"] == PENDING:
                    which, update = _unchanged(row), buried(row, self.now())
                else:
                    which = {"_id": job_id, "state": RUNNING} | NOT_ASKED
                    update = {"$set": {"cancel_requested_at": self.now()}}
                changed = self.jobs.find_one_and_update(
                    which, update, return_document=ReturnDocument.AFTER
                )
                if changed is not None:
                    return row["state"], Job(changed, self)

    def retry_many(self, which: JobFilter, most: int | None = None) -> int:
        """Retry the jobs that fit and have ended, as :meth:`retry` does. Return how many.

        :param which: Where it names neither a reason nor ``done``, the alarming dead jobs (Q5).
        :param most: Retry no more.
        """
        return sum(self.retry_in_steps(which, most))

    def retry_in_steps(self, which: JobFilter, most: int | None = None) -> Iterator[int]:
        """Retry as :meth:`retry_many` does, as far as the caller goes on.

        Yield after each step, of a thousand jobs at most, how many it was.
        """
        if which.state in {PENDING, RUNNING}:
            raise InvalidFilter(
                f"state is {which.state!r}, and only jobs that have ended are retried together.",
                hint='Give state="dead" or state="done", or retry a job by its id.',
            )
        ended = which if which.state == DONE else which.or_alarming()
        steps = self._steps(ended, _checked_most(most))
        return (self._retry_step(rows) for rows in steps)

    def _steps(self, which: JobFilter, most: int | None) -> Iterator[list[Document]]:
        """Yield the jobs that fit and do not run, a step at a time. Each is to be dealt with."""
        left = most
        for state in which.states:
            if state == RUNNING:
                continue
            for rows in self._steps_in(state, which):
                yield rows if left is None else rows[:left]
                if left is not None and (left := left - len(rows)) <= 0:
                    return

    def _steps_in(self, state: str, which: JobFilter) -> Iterator[list[Document]]:
        if which.index in (RECENT, TENANT):
            yield from Walk(self.jobs, state, which.tenant).steps(which.rest())
            return
        # Of a batch or a tag there is no walk; what was dealt with does not match again.
        query = which.to_query() | {"state": state}
        while rows := self._some(query, which.index):
            yield rows

    def _some(self, query: Document, index: Index) -> list[Document]:
        with answering("a look through the jobs"):
            return list(self.jobs.find(query, hint=index.name, **one_batch(STEP)))

    def _delete_in_steps(self, which: JobFilter, most: int | None) -> Iterator[Job]:
        for rows in self._steps(which, most):
            ids = {row["_id"] for row in rows}
            with answering("the deletion of jobs"):
                self.jobs.delete_many({"_id": {"$in": list(ids)}, "state": rows[0]["state"]})
                kept = {row["_id"] for row in self.jobs.find({"_id": {"$in": list(ids)}}, ["_id"])}
            yield from (Job(row, self) for row in rows if row["_id"] not in kept)

    def _retry_step(self, rows: list[Document]) -> int:
        ended = {"_id": {"$in": [row["_id"] for row in rows]}, "state": rows[0]["state"]}
        with answering("the retry of jobs"):
            self._give_counts_back(rows)
            now = self.now()
            again = self.jobs.update_many(ended, _again(now)).modified_count
            self.ring_for({"queue": row["queue"], "run_at": now} for row in rows)
            return again

    def _give_counts_back(self, rows: Sequence[Document]) -> None:
        """Take ended members out of the counts of their batches, where those are unfinished."""
        members = [row for row in rows if row.get("batch_id") is not None]
        if not members:
            return
        ended = Counter(row["batch_id"] for row in members)
        failed = Counter(row["batch_id"] for row in members if row["state"] == DEAD)
        self.batches.bulk_write(
            [
                UpdateOne(
                    {"_id": batch, "finished_at": None},
                    _fewer(ended[batch], failed[batch], self.now()),
                )
                for batch in ended
            ],
            ordered=False,
        )


def _checked_most(most: int | None) -> int | None:
    return None if most is None else checked_int(most, "most", 1, MOST_JOBS, error=InvalidFilter)


def _unchanged(row: Document) -> Document:
    """Match a job only while it is what was read."""
    return is_as_read(row) | {"_id": row["_id"], "state": row["state"]}


def _again(now: Moment) -> Document:
    """Return the update that puts an ended job back as if it were new."""
    fields: Document = {"state": PENDING, "attempts": 0, "run_at": now, "updated_at": now}
    fields |= dict.fromkeys(_EMPTIED)
    # What was read of the job before this no longer holds (A1).
    return {"$set": fields, "$unset": dict.fromkeys(_REMOVED, ""), "$inc": {"revision": 1}}


_EMPTIED = (
    "started_at",
    "finished_at",
    "claimed_at",
    "claimed_by",
    "heartbeat_at",
    "duration_ms",
    "error_message",
    "error_stack",
)

_REMOVED = (
    "claim_token",
    "dead_reason",
    "result",
    "result_error",
    "progress",
    "cancel_requested_at",
    "aborted_transactions",
    # An operator's word is newer than the expiry: the job would be dead again at once.
    "expires_at",
)


def _due(now: Moment) -> Document:
    """Return the update that makes a waiting job due; one that is due keeps its place."""
    # A henri runner puts a job back with the request for its end.
    return {
        "$min": {"run_at": now},
        "$set": {"updated_at": now},
        "$unset": {"cancel_requested_at": ""},
        "$inc": {"revision": 1},
    }


def _fewer(ended: int, failed: int, now: Moment) -> list[Document]:
    """Return the update that takes from a batch's counts, which may be short, down to nothing."""
    less = {
        count: {"$max": [0, {"$subtract": [f"${count}", by]}]}
        for count, by in (("done", ended), ("failed", failed))
    }
    return [{"$set": {**less, "updated_at": now}}]


def _busy(job_id: str, done: str) -> JobBusy:
    return JobBusy(
        f"Job {job_id} is running, and cannot be {done}.",
        hint=f"Cancel it with jobs.cancel({job_id!r}), or wait for its end.",
    )
