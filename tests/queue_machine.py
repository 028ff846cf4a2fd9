"""What happens to a queue, in any order, and what must hold after each step."""

from __future__ import annotations

import contextlib
import itertools
import typing as t
from collections import Counter

import pytest
from hypothesis import assume, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from faults import LOST_REPLY, failing
from flask_henri_jobs import StoreUnavailable
from flask_henri_jobs.job import DEAD, DONE, PENDING, RUNNING, keeps_key
from flask_henri_jobs.outcome import Again, Dead, Done, Failure, Outcome, Snoozed
from flask_henri_jobs.worker.losses import Loss
from queue_model import LIVE, Known, Model
from queue_runner import LIMITS, QUEUES, STUCK_SECONDS, Runner
from server_time import ServerTime

if t.TYPE_CHECKING:
    from datetime import timedelta

    from flask import Flask
    from pymongo import MongoClient

    from flask_henri_jobs import HenriJobs, Job
    from flask_henri_jobs.building import OpenBatch
    from flask_henri_jobs.job import Document
    from flask_henri_jobs.worker.committer import Settled

RUNNERS = 3
MOST_REPEATED = 20
COLLECTIONS = ("", "_limits", "_batches", "_schedules", "_runners", "_pauses")

runners = st.integers(0, RUNNERS - 1)
picks = st.integers(0, 1000)
seldom = st.sampled_from([False, False, False, True])
kinds = st.sampled_from(["done", "done", "again", "snoozed", "dead"])


