"""What an executing thread does with a claimed job, and what becomes of one that does not end."""

from __future__ import annotations

import os
import typing as t
from functools import partial

from .. import signals
from ..clock import steady_seconds
from ..context import be_transactional
from ..log import logger
from ..logs import about
from ..outcome import HandedBack, Snoozed
from ..store.cancels import is_asked
from .committer import Settled
from .execution import Ending, Execution
from .gate import Leave
from .transacting import OwnTransaction

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from ..clock import Moment
    from ..job import Job
    from ..registry import Registry
    from ..settings import Settings
    from ..store.claims import Claims
    from .aftermath import Aftermath
    from .appetite import Appetite
    from .attempts import Attempts, RunningAttempt
    from .committer import Announcer, Committer
    from .gate import Gate
    from .holdings import Holdings
    from .loop import Outages
    from .marks import Marks
    from .reporting import Reporter
    from .transacting import Transacting
    from .turnstile import Turnstile


CHILD_RETURNED = 70
"""The exit code of a process that a task forked and forgot to end."""


class Performer:
    """Performs jobs and hands their outcomes over.

    :param now: The server's time.
    :param on_stuck: Called with the thread of an attempt that was given up.
    :param on_refused: Called with a job that may not begin now, before it is handed back.
    """

    def __init__(
        self,
        app: Flask,
        tasks: Registry,
        settings: Settings,
        now: Callable[[], Moment],
        *,
        gate: Gate,
        attempts: Attempts,
        marks: Marks,
        appetite: Appetite,
        committer: Committer,
        announcer: Announcer,
        reporter: Reporter,
        holdings: Holdings,
        claims: Claims,
        turnstile: Turnstile,
        outages: Outages,
        aftermath: Aftermath,
        transacting: Transacting,
        on_stuck: Callable[[int], None],
        on_refused: Callable[[Job], None],
    ) -> None:
        self._process = os.getpid()
        self._app = app
        self._tasks = tasks
        self._backoff = settings.backoff
        self._now = now
        self._policies = tasks.policies(settings.backoff)
        self._gate = gate
        self._attempts = attempts
        self._marks = marks
        self._appetite = appetite
        self._committer = committer
        self._announcer = announcer
        self._reporter = reporter
        self._holdings = holdings
        self._claims = claims
        self._turnstile = turnstile
        self._outages = outages
        self._aftermath = aftermath
        self._transacting = transacting
        self._on_stuck = on_stuck
        self._on_refused = on_refused

    def perform(self, job: Job) -> bool:
        """Perform a job in this thread. Return whether the thread goes on with others."""
        is_seen_to = False
        try:
            goes_on = self._see_to(job)
            is_seen_to = True
            return goes_on
        finally:
            self._turnstile.leave([job.row["_id"]])
            if not is_seen_to:
                # Without heartbeats it is recovered; with them it would run for ever.
                self._holdings.drop([job])

    def give_up(self, attempt: RunningAttempt) -> None:
        """End an attempt whose task does not end, under its token (W7).

        Its thread is lost. What the task still does changes nothing about the job.
        """
        raised = attempt.unheard()
        seconds = steady_seconds() - attempt.began
        execution = attempt.execution or self._execution(attempt)
        ending = execution.ended(raised, None, seconds)
        # The thread still has its mark.
        ending.mark = None
        # First: once the thread is counted out the runner may be on its way to its end.
        if execution.settled is None:
            self._committer.hand_over(ending)
        self._on_stuck(attempt.thread)
        # Last: the thread that is given up may hold a lock of logging's.
        with about(attempt.job):
            logger.error(
                "%r does not end, although it was told to: %s Its thread is given up.",
                attempt.job,
                raised.message,
            )

    def _see_to(self, job: Job) -> bool:
        leave = self._gate.leave_for(job)
        if leave is Leave.LOST:
            self._let_others_have(job)
            return True
        if leave is Leave.NOT_NOW:
            self._on_refused(job)
            self._committer.hand_over(Ending(job, HandedBack(at=self._now())))
            return True
        attempt = self._attempts.begin(job)
        if self._holdings.is_cancelled(job) or is_asked(job.row):
            attempt.frame.is_cancelled = True
        try:
            # In no variable: the frames of a failed task lead back to this one, in a circle.
            return self._hand_over(attempt, self._performed(attempt))
        finally:
            self._attempts.end(attempt)

    def _let_others_have(self, job: Job) -> None:
        """See to a job whose claim is gone, or whose claim stands and whose permit is gone."""
        with self._outages.tolerated():
            self._aftermath.bury(self._claims.hand_back([job]).cancelled)
        self._holdings.drop([job])
        never_begun = Ending(job, Snoozed(at=0, run_at=0))
        self._announcer.announce(Settled(never_begun, None))

    def _performed(self, attempt: RunningAttempt) -> Ending:
        mark = self._marks.begin(attempt.job.row["_id"])
        try:
            execution = attempt.execution = self._execution(attempt)
            execution.mark = mark
            own = OwnTransaction(self._transacting, attempt, execution)
            be_transactional(execution.running, own)
            return execution.run()
        finally:
            self._end_child()
            # It has its mark until the outcome is stored: were that lost, it would run again.
            self._marks.returned(mark)
            self._appetite.note(attempt.job.name, steady_seconds() - attempt.began)

    def _end_child(self) -> None:
        """End a process that the task forked and that has returned from it: it is no runner."""
        if os.getpid() != self._process:
            os._exit(CHILD_RETURNED)

    def _hand_over(self, attempt: RunningAttempt, ending: Ending) -> bool:
        """Have an outcome written, unless the attempt was given up. Return whether it was not."""
        is_ours = self._attempts.end(attempt)
        settled = attempt.execution.settled if attempt.execution else None
        if is_ours and settled is None:
            self._committer.hand_over(ending)
            return True
        if ending.mark is not None:
            self._marks.end(ending.mark)
        if is_ours:
            self._tell_of_rest(settled, ending.raised)
            return True
        with about(attempt.job):
            logger.warning("%r has ended after it was given up; that changes nothing.", attempt.job)
        return False

    def _tell_of_rest(self, settled: Ending | None, raised: BaseException | None) -> None:
        """Tell what a task raised after its transaction was committed; that changes nothing."""
        if settled is None or settled.stands is None or raised is None:
            return
        with about(settled.job):
            logger.error("%r has ended, and raised after that.", settled.stands, exc_info=raised)
        self._announcer.tell(
            signals.job_failed, job=settled.stands, error=raised, attempt=settled.attempt
        )

    def _execution(self, attempt: RunningAttempt) -> Execution:
        job = attempt.job
        task = self._tasks[job.name]
        if task.name not in self._policies:
            # It was declared late, as by a module that another task imports.
            self._policies[task.name] = task.policy(self._backoff)
        policy = self._policies[task.name]
        await_turn = partial(self._turnstile.begin, job.row["_id"])
        return Execution(
            self._app,
            job,
            task,
            policy,
            self._now,
            attempt.frame,
            await_turn,
            self._reporter.notice,
        )
