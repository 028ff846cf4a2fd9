"""The ``limits`` collection: what a runner holds before it takes a job of a limited task (L2)."""

from __future__ import annotations

import contextlib
import random
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from pymongo.errors import BulkWriteError, PyMongoError

from ..clock import steady_seconds, to_datetime
from ..durations import millis
from ..job import RUNNING, Document, put_plain
from ..limit import slot_id
from .connection import answering
from .indexes import Index

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from pymongo.collection import Collection

    from ..clock import Clock
    from ..job import Job

MOST_SWEPT = 100
ABOVE_SECONDS = 1.0
DOUBT_SECONDS = 10.0
"""For so long a permit whose fate is unknown may still appear."""

_DUPLICATE = 11000


@dataclass(frozen=True, kw_only=True, slots=True)
class Permit:
    """A place in a bucket that somebody holds."""

    key: str
    slot: int
    runner: str
    job_id: str | None
    taken_at: datetime | None
    heartbeat_at: datetime | None

    def to_dict(self) -> dict[str, t.Any]:
        """Return the permit as JSON has it."""
        plain: dict[str, t.Any] = {}
        for name in ("key", "slot", "runner", "job_id", "taken_at", "heartbeat_at"):
            put_plain(plain, name, getattr(self, name))
        return plain


def stale_index(limits: str) -> Index:
    """Return the index that finds old permits: henri's own, to the letter."""
    return Index(f"{limits}_stale", {"heartbeat_at": 1})


