"""One worker process: feeding its threads, and stopping in order."""

from __future__ import annotations

import contextlib
import time
import typing as t
from functools import partial

from .. import signals
from ..errors import ThreadsStuck
from ..ids import new_runner_id
from ..outcome import HandedBack
from ..queues import ALL_QUEUES, QueueSelection, QueueTurns
from ..signals import emit_safely
from .aftermath import Aftermath
from .alarm import Alarm
from .appetite import Appetite
from .attempts import Attempts
from .awaited import Awaited
from .cancels import Cancels
from .committer import Announcer, Committer, Settled
from .feeder import Feeder
from .gate import Gate
from .holdings import Holdings
from .housekeeping import Duty, Housekeeping
from .keeper import Keeper
from .loop import Outages, Rounds, Wakeup
from .marks import Stage
from .performer import Performer
from .post import Post, Role
from .reporting import Reporter
from .roll import Roll
from .scheduling import Scheduling
from .strangers import Strangers
from .telling import tell
from .threads import Threads
from .transacting import Transacting
from .turnstile import Turnstile

if t.TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from blinker import NamedSignal
    from flask import Flask

    from ..registry import Registry
    from ..settings import Settings
    from ..store import Store

CLOSING_SECONDS = 10.0
"""What a stop allows for writing the last outcomes, after the grace."""

