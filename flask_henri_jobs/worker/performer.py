"""What an executing thread does with a claimed job, and what becomes of one that does not end."""

from __future__ import annotations

import typing as t

from ..clock import steady_seconds
from ..log import logger
from ..outcome import Snoozed
from .committer import Settled
from .execution import Ending, Execution

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from ..clock import Moment
    from ..job import Job
    from ..outcome import RetryPolicy
    from ..registry import Registry
    from ..settings import Settings
    from .appetite import Appetite
    from .attempts import Attempts, RunningAttempt
    from .committer import Announcer, Committer
    from .frame import Frame
    from .keeper import Keeper
    from .marks import Marks


class Performer:
    """Performs jobs and hands their outcomes over.

    :param now: The server's time.
    :param on_stuck: Called when the thread of an attempt was given up with it.
    """

    def __init__(
        self,
        app: Flask,
        tasks: Registry,
        settings: Settings,
        now: Callable[[], Moment],
        *,
        keeper: Keeper,
        attempts: Attempts,
        marks: Marks,
        appetite: Appetite,
        committer: Committer,
        announcer: Announcer,
        on_stuck: Callable[[], None],
    ) -> None:
        self._app = app
        self._tasks = tasks
        self._backoff = settings.backoff
        self._now = now
        self._policies: dict[str, RetryPolicy] = {}
        self._keeper = keeper
        self._attempts = attempts
        self._marks = marks
        self._appetite = appetite
        self._committer = committer
        self._announcer = announcer
        self._on_stuck = on_stuck

    def perform(self, job: Job) -> bool:
        """Perform a job in this thread. Return whether the thread goes on with others."""
        if not self._keeper.may_begin(job):
            never_begun = Ending(job, Snoozed(at=0, run_at=0))
            self._announcer.announce(Settled(never_begun, None))
            return True
        attempt = self._attempts.begin(job)
        mark = self._marks.begin(job.row["_id"])
        try:
            ending = self._execution(job, attempt.frame).run()
        finally:
            self._marks.end(mark)
        if not self._attempts.end(attempt):
            logger.warning("%r has ended after it was given up; that changes nothing.", job)
            return False
        self._appetite.note(job.name, steady_seconds() - attempt.began)
        self._committer.hand_over(ending)
        return True

    def give_up(self, attempt: RunningAttempt) -> None:
        """End an attempt whose task does not end, under its token (W7).

        Its thread is lost. What the task still does changes nothing about the job.
        """
        assert attempt.interruption is not None
        raised = attempt.interruption.with_traceback(attempt.where())
        seconds = steady_seconds() - attempt.began
        ending = self._execution(attempt.job, attempt.frame).ended(raised, None, seconds)
        # First: once the thread is counted out the runner may be on its way to its end.
        self._committer.hand_over(ending)
        self._on_stuck()
        # Last: the thread that is given up may hold a lock of logging's.
        logger.error(
            "%r does not end, although it was told to: %s Its thread is given up.",
            attempt.job,
            raised.message,
        )

    def _execution(self, job: Job, frame: Frame) -> Execution:
        task = self._tasks[job.name]
        policy = self._policies.get(job.name)
        if policy is None:
            policy = self._policies[job.name] = task.policy(self._backoff)
        return Execution(self._app, job, task, policy, self._now, frame)
