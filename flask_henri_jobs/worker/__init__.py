"""Working on a queue. The web process never imports this."""

from __future__ import annotations

import typing as t

from flask import current_app

from ..declared import declared_schedules, problems_of
from ..durations import to_duration
from ..errors import NotInstalled
from ..log import logger
from ..queues import QueueSelection
from .os_signals import stopping
from .runner import Runner

if t.TYPE_CHECKING:
    from ..durations import Duration
    from ..extension import HenriJobs
    from ..queues import QueuesOption


def work(
    jobs: HenriJobs,
    *,
    once: bool,
    queues: QueuesOption | None,
    threads: int | None,
    grace: Duration | None,
    schedules: bool,
) -> None:
    """Perform a queue's jobs in this process until it is told to stop.

    :raises ConfigError: A declared schedule cannot be fired here (S4).
    """
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    state = jobs.state
    state.import_tasks()
    if schedules:
        for problem in problems_of(
            declared_schedules(state.settings, jobs.tasks), jobs.tasks, state.settings
        ):
            raise problem
    if problems := state.store.problems():
        raise NotInstalled(" ".join(problems), hint="Run 'flask jobs install'.")
    runner = Runner(
        app,
        jobs.tasks,
        state.store,
        state.settings,
        queues=None if queues is None else QueueSelection.read(queues, "queues"),
        threads=threads,
        grace=None if grace is None else to_duration(grace, "grace"),
        schedules=schedules,
    )
    logger.info("Runner %s knows %d tasks: %s", runner.id, len(jobs.tasks), ", ".join(jobs.tasks))
    with stopping(runner):
        runner.run(once=once)