@dataclass(slots=True)
class Permits:
    """Takes, keeps, gives back and sweeps permits.

    A permit is owned by the token of the claim it was taken for, and that token alone gives it
    back: a runner that stalled and lost its permit cannot give away its successor's (L3).
    """

    limits: Collection[Document]
    jobs: Collection[Document]
    clock: Clock
    random: Callable[[Sequence[int], int], list[int]] = random.sample
    steady: Callable[[], float] = steady_seconds
    _above: list[tuple[str, int]] = field(default_factory=list)
    _above_from: int = 0
    _above_until: float = 0.0
    _useless: list[tuple[Document, float]] = field(default_factory=list)

    def free(self, most: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the slots of buckets that can be taken.

        :param most: How many of each bucket may run at once.
        """
        if not most:
            return {}
        self.tidy()
        ids = [slot_id(bucket, slot) for bucket, limit in most.items() for slot in range(limit)]
        taken: dict[str, set[int]] = defaultdict(set)
        for bucket, slot in self._held(ids):
            taken[bucket].add(slot)
        for bucket, slot in self._held_above(min(most.values())):
            # Below its own limit it was read just now, and may have been given back since then.
            if bucket in most and slot >= most[bucket]:
                taken[bucket].add(slot)
        return {bucket: _free(limit, taken[bucket]) for bucket, limit in most.items()}

    def _held(self, ids: list[str]) -> Iterator[tuple[str, int]]:
        for held in self.limits.find({"_id": {"$in": ids}}, {"_id": True}):
            bucket, _, slot = held["_id"].rpartition("#")
            yield bucket, int(slot)

    def _held_above(self, lowest: int) -> list[tuple[str, int]]:
        """Return the permits above a limit, as of a second ago at most.

        There are some where a limit was lowered: who holds one finishes, and counts.
        """
        if self.steady() >= self._above_until or lowest < self._above_from:
            # As many as threads work on limited jobs at most, and read once in a second.
            above = self.limits.find({"slot": {"$gte": lowest}}, {"limit_key": True, "slot": True})
            self._above = [(held["limit_key"], int(held["slot"])) for held in above]
            self._above_from, self._above_until = lowest, self.steady() + ABOVE_SECONDS
        return self._above

    def take(
        self, wanted: Sequence[tuple[str, int, str]], *, runner: str, token: str
    ) -> dict[str, str]:
        """Take permits: for each a bucket, a slot in it, and the id of the job it is for.

        :return: The permits that are ours now, by the ids of their jobs.
        """
        try:
            return self._take(wanted, runner, token)
        except PyMongoError:
            # No job is claimed under this token now; what appears under it is nobody's.
            self._useless.append(({"token": token}, self.steady() + DOUBT_SECONDS))
            raise

    def _take(
        self, wanted: Sequence[tuple[str, int, str]], runner: str, token: str
    ) -> dict[str, str]:
        now = self.clock.now()
        permits: list[Document] = [
            {
                "_id": slot_id(bucket, slot),
                "limit_key": bucket,
                "slot": slot,
                "runner": runner,
                "job_id": job_id,
                "taken_at": now,
                "heartbeat_at": now,
                "token": token,
            }
            for bucket, slot, job_id in wanted
        ]
        return self._inserted(permits, token) if permits else {}

    def _inserted(self, permits: list[Document], token: str) -> dict[str, str]:
        try:
            self.limits.insert_many(permits, ordered=False)
        except BulkWriteError as error:
            refused = {refusal["code"] for refusal in error.details["writeErrors"]}
            if refused != {_DUPLICATE} or error.details["writeConcernErrors"]:
                raise
            # A duplicate may be our own: an insert that was repeated after a lost reply (A11).
            ids = [permit["_id"] for permit in permits]
            ours = self.limits.find({"_id": {"$in": ids}, "token": token}, {"job_id": True})
            return {permit["job_id"]: permit["_id"] for permit in ours}
        return {str(permit["job_id"]): str(permit["_id"]) for permit in permits}

    def give_back(self, jobs: Iterable[Job]) -> None:
        """Give back the permits of jobs; it may be repeated (L6)."""
        held = [job for job in jobs if job.permit is not None]
        if held:
            with answering("the permits"):
                self.limits.delete_many(_of(held))

    def release(self, permits: Sequence[str], token: str) -> None:
        """Give back permits that came to nothing: their jobs were taken by others.

        Without a database they are given back later: a claim that took other jobs stands.
        """
        if permits:
            self._give_up([{"_id": {"$in": list(permits)}, "token": token}])

    def release_besides(self, jobs_of: Mapping[str, Sequence[str]]) -> None:
        """Give back what claims took for others than their jobs; without a database, later.

        :param jobs_of: The ids of the jobs that each claim took, by its token.
        """
        self._give_up(
            {"token": token, "job_id": {"$nin": list(jobs)}} for token, jobs in jobs_of.items()
        )

    def tidy(self) -> None:
        """Delete the permits that came to nothing and are not known to be gone.

        It is one round trip, however many they are.
        """
        useless, now = list(self._useless), self.steady()
        if useless:
            self.limits.delete_many({"$or": [which for which, _ in useless]})
        for permits in useless:
            if permits[1] <= now:
                # The thread of the heartbeat may have been here meanwhile.
                with contextlib.suppress(ValueError):
                    self._useless.remove(permits)

    def _give_up(self, permits: Iterable[Document]) -> None:
        if given_up := [(which, 0.0) for which in permits]:
            self._useless += given_up
            with contextlib.suppress(PyMongoError):
                self.tidy()

    def release_all_of(self, runner: str) -> None:
        """Give back whatever a runner holds that is known to be gone."""
        with answering("the permits"):
            self.limits.delete_many({"runner": runner})

    def of_tokens(self, tokens: Iterable[str]) -> dict[tuple[str, str], str]:
        """Return the permits that claims took, by the claims' tokens and the ids of the jobs."""
        ours = self.limits.find({"token": {"$in": [*tokens]}}, {"token": True, "job_id": True})
        return {(permit["token"], permit["job_id"]): permit["_id"] for permit in ours}

    def keep(self, jobs: Iterable[Job]) -> set[str]:
        """Stamp the heartbeat of the permits of jobs. Return the ids of jobs that have none.

        A permit that is gone, as after a stop between it and its claim, is taken again where its
        slot is still free.
        """
        held = {job.permit: job for job in jobs if job.permit is not None}
        if not held:
            return set()
        now, ours = self.clock.now(), _of(held.values())
        with answering("the permits"):
            kept = self.limits.update_many(ours, {"$set": {"heartbeat_at": now}})
            if kept.matched_count == len(held):
                return set()
            found = {row["_id"] for row in self.limits.find(ours, {"_id": True})}
            gone = [job for permit, job in held.items() if permit not in found]
            return {job.row["_id"] for job in gone if self._runs(job) and not self._retaken(job)}

    def _retaken(self, job: Job) -> bool:
        bucket, _, slot = str(job.permit).rpartition("#")
        token = job.row["claim_token"]
        wanted = [(bucket, int(slot), job.row["_id"])]
        # Where this fails the next heartbeat repeats it, and finds the permit if it was stored:
        # others of the same claim hold theirs under this token.
        taken = self._take(wanted, job.row["claimed_by"], token)
        if taken and not self._runs(job):
            # It ended meanwhile, and its permit may have been given back before it was retaken.
            self.release(list(taken.values()), token)
        return bool(taken)

    def _runs(self, job: Job) -> bool:
        claim = {"_id": job.row["_id"], "claim_token": job.row["claim_token"], "state": RUNNING}
        return self.jobs.find_one(claim, {"_id": True}) is not None

    def forget(self, jobs: Iterable[Job]) -> None:
        """Delete the permits of jobs that were put back from a runner that is gone.

        :param jobs: As they were when they ran, under the token of that claim.
        """
        ended = [{"job_id": job.row["_id"], "token": job.row["claim_token"]} for job in jobs]
        if ended:
            with answering("the permits"):
                self.limits.delete_many({"$or": ended})

    def sweep(self, stuck_after: timedelta) -> list[Permit]:
        """Free old permits whose job is not running under them. Return what was freed.

        A permit whose heartbeat failed while its job's succeeded stays: the job still runs (A9).
        So does that of a job which nobody has recovered yet: the two are given up in this order.
        """
        if self.clock.calm_for() < stuck_after:
            return []
        before = self.clock.now() - millis(stuck_after)
        with answering("a sweep of permits"):
            self.tidy()
            old = list(self.limits.find({"heartbeat_at": {"$lt": before}}, limit=MOST_SWEPT))
            kept = self._with_running_jobs(old)
            return [
                to_permit(permit)
                for permit in old
                if permit["_id"] not in kept
                and self.limits.delete_one(
                    {"_id": permit["_id"], "heartbeat_at": permit["heartbeat_at"]}
                ).deleted_count
            ]

    def held(self, most: int = 1000, *, key: str | None = None) -> list[Permit]:
        """Return the permits that are held, by bucket and slot.

        :param key: Of this bucket only.
        """
        # The ids of its slots lie side by side, and there is no other index of them.
        ids: Document = {"$gte": f"{key}#", "$lt": f"{key}$"}
        which = {} if key is None else {"_id": ids, "limit_key": key}
        with answering("the permits"):
            found = self.limits.find(which, sort=[("limit_key", 1), ("slot", 1)], limit=most)
            return [to_permit(permit) for permit in found]

    def _with_running_jobs(self, permits: list[Document]) -> set[str]:
        return in_use(permits, self.jobs)


def in_use(permits: list[Document], jobs: Collection[Document]) -> set[str]:
    """Return the ids of those permits under which a job runs."""
    ids = [permit["job_id"] for permit in permits if permit.get("job_id")]
    running = jobs.find(
        {"_id": {"$in": ids}, "state": RUNNING}, {"claim_token": True, "claimed_by": True}
    )
    found = {job["_id"]: job for job in running}
    return {
        permit["_id"]
        for permit in permits
        if (job := found.get(permit.get("job_id"))) is not None and _is_under(permit, job)
    }


def _is_under(permit: Document, job: Document) -> bool:
    """Whether a running job runs under a permit."""
    if token := permit.get("token"):
        return bool(token == job["claim_token"])
    # A henri runner's permit has no token.
    return bool(permit["runner"] == job["claimed_by"])


def _free(limit: int, taken: set[int]) -> list[int]:
    # Two runners that both see one place left must meet in the same slot, and one lose it there:
    # where a limit was lowered, as many slots from the top are closed as are held above them.
    above = sum(slot >= limit for slot in taken)
    free = [slot for slot in range(limit - above) if slot not in taken]
    return free[: max(0, limit - len(taken))] if above else free


def _of(jobs: Iterable[Job]) -> Document:
    """Match the permits of jobs, each by its own token: a slot may be another's of these since."""
    held: dict[str, list[str | None]] = defaultdict(list)
    for job in jobs:
        held[job.row["claim_token"]].append(job.permit)
    each = [{"_id": {"$in": permits}, "token": token} for token, permits in held.items()]
    return each[0] if len(each) == 1 else {"$or": each}


def to_permit(permit: Document) -> Permit:
    """Return a row as what it stands for."""
    return Permit(
        key=permit["limit_key"],
        slot=int(permit["slot"]),
        runner=permit["runner"],
        job_id=permit.get("job_id"),
        taken_at=to_datetime(permit.get("taken_at")),
        heartbeat_at=to_datetime(permit.get("heartbeat_at")),
    )