MOST_GIVEN_UP = 20
"""So many threads may be given up in a process that nobody replaces; then it stops."""


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
        self._poll = settings.poll_interval.total_seconds()
        self._stopping = False
        self._in_a_hurry = False
        self._once = False
        self._wakeup = Wakeup()
        self._outages = Outages()
        self._holdings = Holdings()
        self._attempts = Attempts()
        self._turnstile = Turnstile(is_open=not self._queues.are_weighted)
        self._announcer = Announcer(app)
        # Each of these is made of what stands above it.
        self._make_what_takes(threads or settings.threads)
        self._make_what_settles()
        self._make_what_watches()
        self._make_what_performs()
        self._make_what_feeds()
        self._make_what_keeps_house(schedules=schedules)

    def run(self, *, once: bool = False) -> None:
        """Perform jobs until :meth:`stop` is called, and then stop in order (W5).

        :param once: End as soon as nothing is due and nothing runs.
        :raises ThreadsStuck: It has stopped because too many threads were given up (W7).
        """
        self._once = once
        self._start()
        try:
            with self._listening():
                self._feed_until_stopped(Rounds("the runner", self._feeder.feed))
        finally:
            self._stop()
        if self._has_given_up:
            raise ThreadsStuck(
                f"{self._threads.given_up} jobs did not end when they were told to.",
                hint="Start this process anew; 'flask jobs worker' does so by itself.",
            )

    def stop(self, *, at_once: bool = False) -> None:
        """Ask for the end; may be called from a signal handler, and more than once.

        :param at_once: Do not wait for what runs.
        """
        self._in_a_hurry = at_once or self._in_a_hurry
        self._stopping = True
        self._wakeup.ring()

    def _make_what_takes(self, threads: int) -> None:
        self._strangers = Strangers(self._tasks, self._store.clock.now)
        self._threads = Threads(
            threads,
            lambda job: self._performer.perform(job),  # noqa: PLW0108 - it is made below
            self._wakeup.ring,
        )
        self._appetite = Appetite(
            self.id, self._queues, self._tasks.lanes(), self._threads, self._strangers
        )
        self._alarm = Alarm(
            self._queues.selection,
            self._wakeup.ring,
            lambda: self._threads.idle > 0,
            self._store.clock.now,
            self._poll,
        )

    def _make_what_settles(self) -> None:
        self._awaited = Awaited(self._store.wakeups.ended)
        self._aftermath = Aftermath(
            self._store,
            self._settings,
            self._announcer,
            self._outages,
            self._wakeup.ring,
            self._alarm,
            self._awaited,
            self._tasks,
        )
        self._committer = Committer(
            self._store.outcomes,
            self._announcer,
            self._follow_up,
            self._let_go,
            self._outages,
            in_hand=lambda: len(self._holdings),
        )

    def _make_what_watches(self) -> None:
        store, settings = self._store, self._settings
        self._keeper = Keeper(
            store.leases,
            store.permits,
            self._holdings,
            self._attempts,
            store.clock,
            heartbeat=settings.heartbeat,
            stuck_after=settings.stuck_after,
            outages=self._outages,
        )
        self._cancels = Cancels(
            store.leases, self._holdings, self._attempts, store.clock.now, self._outages
        )
        self._reporter = Reporter(store.leases, self._announcer, self._outages, store.clock.now)

    def _make_what_performs(self) -> None:
        store, is_said = self._store, bool(self._tasks.transactional())
        self._performer = Performer(
            self._app,
            self._tasks,
            self._settings,
            store.clock.now,
            gate=Gate(self._keeper, store.pauses, store.rates, self._tasks.lanes()),
            attempts=self._attempts,
            marks=self._post.marks,
            appetite=self._appetite,
            committer=self._committer,
            announcer=self._announcer,
            reporter=self._reporter,
            holdings=self._holdings,
            claims=store.claims,
            turnstile=self._turnstile,
            outages=self._outages,
            aftermath=self._aftermath,
            transacting=Transacting(
                transactions=store.job_transactions,
                holdings=self._holdings,
                keeper=self._keeper,
                reporter=self._reporter,
                attempts=self._attempts,
                committer=self._committer,
                outages=self._outages,
                marks=self._post.marks,
                warning=None if is_said else self._settings.outlasted_by_transactions,
            ),
            on_stuck=self._lose_thread,
            on_refused=lambda job: self._feeder.refused(job),  # noqa: PLW0108 - it is made below
        )

    def _make_what_feeds(self) -> None:
        self._feeder = Feeder(
            self._store,
            self._queues,
            self._names,
            post=self._post,
            threads=self._threads,
            appetite=self._appetite,
            strangers=self._strangers,
            turnstile=self._turnstile,
            holdings=self._holdings,
            alarm=self._alarm,
            outages=self._outages,
            aftermath=self._aftermath,
            longest_wait=self._poll,
        )

    def _make_what_keeps_house(self, *, schedules: bool) -> None:
        app, store, settings = self._app, self._store, self._settings
        self._roll = Roll(
            runners=store.runners,
            settings=settings,
            runner=self.id,
            role=self._post.role,
            queues=self._queues.selection,
            threads=self._threads.count,
            tasks=self._names,
        )
        self._housekeeping = Housekeeping(
            app,
            store,
            settings,
            self._outages,
            self._aftermath,
            more=[Duty("roll", self._roll.every, self._roll.write)],
        )
        self._scheduling = (
            Scheduling.of(app, self._tasks, store, settings, self._outages) if schedules else None
        )

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear the rings within the block, unless the runner never sleeps for long."""
        with contextlib.ExitStack() as stack:
            if not self._once and self._post.role is not Role.SUSPECTS:
                for listener in (self._alarm, self._awaited, self._cancels):
                    stack.enter_context(self._store.tail.heard_by(listener))
            yield

    def _feed_until_stopped(self, rounds: Rounds) -> None:
        looked_twice = False
        while not self._stopping:
            taken, had_none = self._feeder.taken, self._feeder.has_none
            wait = rounds.next()
            if self._feeder.is_over:
                return
            if self._once and had_none and taken == self._feeder.taken and not rounds.are_failing:
                # The look may have gone by what was true a moment ago; the last one must not.
                if looked_twice:
                    return
                looked_twice = True
                self._feeder.look_again()
                continue
            looked_twice = False
            if wait and not self._stopping:
                self._wakeup.sleep(wait)

    def _start(self) -> None:
        self._post.marks.runner = self.id
        self._post.watch(self.stop)
        self._announcer.start()
        self._committer.start()
        self._keeper.start()
        self._attempts.start(self._performer.give_up)
        self._cancels.start()
        self._reporter.start()
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
        self._feeder.give_back()
        finished = self._finish_within(self._grace)
        self._threads.stop(CLOSING_SECONDS if finished else 0.0)
        self._cancels.stop(CLOSING_SECONDS)
        self._attempts.stop(CLOSING_SECONDS)
        self._reporter.stop(CLOSING_SECONDS)
        written = self._committer.finish(CLOSING_SECONDS)
        self._announcer.finish(CLOSING_SECONDS)
        if not finished:
            self._housekeeping.put_back(self.id, self._why)
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

    @property
    def _why(self) -> str:
        """Why the runner has stopped, as a history tells it."""
        if self._threads.given_up:
            return "was replaced over a job that did not end"
        return "was recycled" if self._post.marks.stage is Stage.WORN else "was stopped"

    def _lose_thread(self, thread: int) -> None:
        """Go on without a thread whose job does not end (W7)."""
        self._threads.give_up(thread, replace=self._post.role is Role.ALONE)
        if self._post.role is not Role.ALONE:
            # What holds the thread goes with the process only. Its successor starts meanwhile.
            self._post.marks.stage = Stage.WORN
            self.stop()
        elif self._has_given_up:
            self.stop()

    @property
    def _has_given_up(self) -> bool:
        return self._post.role is Role.ALONE and self._threads.given_up >= MOST_GIVEN_UP

    def _follow_up(self, group: list[Settled]) -> None:
        """Do what follows from outcomes that are written; it may be called again with the same."""
        self._store.permits.give_back(settled.ending.job for settled in group)
        self._aftermath.follow(group)

    def _let_go(self, group: list[Settled]) -> None:
        # After all else: with --once the runner ends when it holds none, and the callback of their
        # batch is to be seen by then.
        self._holdings.drop(settled.ending.job for settled in group)
        for settled in group:
            if settled.ending.mark is not None:
                self._post.marks.end(settled.ending.mark)
        refused = any(isinstance(settled.ending.outcome, HandedBack) for settled in group)
        if refused or any(settled.ending.job.permit for settled in group):
            self._store.claims.limited.keys.freed()
            if refused or self._threads.idle:
                # The last look did not see those wait, or there was no key with a slot free.
                self._wakeup.ring()
        if self._feeder.has_none and (self._once or self._post.role is not Role.JOBS):
            self._wakeup.ring()

    def _tell(self, signal: NamedSignal) -> None:
        tell(self._app, partial(emit_safely, signal, runner=self.id))
