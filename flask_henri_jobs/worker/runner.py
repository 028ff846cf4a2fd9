"""One worker process: feeding its threads, and stopping in order."""

from __future__ import annotations

import logging
import time
import typing as t

from .. import signals
from ..ids import new_runner_id
from ..outcome import Snoozed
from ..signals import emit
from ..store.claims import Wish
from .committer import Announcer, Committer, Settled
from .execution import Ending, Execution
from .holdings import Holdings
from .housekeeping import Housekeeping
from .keeper import Keeper
from .loop import Outages, Rounds, Wakeup
from .scheduling import Scheduling
from .strangers import Strangers
from .threads import Threads

if t.TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from flask import Flask

    from ..job import Job
    from ..outcome import RetryPolicy
    from ..registry import Registry
    from ..settings import Settings
    from ..store import Store

logger = logging.getLogger("flask_henri_jobs")

CLOSING_SECONDS = 10.0
"""What a stop allows for writing the last outcomes, after the grace."""


class Runner:
    """Claims jobs, performs them in threads, and sees each to its outcome.

    :param queues: Take from these only; None takes from all.
    :param schedules: Whether it fires schedules, too.
    """

    def __init__(
        self,
        app: Flask,
        tasks: Registry,
        store: Store,
        settings: Settings,
        *,
        queues: Sequence[str] | None = None,
        threads: int | None = None,
        grace: timedelta | None = None,
        schedules: bool = True,
    ) -> None:
        self.id = new_runner_id()
        self._app = app
        self._tasks = tasks
        self._store = store
        self._settings = settings
        self._queues = queues if queues is not None else settings.queues
        self._grace = (settings.grace if grace is None else grace).total_seconds()
        self._stopping = False
        self._in_a_hurry = False
        self._policies: dict[str, RetryPolicy] = {}
        self._limits = tasks.limits()
        self._wakeup = Wakeup()
        self._outages = Outages()
        self._holdings = Holdings()
        self._strangers = Strangers(tasks, store.clock.now)
        self._threads = Threads(threads or settings.threads, self._perform, self._wakeup.ring)
        self._announcer = Announcer(app)
        self._committer = Committer(store.outcomes, self._announcer, self._follow_up, self._outages)
        self._keeper = Keeper(
            store.leases,
            store.permits,
            self._holdings,
            store.clock,
            heartbeat=settings.heartbeat,
            stuck_after=settings.stuck_after,
            outages=self._outages,
        )
        self._housekeeping = Housekeeping(app, store, settings, self._outages)
        self._scheduling = (
            Scheduling.of(app, tasks, store, settings, self._outages) if schedules else None
        )

    def run(self, *, once: bool = False) -> None:
        """Perform jobs until :meth:`stop` is called, and then stop in order (W5).

        :param once: End as soon as nothing is due and nothing runs.
        """
        self._start(once=once)
        rounds = Rounds("the runner", self.feed_threads, self._outages)
        try:
            while not self._stopping:
                wait = rounds.next()
                if once and self._is_done(wait):
                    break
                if wait and not self._stopping:
                    self._wakeup.sleep(wait)
        finally:
            self._stop()

    def stop(self, *, at_once: bool = False) -> None:
        """Ask for the end; may be called from a signal handler, and more than once.

        :param at_once: Do not wait for what runs.
        """
        self._in_a_hurry = at_once or self._in_a_hurry
        self._stopping = True
        self._wakeup.ring()

    def feed_threads(self) -> float:
        """Take a job for every idle thread. Return the seconds until the next look (W1)."""
        wanted = self._threads.idle
        if not wanted:
            return self._poll_seconds
        wish = Wish(
            runner=self.id,
            queues=self._queues,
            at_most=wanted,
            wanted=self._strangers.are_wanted,
            limits=self._limits,
        )
        jobs = self._store.claims.take(wish)
        known = self._strangers.sent_away(jobs, self._store.claims)
        self._holdings.add(known)
        for job in known:
            self._threads.perform(job)
        return 0.0 if jobs and self._threads.idle else self._poll_seconds

    @property
    def _poll_seconds(self) -> float:
        return self._settings.poll_interval.total_seconds()

    def _is_done(self, wait: float) -> bool:
        return bool(wait) and self._threads.is_empty and not len(self._holdings)

    def _start(self, *, once: bool) -> None:
        self._announcer.start()
        self._committer.start()
        self._keeper.start()
        self._housekeeping.start()
        self._threads.start()
        self._start_scheduling(once=once)
        self._tell(signals.worker_started)

    def _start_scheduling(self, *, once: bool) -> None:
        if self._scheduling is None:
            return
        if once:
            # What is due now is performed before the end, which would otherwise come first.
            with self._outages.tolerated():
                self._scheduling.round()
        self._scheduling.start()

    def _stop(self) -> None:
        """Hand back what has not begun, finish what runs, write every outcome (W5)."""
        self._tell(signals.worker_stopping)
        if self._scheduling is not None:
            self._scheduling.stop(CLOSING_SECONDS)
        self._hand_back(self._threads.take_back())
        finished = self._finish_within(self._grace)
        self._committer.finish(CLOSING_SECONDS)
        self._announcer.finish(CLOSING_SECONDS)
        if not finished:
            self._give_up()
        self._housekeeping.stop(CLOSING_SECONDS)
        self._keeper.stop(CLOSING_SECONDS)
        self._tell(signals.worker_stopped)

    def _finish_within(self, seconds: float) -> bool:
        """Wait for the jobs in hand. A second signal ends the wait."""
        deadline = time.monotonic() + seconds
        while not self._threads.is_empty:
            left = deadline - time.monotonic()
            if left <= 0 or self._in_a_hurry:
                return False
            self._wakeup.sleep(left)
        return True

    def _give_up(self) -> None:
        """Put back at once what outlasted the grace. It keeps its attempt, which did begin."""
        with self._outages.tolerated():
            for job in self._store.leases.recover_from(self.id, "was stopped"):
                logger.warning("Put back %r, which outlasted the grace.", job)

    def _hand_back(self, jobs: list[Job]) -> None:
        with self._outages.tolerated():
            self._store.claims.hand_back(jobs)
            self._store.permits.give_back(jobs)
        self._holdings.drop(jobs)

    def _perform(self, job: Job) -> None:
        """Perform a job in an executing thread, and hand its outcome over."""
        if self._keeper.may_begin(job):
            self._committer.hand_over(self._ending_of(job))
        else:
            never_begun = Ending(job, Snoozed(at=0, run_at=0))
            self._announcer.announce(Settled(never_begun, None))

    def _follow_up(self, group: list[Settled]) -> None:
        """Do what follows from outcomes that are written; each of it may be repeated."""
        jobs = [settled.ending.job for settled in group]
        self._store.permits.give_back(jobs)
        self._holdings.drop(jobs)

    def _ending_of(self, job: Job) -> Ending:
        task = self._tasks[job.name]
        policy = self._policies.get(job.name)
        if policy is None:
            policy = self._policies[job.name] = task.policy(self._settings.backoff)
        return Execution(self._app, job, task, policy, self._store.clock.now).run()

    def _tell(self, signal: t.Any) -> None:
        with self._app.app_context():
            emit(signal, self._app, runner=self.id)
