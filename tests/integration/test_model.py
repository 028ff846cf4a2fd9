"""A model of the queue: what runners and operators do, in any order, compared after each step."""

from __future__ import annotations

import os
import typing as t

import pytest
from hypothesis import HealthCheck, Phase, assume, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from faults import faulty_client
from flask_henri_jobs.cancelling import cancel
from flask_henri_jobs.errors import JobBusy
from flask_henri_jobs.job import DEAD, PENDING, RUNNING
from flask_henri_jobs.store.filters import JobFilter
from queue_machine import QueueMachine, picks, runners, seldom
from queue_model import LIVE, Known
from queue_runner import QUEUES, STUCK_SECONDS, TASKS, declared

if t.TYPE_CHECKING:
    from collections.abc import Callable

MINUTES_TO_THE_END = 30

WALKS = int(os.environ.get("MODEL_WALKS", "40"))
"""How many long ones, of up to 60 steps each."""

TENANT = "acme"

PAUSABLE = [
    *(("queue", queue) for queue in QUEUES),
    *(("task", task) for task in TASKS),
    ("tenant", TENANT),
]

CHECKS = (HealthCheck.too_slow, HealthCheck.filter_too_much)
"""Every step waits for a server, and some find nothing to do."""


class Queue(QueueMachine):
    """The same, with those who fill the queue and operate it."""

    @initialize(picks=st.lists(picks, min_size=6, max_size=12), at=runners)
    def begin(self, picks: list[int], at: int) -> None:
        """Start with some jobs, half of them members of a batch, in the hands of a runner."""
        self.time.advance(STUCK_SECONDS)
        self.open_batch(at)
        for pick in picks:
            task, is_member = TASKS[pick % len(TASKS)], bool(pick & 4)
            self.enqueue(at, task, pick & 1, "return", is_member, queue=QUEUES[pick & 1])
        self.fire(at, is_killed=False)
        self.claim(at, len(picks) // 2, is_lost=False)
        if picks[0] & 8:
            self.seal(0)

    @rule(
        at=runners,
        task=st.sampled_from(TASKS),
        n=st.integers(0, 1),
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from([0, 0, 5]),
        wait=st.sampled_from([0, 0, 10]),
        on_conflict=st.sampled_from(["return", "replace"]),
        is_member=st.booleans(),
        has_tenant=seldom,
    )
    def enqueue(
        self,
        at: int,
        task: str,
        n: int,
        on_conflict: str,
        is_member: bool,
        has_tenant: bool = False,
        **options: t.Any,
    ) -> None:
        batch = self.open[-1] if self.open and is_member else None
        if has_tenant and batch is None and task != "once":
            # Of a batch all are its tenant's, and one tenant does not share another's unique key.
            options["tenant"] = TENANT
        holder = self.model.holder_of(f"once:{n}" if task == "once" else None)
        job = self.runners[at].enqueue(task, n, batch, on_conflict=on_conflict, **options)
        assert job.created == (holder is None)
        if holder is None:
            self.model.new(job.row)
            return
        assert job.id == holder.id
        if on_conflict == "replace" and holder.state == PENDING:
            holder.run_at = self.time.now + options.get("wait", 0) * 1000
            holder.revision += 1

    @rule(at=runners)
    def open_batch(self, at: int) -> None:
        assume(len(self.open) < 2)
        with self.app.app_context():
            self.open.append(self.runners[at].open_batch())

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def seal(self, pick: int) -> None:
        with self.app.app_context():
            self.open.pop(pick % len(self.open)).seal()

    @rule(at=runners, pick=picks)
    def cancel_batch(self, at: int, pick: int) -> None:
        batches = [row["_id"] for row in self._rows("_batches")]
        assume(batches)
        batch = batches[pick % len(batches)]
        self.open = [one for one in self.open if one.id != batch]
        with self.app.app_context():
            self.runners[at].batches.cancel(batch)
        if batch not in self.model.finished:
            self._is_cancelled(batch)

    @rule(at=runners, pick=picks)
    def cancel(self, at: int, pick: int) -> None:
        """Cancel a job by its id: it ends where it waits, and is told to where it runs."""
        job = self._any(pick)
        with self.app.app_context():
            cancel(self.runners[at].state, job.id, lambda callback: callback)
        job.cancelled()

    @rule(at=runners, what=st.sampled_from(PAUSABLE))
    def pause(self, at: int, what: tuple[str, str]) -> None:
        self.runners[at].store.pauses.add(*what)
        self.model.paused.add(what)

    @precondition(lambda self: self.model.paused)
    @rule(at=runners, pick=picks)
    def resume(self, at: int, pick: int) -> None:
        what = sorted(self.model.paused)[pick % len(self.model.paused)]
        assert self.runners[at].store.pauses.remove(*what) is not None
        self.model.paused.remove(what)

    @rule(at=runners, pick=picks)
    def retry(self, at: int, pick: int) -> None:
        job = self._any(pick)
        admin = self.runners[at].store.admin
        if job.state == RUNNING:
            with pytest.raises(JobBusy):
                admin.retry(job.id)
            return
        admin.retry(job.id)
        job.retried(self.time.now)

    @rule(at=runners)
    def retry_all(self, at: int) -> None:
        alarming = [job for job in self.model.in_state(DEAD) if job.reason in {"failed", "lost"}]
        assert self.runners[at].store.admin.retry_many(JobFilter()) == len(alarming)
        for job in alarming:
            job.retried(self.time.now)

    @rule(at=runners, pick=picks)
    def delete(self, at: int, pick: int) -> None:
        job = self._any(pick)
        # The job of a slot or of a batch's end is not to be deleted before that has moved on.
        assume(job.key is None or job.key.startswith("once:"))
        admin = self.runners[at].store.admin
        if job.state == RUNNING:
            with pytest.raises(JobBusy):
                admin.delete(job.id)
            return
        assert admin.delete(job.id) is not None
        del self.model.jobs[job.id]

    def teardown(self) -> None:
        """Nothing is lost: left alone, every job comes to its end, and every batch calls back."""
        with self.app.app_context():
            for batch in self.open:
                batch.seal()
        while self.model.paused:
            self.resume(at=0, pick=0)
        self.holds()
        for _ in range(MINUTES_TO_THE_END):
            if not self.model.in_state(*LIVE) and not self._rows("_limits") and self._all_over():
                break
            self._minute()
        assert not self.model.in_state(*LIVE)
        assert not self._rows("_limits")
        assert self._all_over()

    def _minute(self) -> None:
        """Let a minute pass, in which every runner does its duties and performs what it has."""
        self.wait(60.0)
        for at, runner in enumerate(self.runners):
            self.recover(at)
            # A member that was cancelled ends there, and its batch may call back.
            self.holds()
            self.sweep_permits(at)
            self.claim_suspect(at)
            self.claim(at, 50, is_lost=False)
            for job in runner.hand:
                runner.follow_up(self._ended(runner, job, self._outcome(job, "done")))
            runner.hand = []
            self.sweep_batches(at)
            self.holds()

    def _all_over(self) -> bool:
        return all(row["finished_at"] is not None for row in self._rows("_batches"))

    def _any(self, pick: int) -> Known:
        known = sorted(self.model.jobs.values(), key=lambda job: job.id)
        assume(known)
        return known[pick % len(known)]


@pytest.fixture
def run(mongo_uri: str, database_name: str) -> t.Iterator[Callable[..., None]]:
    app, jobs = declared(mongo_uri, database_name)
    with app.app_context():
        jobs.install()
    with faulty_client(mongo_uri) as client:

        class Here(Queue):
            def __init__(self) -> None:
                super().__init__(app, jobs, client)

        def run(**how: t.Any) -> None:
            run_state_machine_as_test(
                Here,
                settings=settings(
                    deadline=None, suppress_health_check=CHECKS, database=None, **how
                ),
            )

        yield run
    jobs.state_of(app).close()


@pytest.mark.timeout(120)
def test_short_walks(run: Callable[..., None]) -> None:
    """Q1 to Q7, L3, B1 to B3, S1, W6: Whatever runners and operators do, and wherever they are
    killed, jobs, limits, batches and slots are as a small model of them says."""
    run(max_examples=10, stateful_step_count=40, phases=[Phase.generate])


@pytest.mark.faults
@pytest.mark.timeout(60 + 6 * WALKS)
def test_long_walks(run: Callable[..., None]) -> None:
    """The same, for thousands of steps."""
    run(max_examples=WALKS, stateful_step_count=60)
