"""Reading jobs: one, a page of them, how many there are, and one's end."""

from __future__ import annotations

import contextlib
import time
import typing as t
from dataclasses import dataclass, field

from ..checks import checked_int, checked_name
from ..clock import steady_seconds
from ..errors import InvalidFilter, UnknownJob, WaitTimeout
from ..job import DEAD, DONE, Document, Job
from .candidates import CLAIM
from .connection import answering
from .filters import BATCH, RECENT, TAGS, TENANT, JobFilter
from .walks import MOST_EXAMINED

if t.TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pymongo.collection import Collection

    from .indexes import Index

Watched: t.TypeAlias = "Callable[[str], AbstractContextManager[Callable[[float], None]]]"

MOST_ON_A_PAGE = 1000
MOST_OFFSET = 1_000_000

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 1.0
"""Seconds between two looks at a job that is waited for; a ring may come in between."""

ENDED = (DONE, DEAD)


class Page(list[Job]):
    """Jobs of a list, in its order.

    :param is_cut: Whether the look ended at its bound, so that there may be more that fit.
    """

    def __init__(self, jobs: Sequence[Job], *, is_cut: bool = False) -> None:
        super().__init__(jobs)
        self.is_cut = is_cut


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where jobs are read, and read anew.

    :param waits: Gives what a thread sleeps with that waits for a job's end.
    """

    jobs: Collection[Document]
    waits: Watched | None = field(default=None, kw_only=True)
    steady: Callable[[], float] = field(default=steady_seconds, kw_only=True)
    sleep: Callable[[float], None] = field(default=time.sleep, kw_only=True)

    INDEXES: t.ClassVar[tuple[Index, ...]] = (RECENT, BATCH, TENANT, TAGS)

    def row_of(self, job_id: str) -> Document:
        """Return the row as it is now.

        :raises UnknownJob: There is none with that id.
        """
        row = self._read(job_id)
        if row is None:
            raise unknown(job_id)
        return row

    def wait_for_end(self, job_id: str, timeout: float | None) -> Document:
        """Return the row once the job is done or dead.

        :param timeout: Seconds; None waits as long as it takes.
        :raises WaitTimeout: It has not ended in that time.
        :raises UnknownJob: There is none with that id, or no more.
        """
        if not self._has_ended(job_id):
            with self._watched(job_id) as sleep:
                self._await_end(job_id, timeout, sleep)
        return self.row_of(job_id)

    def find(self, job_id: str) -> Job | None:
        """Return a job, or None where there is none with that id."""
        row = self._read(checked_id(job_id))
        return None if row is None else Job(row, self)

    def holder_of(self, unique_key: str) -> Job | None:
        """Return the job that has a unique key, or None where there is none."""
        with answering("the look at a unique key"):
            row = self.jobs.find_one({"unique_key": unique_key})
        return None if row is None else Job(row, self)

    def page(
        self,
        which: JobFilter,
        limit: int = 50,
        offset: int = 0,
        most_examined: int = MOST_EXAMINED,
    ) -> Page:
        """Return jobs that fit, those first that changed last.

        :param most_examined: How many jobs behind the offset are looked at: where what fits is
            rare, the page has what was found among them, and is cut. Of a batch with more members
            than that, those that entered it first are looked at.
        """
        checked_int(limit, "limit", 1, MOST_ON_A_PAGE, error=InvalidFilter)
        checked_int(offset, "offset", 0, MOST_OFFSET, error=InvalidFilter)
        most = offset + max(limit, most_examined)
        with answering("a list of jobs"):
            steps = [*_in_order(which, most), {"$skip": offset}, {"$limit": limit}]
            rows = list(self.jobs.aggregate(steps, hint=which.index.name))
            is_cut = bool(which.rest()) and len(rows) < limit and self._are_more(which, most)
        return Page([Job(row, self) for row in rows], is_cut=is_cut)

    def count(self, which: JobFilter) -> int:
        """Return how many jobs fit.

        Every job of the states is read where the filter asks for more than an index knows.

        :raises StoreUnavailable: They are too many to be counted in time.
        """
        index = which.index
        if index is RECENT and which.queue is not None:
            index = CLAIM
        with answering("a count of jobs"):
            return self.jobs.count_documents(which.to_query(), hint=index.name)

    def _read(self, job_id: str) -> Document | None:
        with answering(f"the look at job {job_id}"):
            return self.jobs.find_one({"_id": job_id})

    def _watched(self, job_id: str) -> AbstractContextManager[Callable[[float], None]]:
        return contextlib.nullcontext(self.sleep) if self.waits is None else self.waits(job_id)

    def _await_end(
        self, job_id: str, timeout: float | None, sleep: Callable[[float], None]
    ) -> None:
        began, pause = self.steady(), FIRST_PAUSE
        while not self._has_ended(job_id):
            if timeout is not None:
                left = began + timeout - self.steady()
                if left <= 0:
                    raise WaitTimeout(f"Job {job_id} had not ended after {timeout:g} s.")
                pause = min(pause, left)
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _state_of(self, job_id: str) -> str | None:
        row = self.jobs.find_one({"_id": job_id}, {"state": True})
        return None if row is None else row["state"]

    def _has_ended(self, job_id: str) -> bool:
        # The row itself may be large, and is read once.
        with answering(f"the look at job {job_id}"):
            state = self._state_of(job_id)
        if state is None:
            raise unknown(job_id)
        return state in ENDED

    def _are_more(self, which: JobFilter, most: int) -> bool:
        """Whether a look at so many jobs left some out."""
        seen = self.jobs.count_documents(which.served(), hint=which.index.name, limit=most + 1)
        return seen > most


def checked_id(job_id: object) -> str:
    """Return what is text and may be a job's id (Q9)."""
    return checked_name(job_id, "id", error=InvalidFilter)


def unknown(job_id: str) -> UnknownJob:
    """Return the error for an id that no job has."""
    return UnknownJob(
        f"There is no job {job_id}.", hint="It was deleted, or pruned some time after its end."
    )


def _in_order(which: JobFilter, most: int) -> list[Document]:
    """Return the steps of a look at so many jobs, which keeps those that fit, newest first."""
    served, rest = {"$match": which.served()}, {"$match": which.rest()}
    newest_first, bound = {"$sort": {"updated_at": -1, "_id": 1}}, {"$limit": most}
    if which.index is BATCH:
        # The one index that is not in this order: the bound goes before the sort.
        return [served, bound, rest, newest_first]
    return [served, newest_first, bound, rest]
