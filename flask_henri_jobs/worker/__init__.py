"""Working on a queue. The web process never imports this."""

from __future__ import annotations

import typing as t

from flask import current_app

from ..checks import checked_int
from ..declared import declared_schedules, problems_of
from ..durations import to_duration
from ..errors import NotInstalled, TransactionRefused
from ..log import logger
from ..logs import tell_of_jobs
from ..queues import QueueSelection
from ..setting_readers import MOST_THREADS
from .os_signals import stopping
from .post import Post, Role
from .runner import Runner
from .supervisor import Supervisor

if t.TYPE_CHECKING:
    from collections.abc import Sequence

    from ..app_state import AppState
    from ..durations import Duration
    from ..extension import HenriJobs
    from ..queues import QueuesOption
    from ..registry import Registry


def work(
    jobs: HenriJobs,
    *,
    once: bool,
    queues: QueuesOption | None,
    threads: int | None,
    grace: Duration | None,
    schedules: bool,
    post: Post | None = None,
) -> None:
    """Perform a queue's jobs in this process until it is told to stop.

    :param post: What its supervisor told it; None where it has none.
    :raises ConfigError: An option is out of its bounds; a task's backoff does not go together
        with the settings'; or a declared schedule cannot be fired here (S4).
    :raises TransactionRefused: A task says that it needs transactions, and there are none (X2).
    """
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    state = jobs.state
    post = post or Post()
    if post.role is Role.SUSPECTS:
        # One at a time, in a process that does nothing else (W6).
        threads, schedules = 1, False
    state.import_tasks()
    tell_of_jobs()
    if schedules:
        for problem in problems_of(
            declared_schedules(state.settings, jobs.tasks), jobs.tasks, state.settings
        ):
            raise problem
    names = ", ".join(jobs.tasks)
    with state.runner_store() as store:
        if problems := store.problems():
            raise NotInstalled(" ".join(problems), hint="Run 'flask jobs install'.")
        _see_to_transactions(state, jobs.tasks)
        runner = Runner(
            app,
            jobs.tasks,
            store,
            state.settings,
            queues=None if queues is None else QueueSelection.read(queues, "queues"),
            threads=None if threads is None else checked_int(threads, "threads", 1, MOST_THREADS),
            grace=None if grace is None else to_duration(grace, "grace"),
            schedules=schedules,
            post=post,
        )
        logger.info("Runner %s knows %d tasks: %s", runner.id, len(jobs.tasks), names)
        with stopping(runner, post):
            runner.run(once=once)


def _see_to_transactions(state: AppState, tasks: Registry) -> None:
    """Refuse to begin what cannot be: transactions on a server that has none (X2)."""
    names = tasks.transactional()
    if not names:
        return
    if (warning := state.settings.outlasted_by_transactions) is not None:
        logger.warning(warning)
    try:
        state.store.transactions.accept(state.client)
    except TransactionRefused as error:
        raise TransactionRefused(
            f"The task {names[0]} says transactional=True. {error.message}", hint=error.hint
        ) from None


def supervise(
    jobs: HenriJobs, command: Sequence[str], *, processes: int | None, grace: Duration | None
) -> int:
    """Keep runner processes at work until told to stop. Return the exit code.

    :param command: Starts this worker; with one option more, one of its runners.
    """
    tell_of_jobs()
    state = jobs.state
    supervisor = Supervisor(
        current_app._get_current_object(),  # type: ignore[attr-defined]
        state,
        command=command,
        processes=processes or state.settings.processes,
        grace=to_duration(
            state.settings.grace if grace is None else grace, "grace"
        ).total_seconds(),
    )
    return supervisor.run()