class QueueMachine(RuleBasedStateMachine):
    """Runners, whose every step may be the last, whose replies may be lost, and their jobs."""

    def __init__(self, app: Flask, jobs: HenriJobs, client: MongoClient[t.Any]) -> None:
        super().__init__()
        self.app, self.client = app, client
        self.database = client[jobs.state_of(app).settings.database]
        for name in COLLECTIONS:
            self.database[f"henri_jobs{name}"].delete_many({})
        self.time = ServerTime()
        self.runners = [Runner.start(app, jobs, client, self.time, n) for n in range(RUNNERS)]
        self.model = Model(LIMITS)
        self.ghosts: list[Job] = []
        self.written: list[tuple[Job, Outcome]] = []
        self.read: list[Document] = []
        self.open: list[OpenBatch] = []
        self.number = itertools.count()

    @property
    def stuck_after(self) -> timedelta:
        return self.runners[0].state.settings.stuck_after

    # What runners do.

    @rule(at=runners, at_most=st.integers(1, 4), is_lost=seldom)
    def claim(self, at: int, at_most: int, is_lost: bool) -> None:
        runner = self.runners[at]
        for job in runner.store.claims.doubts.late():
            self._is_claimed(runner, job)
        runner.store.permits.tidy()
        now = self.time.now
        is_exact = not self.model.has_suspects_with_a_limit(now)
        expected = self.model.next_for(at_most, self._held(), now)
        if is_lost and expected and is_exact:
            with self._lost("update"), pytest.raises(StoreUnavailable):
                runner.take(at_most)
        jobs = runner.take(at_most)
        got = [job.id for job in jobs]
        names = [job.id for job in expected]
        if is_exact:
            # Where the reply was lost, the claim may have ended between two groups of it.
            assert got == [name for name in names if name in got or not is_lost], names
            assert got or not names
        for job in jobs:
            self._is_claimed(runner, job)

    @rule(at=runners)
    def claim_suspect(self, at: int) -> None:
        runner = self.runners[at]
        for job in runner.take_suspect():
            known = self.model.jobs[job.id]
            assert known.state == PENDING
            assert known.suspect or known.token == job.row["claim_token"]
            assert not (known.suspect and self.model.holds_back(known))
            self._is_claimed(runner, job)

    @rule(at_most=st.integers(1, 4))
    def look(self, at_most: int) -> None:
        """Read what is next, to claim it later."""
        reader = self.runners[0].store.claims.candidates
        self.read = reader.read(QUEUES, at_most, self.time.now, lambda _: True)

    @precondition(lambda self: self.read)
    @rule(at=runners)
    def claim_what_was_read(self, at: int) -> None:
        runner, now = self.runners[at], self.time.now
        expected = [
            row["_id"]
            for row in self.read
            if (known := self.model.jobs.get(row["_id"])) is not None
            and (known.state, known.attempts) == (PENDING, row["attempts"])
            and known.revision == row.get("revision", 0)
            and known.run_at <= now
        ]
        # A token is used once: by it an outcome recognises its own first write.
        jobs = runner.store.claims.stamp(self.read, runner.id, f"token {next(self.number)}")
        assert [job.id for job in jobs] == expected
        runner.hand += jobs
        for job in jobs:
            self._is_claimed(runner, job)

    @rule(at=runners)
    def beat(self, at: int) -> None:
        runner = self.runners[at]
        held = [job for job in runner.hand if self._is_held(job)]
        # Of a job that it has twice, a claim that was lost and a later one, one stands.
        ids = {job.id for job in held}
        assert runner.store.leases.keep(runner.hand) == {job.id for job in runner.hand} - ids
        assert not runner.store.permits.keep(held)
        for job in held:
            self.model.jobs[job.id].beat = self.time.now
        self.ghosts += [job for job in runner.hand if job not in held]
        runner.hand = held

    @rule(at=runners, kinds=st.lists(kinds, min_size=1, max_size=4))
    def work(self, at: int, kinds: list[str]) -> None:
        """Claim some jobs and see them through, as a runner does that nothing happens to."""
        self.claim(at, len(kinds), is_lost=False)
        for kind in kinds:
            if hand := self.runners[at].hand:
                settled = self._ended(self.runners[at], hand[0], self._outcome(hand.pop(0), kind))
                self.runners[at].follow_up(settled)

    @rule(at=runners, pick=picks, kind=kinds, is_lost=seldom, ends=seldom, uncounted=seldom)
    def finish(
        self, at: int, pick: int, kind: str, is_lost: bool, ends: bool, uncounted: bool
    ) -> None:
        """End an attempt; the reply may be lost, or the runner be killed right after it."""
        runner = self.runners[at]
        assume(runner.hand)
        job = runner.hand.pop(pick % len(runner.hand))
        settled = self._ended(runner, job, self._outcome(job, kind), is_lost=is_lost)
        if ends:
            self._is_killed(runner, begun=pick)
            return
        with self._lost("update") if uncounted else contextlib.nullcontext():
            runner.follow_up(settled)

    @precondition(lambda self: self.ghosts)
    @rule(at=runners, pick=picks, kind=kinds)
    def finish_late(self, at: int, pick: int, kind: str) -> None:
        """End an attempt that others may have given up on."""
        job = self.ghosts.pop(pick % len(self.ghosts))
        self.runners[at].follow_up(self._ended(self.runners[at], job, self._outcome(job, kind)))

    @precondition(lambda self: self.written)
    @rule(at=runners, pick=picks)
    def repeat(self, at: int, pick: int) -> None:
        """Write an outcome again, however long ago it was."""
        job, outcome = self.written[pick % len(self.written)]
        known = self.model.jobs.get(job.id)
        stands = known is not None and (
            known.was_last_held_by(job)
            or (isinstance(outcome, Again | Dead) and outcome.failure.message in known.left)
        )
        assert (self.runners[at].write(job, outcome).job is not None) == stands

    @rule(at=runners, pick=picks)
    def hand_back(self, at: int, pick: int) -> None:
        runner = self.runners[at]
        assume(runner.hand)
        job = runner.hand.pop(pick % len(runner.hand))
        stands = self._is_held(job)
        back = runner.store.claims.hand_back([job])
        assert back.returned + len(back.cancelled) == stands
        if stands:
            self.model.jobs[job.id].returned()

    @rule(at=runners, begun=st.integers(0, 4))
    def die(self, at: int, begun: int) -> None:
        self._is_killed(self.runners[at], begun)

    # What time and housekeeping do.

    @rule(seconds=st.sampled_from([0.5, 6.0, 20.0, STUCK_SECONDS + 1.0]))
    def wait(self, seconds: float) -> None:
        self.time.advance(seconds)

    @rule(at=runners)
    def recover(self, at: int) -> None:
        runner, before = self.runners[at], self.time.now - STUCK_SECONDS * 1000
        is_calm = runner.clock.calm_for() >= self.stuck_after
        expected = [job for job in self.model.in_state(RUNNING) if t.cast("int", job.beat) < before]
        recovered = runner.store.leases.recover(self.stuck_after)
        assert {job.id for job in recovered} == {job.id for job in expected if is_calm}
        held = {permit["job_id"] for permit in self._rows("_limits")}
        assert held.isdisjoint(job.id for job in recovered)
        for job in expected if is_calm else ():
            job.recovered(self.time.now, suspect=True)
        runner.aftermath.count(recovered)

    @rule(at=runners)
    def sweep_permits(self, at: int) -> None:
        self.runners[at].store.permits.sweep(self.stuck_after)

    @rule(at=runners)
    def sweep_batches(self, at: int) -> None:
        cancelled = {
            row["_id"]
            for row in self._rows("_batches")
            if row.get("cancelled_at") and row["updated_at"] < self.time.now - 5_000
        }
        self.runners[at].aftermath.sweep()
        for batch in cancelled - self.model.finished.keys():
            self._is_cancelled(batch)

    @rule(at=runners, is_killed=seldom)
    def fire(self, at: int, is_killed: bool) -> None:
        """One job a slot, whoever fires and wherever he is killed (S1)."""
        entry = self.database["henri_jobs_schedules"].find_one({"_id": "tick"})
        self.runners[at].fire(is_killed=is_killed)
        if entry is None or entry["next_run_at"] > self.time.now:
            return
        moved = self.database["henri_jobs_schedules"].find_one({"_id": "tick"})
        assert moved is not None
        assert (moved["next_run_at"] > self.time.now) != is_killed
        key = f"recurring:tick:{entry['next_run_at']}"
        [row] = self.database["henri_jobs"].find({"unique_key": key})
        if row["_id"] not in self.model.jobs:
            assert not self.model.called[key]
            self.model.called[key] += 1
            self.model.new(row)

    @rule(at=runners, state=st.sampled_from([DONE, DEAD]), age=st.sampled_from([1, 5_000]))
    def prune(self, at: int, state: str, age: int) -> None:
        before = self.time.now - age
        while self.runners[at].store.pruning.prune(state, before):
            pass
        kept = {row["_id"] for row in self._rows()}
        for job in [job for job in self.model.jobs.values() if job.id not in kept]:
            assert job.state == state
            assert not keeps_key(job.key)
            assert job.batch is None or job.batch in self.model.finished
            del self.model.jobs[job.id]

    # What must hold after each step.

    @invariant()
    def holds(self) -> None:
        rows = self._rows()
        batches = self._rows("_batches")
        self._learn_callbacks(rows)
        self.model.holds_for(rows)
        self.model.keys_are_held_by_live_jobs()
        self.model.limits_hold(self._rows("_limits"))
        self.model.batches_hold(batches)
        assert {(row["kind"], row["name"]) for row in self._rows("_pauses")} == self.model.paused

    def _learn_callbacks(self, rows: list[Document]) -> None:
        """Take note of the callbacks that are new: of batches that are over, and one of each."""
        for row in rows:
            key = row.get("unique_key") or ""
            if row["_id"] not in self.model.jobs and key.startswith("batch:"):
                batch = key.removeprefix("batch:")
                self.model.called[batch] += 1
                self.model.new(row)
                assert self.model.called[batch] == 1
                assert not [job for job in self.model.members(batch) if job.state in LIVE]

    # What the steps have in common.

    def _rows(self, suffix: str = "") -> list[Document]:
        return list(self.database[f"henri_jobs{suffix}"].find())

    def _held(self) -> Counter[str]:
        return Counter(permit["limit_key"] for permit in self._rows("_limits"))

    def _lost(self, command: str) -> t.ContextManager[None]:
        return failing(self.client, command, times=1, **LOST_REPLY)

    def _is_held(self, job: Job) -> bool:
        known = self.model.jobs.get(job.id)
        return known is not None and known.is_held_by(job)

    def _is_claimed(self, runner: Runner, job: Job) -> None:
        known = self.model.jobs[job.id]
        assert (known.state, known.run_at <= self.time.now) == (PENDING, True)
        known.claimed(token=job.row["claim_token"], runner=runner.id, now=job.row["heartbeat_at"])

    def _is_cancelled(self, batch: str) -> None:
        for job in self.model.members(batch):
            if job.state == PENDING:
                job.ended(DEAD, "cancelled")
                job.token = None
            job.is_asked = job.is_asked or job.state == RUNNING

    def _outcome(self, job: Job, kind: str) -> Outcome:
        now, failure = self.time.now, Failure(message=f"failed for the {next(self.number)}th time")
        match kind:
            case "done":
                return Done(at=now, duration=1)
            case "snoozed":
                return Snoozed(at=now, run_at=now + 7_000)
            case "again" if job.attempts < job.max_attempts:
                return Again(at=now, duration=1, run_at=now + 3_000, failure=failure)
            case _:
                return Dead(at=now, duration=1, reason="failed", failure=failure)

    def _ended(
        self, runner: Runner, job: Job, outcome: Outcome, *, is_lost: bool = False
    ) -> Settled:
        stands = self._is_held(job)
        if is_lost:
            with self._lost("update"), pytest.raises(StoreUnavailable):
                runner.write(job, outcome)
        settled = runner.write(job, outcome)
        assert (settled.job is not None) == stands
        self.written = [*self.written, (job, outcome)][-MOST_REPEATED:]
        if stands:
            self._comes_true(self.model.jobs[job.id], outcome)
        return settled

    def _comes_true(self, known: Known, outcome: Outcome) -> None:
        match outcome:
            case Done():
                known.ended(DONE)
            case Dead(reason=reason, failure=failure):
                known.ended(DEAD, reason, entry=True)
                known.left.add(failure.message)
            case Again(run_at=run_at, failure=failure):
                known.back(run_at, entry=True)
                known.left.add(failure.message)
            case Snoozed(run_at=run_at):
                known.attempts -= not known.is_asked
                known.back(run_at, entry=False)

    def _is_killed(self, runner: Runner, begun: int) -> None:
        """End a runner with so many of its jobs begun; what it had goes back at once (W6)."""
        ids = [job.id for job in runner.hand[:begun]]
        loss = Loss(runner=runner.id, begun=ids, reason="was killed by signal 9", suspect=True)
        runner.put_back(loss)
        for job in self.model.in_state(RUNNING):
            if job.runner != runner.id:
                continue
            if job.id in ids:
                job.recovered(self.time.now, suspect=True)
            else:
                job.returned()
        self.ghosts += runner.hand
        runner.begin()
