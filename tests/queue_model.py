"""The queue as it should be: jobs as plain values, and what each operation makes of them."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from flask_henri_jobs.job import DEAD, DONE, PENDING, RUNNING, Document, Job, keeps_key
from flask_henri_jobs.store.documents import MOST_HISTORY, history_of

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIVE = frozenset({PENDING, RUNNING})


@dataclass(slots=True)
class Known:
    """What must be stored of a job.

    :param task: Its name, and ``tenant`` whose it is: either may be paused.
    :param entries: How many entries its history has.
    :param left: The messages that its attempts left there.
    :param is_asked: Whether somebody asked for its end while it ran: it does not begin again (W8).
    """

    id: str
    queue: str
    priority: int
    run_at: int
    max_attempts: int
    key: str | None
    bucket: str | None
    batch: str | None
    task: str
    tenant: str | None
    state: str = PENDING
    attempts: int = 0
    revision: int = 0
    token: str | None = None
    runner: str | None = None
    beat: int | None = None
    entries: int = 0
    suspect: bool = False
    reason: str | None = None
    left: set[str] = field(default_factory=set)
    is_asked: bool = False

    @classmethod
    def new(cls, row: Mapping[str, t.Any]) -> Known:
        """Return what is known of a job that was just stored."""
        return cls(
            id=row["_id"],
            queue=row["queue"],
            priority=row["priority"],
            run_at=row["run_at"],
            max_attempts=row["max_attempts"],
            key=row.get("unique_key"),
            bucket=row.get("concurrency_key"),
            batch=row.get("batch_id"),
            task=row["name"],
            tenant=row.get("tenant"),
        )

    @property
    def order(self) -> tuple[int, int, str]:
        """Its place among all jobs (Q2)."""
        return self.priority, self.run_at, self.id

    def is_held_by(self, job: Job) -> bool:
        """Whether this very claim of it stands."""
        return self.state == RUNNING and self.token == job.row["claim_token"]

    def was_last_held_by(self, job: Job) -> bool:
        """Whether this claim of it has ended, and no other came after it."""
        return self.state != RUNNING and self.token == job.row["claim_token"]

    def claimed(self, *, token: str, runner: str, now: int) -> None:
        """Begin an attempt."""
        self.state, self.attempts = RUNNING, self.attempts + 1
        self.token, self.runner, self.beat = token, runner, now

    def back(self, run_at: int, *, entry: bool) -> None:
        """Put it back after an attempt that counts; or bury it, where it was cancelled."""
        if self.is_asked:
            self.ended(DEAD, "cancelled", entry=True)
            return
        self.state, self.run_at, self.runner, self.beat = PENDING, run_at, None, None
        self.entries = min(self.entries + entry, MOST_HISTORY)

    def returned(self) -> None:
        """Put it back as if it had not been claimed; or bury it, where it was cancelled."""
        self.state, self.attempts, self.runner, self.beat = PENDING, self.attempts - 1, None, None
        self.token = None
        if self.is_asked:
            self.ended(DEAD, "cancelled", entry=True)

    def ended(self, state: str, reason: str | None = None, *, entry: bool = False) -> None:
        """End it; its key is free unless the queue wrote it (Q7)."""
        self.state, self.reason = state, reason
        self.entries = min(self.entries + entry, MOST_HISTORY)
        if not keeps_key(self.key):
            self.key = None

    def cancelled(self) -> None:
        """End it where it waits; where it runs, keep it from beginning again (W8)."""
        if self.state == PENDING:
            self.ended(DEAD, "cancelled", entry=True)
            self.token = None
        elif self.state == RUNNING:
            self.is_asked = True

    def recovered(self, now: int, *, suspect: bool) -> None:
        """Put it back from a runner that is gone, or bury it."""
        if self.attempts >= self.max_attempts and not self.is_asked:
            self.ended(DEAD, "lost", entry=True)
        else:
            self.back(now, entry=True)
        self.token = None
        self.suspect = self.suspect or suspect

    def retried(self, now: int) -> None:
        """Have it performed by an operator's word (Q10)."""
        if self.state == PENDING:
            self.run_at = min(self.run_at, now)
        else:
            self.state, self.attempts, self.run_at = PENDING, 0, now
            self.token, self.runner, self.beat, self.reason = None, None, None, None
            self.is_asked = False
        self.revision += 1

    def differences(self, row: Mapping[str, t.Any]) -> dict[str, tuple[t.Any, t.Any]]:
        """Return what is stored otherwise, as pairs of what should be and what is."""
        pairs: dict[str, tuple[t.Any, t.Any]] = {
            "state": (self.state, row["state"]),
            "attempts": (self.attempts, row["attempts"]),
            "revision": (self.revision, row.get("revision", 0)),
            "token": (self.token, row.get("claim_token")),
            "key": (self.key, row.get("unique_key")),
            "batch": (self.batch, row.get("batch_id")),
            "entries": (self.entries, len(history_of(row))),
            "suspect": (self.suspect, row.get("suspect", False)),
            "reason": (self.reason, row.get("dead_reason")),
            "run_at": (self.run_at, row["run_at"]),
        }
        if self.state == RUNNING:
            pairs["runner"] = (self.runner, row["claimed_by"])
            pairs["beat"] = (self.beat, row["heartbeat_at"])
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(slots=True)
class Model:
    """All that must be stored.

    :param limits: How many jobs of a bucket run at once, by the start of its name.
    :param finished: The rows of the batches that have ended: they change no more.
    :param called: The callbacks that were ever seen, by their batches.
    :param paused: What is paused, by its kind and its name.
    """

    limits: Mapping[str, int]
    jobs: dict[str, Known] = field(default_factory=dict)
    finished: dict[str, Document] = field(default_factory=dict)
    called: Counter[str] = field(default_factory=Counter)
    paused: set[tuple[str, str]] = field(default_factory=set)

    def new(self, row: Mapping[str, t.Any]) -> Known:
        """Take note of a job that was stored."""
        assert row["_id"] not in self.jobs
        self.jobs[row["_id"]] = known = Known.new(row)
        return known

    def in_state(self, *states: str) -> list[Known]:
        """Return the jobs in these states, in their order."""
        return sorted(
            (job for job in self.jobs.values() if job.state in states), key=lambda job: job.order
        )

    def holder_of(self, key: str | None) -> Known | None:
        """Return the live job that has a unique key."""
        return next((job for job in self.in_state(*LIVE) if key and job.key == key), None)

    def next_for(self, at_most: int, held: Mapping[str, int], now: int) -> list[Known]:
        """Return what a claim must bring: the first due jobs that a limit does not hold back.

        :param held: How many permits of each bucket are taken.
        """
        taken = Counter(held)
        found: list[Known] = []
        for job in self.pending:
            if job.run_at > now or job.suspect or len(found) == at_most or self.holds_back(job):
                continue
            if job.bucket is not None:
                if taken[job.bucket] >= self.most_of(job.bucket):
                    continue
                taken[job.bucket] += 1
            found.append(job)
        return found

    def holds_back(self, job: Known) -> bool:
        """Whether its queue, its task or its tenant is paused (X4)."""
        own = {("queue", job.queue), ("task", job.task), ("tenant", job.tenant)}
        return bool(own & self.paused)

    def has_suspects_with_a_limit(self, now: int) -> bool:
        """Whether a due suspect may stand in front of its key, where it takes up a place of a
        claim that steps over it: what that brings is less than could be, and no more."""
        return any(job.suspect and job.bucket and job.run_at <= now for job in self.pending)

    @property
    def pending(self) -> list[Known]:
        """The jobs that wait, in their order."""
        return self.in_state(PENDING)

    def most_of(self, bucket: str) -> int:
        """Return the limit of a bucket."""
        return self.limits[bucket.partition(":")[0]]

    def members(self, batch: str) -> list[Known]:
        """Return the members of a batch that there still are."""
        return [job for job in self.jobs.values() if job.batch == batch]

    def holds_for(self, rows: Iterable[Mapping[str, t.Any]]) -> None:
        """Hold that the jobs stored are these, and as they should be."""
        stored = {row["_id"]: row for row in rows}
        assert stored.keys() == self.jobs.keys()
        wrong = {
            name: differences
            for name, row in stored.items()
            if (differences := self.jobs[name].differences(row))
        }
        assert not wrong, wrong

    def keys_are_held_by_live_jobs(self) -> None:
        """Hold that nothing that has ended has a key, but what the queue wrote itself (Q7)."""
        for job in self.in_state(DONE, DEAD):
            assert job.key is None or keeps_key(job.key)
        live = [job.key for job in self.in_state(*LIVE) if job.key]
        assert len(live) == len(set(live))

    def limits_hold(self, permits: Iterable[Mapping[str, t.Any]]) -> None:
        """Hold that no limit is exceeded, and that every limited job runs under a permit (L3)."""
        permits = list(permits)
        for bucket, count in Counter(permit["limit_key"] for permit in permits).items():
            assert count <= self.most_of(bucket)
        held = {(permit["limit_key"], permit["job_id"], permit["token"]) for permit in permits}
        for job in self.in_state(RUNNING):
            assert job.bucket is None or (job.bucket, job.id, job.token) in held

    def batches_hold(self, batches: Iterable[Document]) -> None:
        """Hold that a batch ends after its last member, once, and with its members' states."""
        for row in batches:
            name = row["_id"]
            if row["finished_at"] is None:
                assert name not in self.finished
                continue
            if name not in self.finished:
                self.finished[name] = row
                self._has_just_ended(row)
            assert self.finished[name] == row
            assert self.called[name] == 1

    def _has_just_ended(self, row: Document) -> None:
        states = Counter(member.state for member in self.members(row["_id"]))
        assert not LIVE & states.keys(), states
        gone = row["total"] - states.total()
        assert row["done"] == row["total"]
        assert states[DEAD] <= row["failed"] <= states[DEAD] + gone
