"""One worker process: feeding its threads, and stopping in order."""

from __future__ import annotations

import time
import typing as t
from functools import partial

from .. import signals
from ..clock import steady_seconds
from ..ids import new_runner_id
from ..log import logger
from ..outcome import HandedBack
from ..queues import ALL_QUEUES, QueueSelection, QueueTurns
from ..signals import emit_safely
from .aftermath import Aftermath
from .apart import Apart
from .appetite import Appetite
from .committer import Announcer, Committer, Settled
from .execution import Ending, Execution
from .gate import Gate, Leave
from .holdings import Holdings
from .housekeeping import Duty, Housekeeping
from .keeper import Keeper
from .loop import Outages, Rounds, Wakeup
from .marks import Stage
from .pace import LONGEST_WAIT
from .post import Post, Role
from .roll import Roll
from .scheduling import Scheduling
from .strangers import Strangers
from .telling import tell
from .threads import Threads

if t.TYPE_CHECKING:
    from datetime import timedelta

    from blinker import NamedSignal
    from flask import Flask

    from ..job import Job
    from ..registry import Registry
    from ..settings import Settings
    from ..store import Store

CLOSING_SECONDS = 10.0
"""What a stop allows for writing the last outcomes, after the grace."""


class Runner:
    """Claims jobs, performs them in threads, and sees each to its outcome.

    :param queues: Take from these only; None takes from those of the settings, or else from all.
    :param schedules: Whether it fires schedules, too.
    :param post: Its place in a worker; without one it is alone.
    """

    def __init__(
        self,
        app: Flask,
        tasks: Registry,
        store: Store,
        settings: Settings,
        *,
        queues: QueueSelection | None = None,
        threads: int | None = None,
        grace: timedelta | None = None,
        schedules: bool = True,
        post: Post | None = None,
    ) -> None:
        self.id = new_runner_id()
        self._post = post or Post()
        self._app = app
        self._tasks = tasks
        self._names = list(tasks)
        self._store = store
        self._settings = settings
        self._queues = QueueTurns(queues or settings.queues or ALL_QUEUES)
        self._grace = (settings.grace if grace is None else grace).total_seconds()
        self._stopping = False
        self._in_a_hurry = False
        self._once = False
        self._taken = 0
        self._policies = tasks.policies(settings.backoff)
        self._wakeup = Wakeup()
        self._outages = Outages()
        self._holdings = Holdings()
        self._strangers = Strangers(tasks, store.clock.now)
        self._threads = Threads(threads or settings.threads, self._perform, self._wakeup.ring)
        self._appetite = Appetite(
            self.id, self._queues, tasks.lanes(), self._threads, self._strangers
        )
        self._announcer = Announcer(app)
        self._aftermath = Aftermath(
            store, settings, self._announcer, self._outages, self._wakeup.ring
        )
        self._committer = Committer(
            store.outcomes, self._announcer, self._follow_up, self._let_go, self._outages
        )
        self._keeper = Keeper(
            store.leases,
            store.permits,
            self._holdings,
            store.clock,
            heartbeat=settings.heartbeat,
            stuck_after=settings.stuck_after,
            outages=self._outages,
        )
        self._roll = Roll(
            runners=store.runners,
            settings=settings,
            runner=self.id,
            role=self._post.role,
            queues=self._queues.selection,
            threads=self._threads.count,
            tasks=self._names,
        )
        self._gate = Gate(self._keeper, store.pauses, store.rates, tasks.lanes())
        self._housekeeping = Housekeeping(
            app,
            store,
            settings,
            self._outages,
            self._aftermath,
            more=[Duty("roll", self._roll.every, self._roll.write)],
        )
        self._apart = Apart(self._post, self._are_suspects_due)
        self._scheduling = (
            Scheduling.of(app, tasks, store, settings, self._outages) if schedules else None
        )

    def run(self, *, once: bool = False) -> None:
        """Perform jobs until :meth:`stop` is called, and then stop in order (W5).

        :param once: End as soon as nothing is due and nothing runs.
        """
        self._once = once
        self._start()
        try:
            self._feed_until_stopped(Rounds("the runner", self.feed_threads))
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
        if self._apart.is_turn(has_none=self._has_none):
            return self._feed_suspect()
        if self._post.wear.is_worn(self._taken):
            self._post.marks.stage = Stage.WORN
        free = self._appetite.free_threads()
        if not free and not self._appetite.runs_dry:
            return self._wait_for_threads()
        wish = self._appetite.wish(free)
        known_at = self._holdings.now()
        with self._outages.asking():
            jobs = self._store.claims.take(wish)
            self._begin(jobs, known_at)
            self._strangers.send_away(self._store.claims)
        self._appetite.took(jobs, free)
        if jobs and self._threads.idle:
            return 0.0
        return min(self._longest_wait, self._store.claims.look_in())

    def _feed_suspect(self) -> float:
        """Take one suspect, once nothing else is in hand. Return the seconds until the next look.

        It is performed alone: if it ends the process, no other job is to blame or to suffer (W6).
        """
        if self._has_none:
            known_at = self._holdings.now()
            with self._outages.asking():
                jobs = self._store.claims.take_suspect(self._appetite.wish(1), self._names)
                self._begin(jobs, known_at)
            self._apart.took(bool(jobs))
            if self._apart.is_over:
                self.stop()
        return min(self._poll_seconds, LONGEST_WAIT)

    def _are_suspects_due(self) -> bool:
        with self._outages.asking():
            return bool(self._store.claims.due_suspects(self._queues, self._names))

    def _begin(self, jobs: list[Job], known_at: float) -> None:
        """Have the threads perform claimed jobs; strangers among them are kept to be sent away."""
        self._taken += len(jobs)
        known = self._strangers.taken_from(jobs)
        self._holdings.add(known, known_at)
        for job in known:
            self._threads.perform(job)

    def _wait_for_threads(self) -> float:
        """Give back what was claimed ahead and cannot begin soon. Return the seconds to wait."""
        if self._appetite.has_too_many:
            self._hand_back(self._threads.take_back())
        return self._longest_wait

    @property
    def _longest_wait(self) -> float:
        return (
            min(self._poll_seconds, LONGEST_WAIT) if self._threads.waiting else self._poll_seconds
        )

    @property
    def _poll_seconds(self) -> float:
        return self._settings.poll_interval.total_seconds()

    def _feed_until_stopped(self, rounds: Rounds) -> None:
        looked_twice = False
        while not self._stopping:
            taken, had_none = self._taken, self._has_none
            wait = rounds.next()
            if self._once and had_none and taken == self._taken and not rounds.are_failing:
                # The look may have gone by what was true a moment ago; the last one must not.
                if looked_twice:
                    return
                looked_twice = True
                self._store.claims.look_again()
                self._apart.look_again()
                continue
            looked_twice = False
            if wait and not self._stopping:
                self._wakeup.sleep(wait)

    @property
    def _has_none(self) -> bool:
        """Whether every job that was taken is performed, and its outcome written."""
        return self._threads.is_empty and not len(self._holdings)

    def _start(self) -> None:
        self._post.marks.runner = self.id
        self._post.watch(self.stop)
        self._announcer.start()
        self._committer.start()
        self._keeper.start()
        self._housekeeping.start()
        self._threads.start()
        self._start_scheduling()
        self._tell(signals.worker_started)
        self._post.marks.stage = Stage.AT_WORK

    def _start_scheduling(self) -> None:
        if self._scheduling is None:
            return
        if self._once:
            # What is due now is performed before the end, which would otherwise come first.
            Rounds("the schedules", self._scheduling.round, BaseException).next()
        self._scheduling.start()

    def _stop(self) -> None:
        """Hand back what has not begun, finish what runs, write every outcome (W5)."""
        self._tell(signals.worker_stopping)
        if self._scheduling is not None:
            self._scheduling.stop(CLOSING_SECONDS)
        self._hand_back(self._threads.take_back())
        self._hand_back_late()
        finished = self._finish_within(self._grace)
        self._threads.stop(CLOSING_SECONDS if finished else 0.0)
        written = self._committer.finish(CLOSING_SECONDS)
        self._announcer.finish(CLOSING_SECONDS)
        if not finished:
            self._give_up()
        self._housekeeping.stop(CLOSING_SECONDS)
        self._keeper.stop(CLOSING_SECONDS)
        with self._outages.tolerated():
            self._roll.remove()
        if finished and written and not self._outages.is_on:
            self._post.marks.stage = Stage.ENDED
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
            is_worn = self._post.marks.stage is Stage.WORN
            reason = "was recycled" if is_worn else "was stopped"
            recovered = self._store.leases.recover_from(self.id, reason, suspect=False)
            self._aftermath.count(recovered)
            for job in recovered:
                logger.warning("Put back %r, which outlasted the grace.", job)

    def _hand_back(self, jobs: list[Job]) -> None:
        if jobs:
            with self._outages.tolerated():
                self._store.claims.hand_back(jobs)
                self._store.permits.give_back(jobs)
        self._holdings.drop(jobs)

    def _hand_back_late(self) -> None:
        """Put back what a claim took whose reply was lost, and the strangers that are left."""
        with self._outages.tolerated():
            self._store.claims.hand_back(self._store.claims.late())
            self._strangers.send_away(self._store.claims)

    def _perform(self, job: Job) -> None:
        """Perform a job in an executing thread, and hand its outcome over."""
        is_seen_to = False
        try:
            leave = self._gate.leave_for(job)
            if leave is Leave.BEGIN:
                # In no variable: the frames of a failed task lead back to this one, in a circle.
                self._committer.hand_over(self._performed(job))
            else:
                self._leave_unbegun(job, leave)
            is_seen_to = True
        finally:
            if not is_seen_to:
                # Without heartbeats it is recovered; with them it would run for ever.
                self._holdings.drop([job])

    def _performed(self, job: Job) -> Ending:
        began = steady_seconds()
        mark = self._post.marks.begin(job.row["_id"])
        try:
            return self._ending_of(job)
        finally:
            self._post.marks.end(mark)
            self._appetite.note(job.name, steady_seconds() - began)

    def _leave_unbegun(self, job: Job, leave: Leave) -> None:
        never_begun = Ending(job, HandedBack(at=self._store.clock.now()))
        if leave is Leave.LOST:
            self._announcer.announce(Settled(never_begun, None))
        else:
            self._committer.hand_over(never_begun)

    def _follow_up(self, group: list[Settled]) -> None:
        """Do what follows from outcomes that are written; it may be called again with the same."""
        self._store.permits.give_back(settled.ending.job for settled in group)
        self._aftermath.follow(group)

    def _let_go(self, group: list[Settled]) -> None:
        # After all else: with --once the runner ends when it holds none, and the callback of their
        # batch is to be seen by then.
        self._holdings.drop(settled.ending.job for settled in group)
        if self._has_none and (self._once or self._post.role is not Role.JOBS):
            self._wakeup.ring()

    def _ending_of(self, job: Job) -> Ending:
        task = self._tasks[job.name]
        if task.name not in self._policies:
            # It was declared late, as by a module that another task imports.
            self._policies[task.name] = task.policy(self._settings.backoff)
        policy = self._policies[task.name]
        return Execution(self._app, job, task, policy, self._store.clock.now).run()

    def _tell(self, signal: NamedSignal) -> None:
        tell(self._app, partial(emit_safely, signal, runner=self.id))
