"""The lifecycle signals, and how they are sent.

The sender is the Flask app. A signal is sent inside the app context, in the process where the
thing happens. What a runner does is announced by a thread of its own, after the write that made it
true and in the order of the writes: a receiver has no ``g`` of the task, and may be slow without
holding up a commit (W2). A receiver that raises is logged and changes nothing (W12).

Above each signal stands when it is sent; then in which process and thread, and with what. The
table of ``docs/reference/signals.md`` says the same.
"""

from __future__ import annotations

import typing as t

from blinker import Namespace

from .log import logger

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from blinker import NamedSignal
    from flask import Flask

    from .job import Job

_signals = Namespace()

#: A job was stored.
#: The process that enqueued it; the calling thread; ``job``.
job_enqueued = _signals.signal("job-enqueued")
#: A runner is about to call the task.
#: Runner; the executing thread, in the task's own app context; ``job``.
job_started = _signals.signal("job-started")
#: The job is done, and that is stored.
#: Runner; the announcing thread; ``job``, ``result``, ``duration``.
job_succeeded = _signals.signal("job-succeeded")
#: An attempt raised, and ``job_retried`` or ``job_died`` follows.
#: Runner; the announcing thread; ``job``, ``error``, ``attempt``.
job_failed = _signals.signal("job-failed")
#: The job waits for its next attempt.
#: Runner; the announcing thread; ``job``, ``error``, ``attempt``.
job_retried = _signals.signal("job-retried")
#: The job is dead and kept. Where nothing was raised, ``error`` is None.
#: Runner, or the process that cancelled a waiting job; the announcing thread, the housekeeping
#: thread where a recovery buried it, or the calling thread; ``job``, ``error``, ``attempt``.
job_died = _signals.signal("job-died")
#: The task raised ``Snooze``, and the job waits.
#: Runner; the announcing thread; ``job``.
job_snoozed = _signals.signal("job-snoozed")
#: A job whose runner stopped answering was put back, or is dead.
#: Runner that recovered it; the housekeeping thread; ``job``.
job_recovered = _signals.signal("job-recovered")
#: An attempt's outcome was dropped, because its claim no longer stood (Q3).
#: Runner that had the job; the announcing thread; ``job``.
job_lost = _signals.signal("job-lost")
#: A job was cancelled and is dead; ``job_died`` follows (W8).
#: The process that cancelled a waiting job, or the runner of a running one; the calling thread, or
#: the announcing thread; ``job``.
job_cancelled = _signals.signal("job-cancelled")
#: A job was deleted by an operator.
#: The process that deleted it; the calling thread; ``job``.
job_deleted = _signals.signal("job-deleted")
#: A running job's progress was stored. What it says last is stored with its outcome.
#: Runner; the announcing thread; ``job``.
job_progressed = _signals.signal("job-progressed")
#: A batch's last member ended, and its callback is enqueued.
#: Runner, or the process that sealed the batch; the announcing thread, or the calling thread;
#: ``batch``.
batch_finished = _signals.signal("batch-finished")
#: A schedule enqueued the job of one of its slots.
#: Runner; the scheduling thread; ``schedule``, ``job``.
schedule_fired = _signals.signal("schedule-fired")
#: A runner process is ready to claim.
#: Runner; the main thread; ``runner``.
worker_started = _signals.signal("worker-started")
#: A runner process claims no more, and finishes what it has.
#: Runner; the main thread; ``runner``.
worker_stopping = _signals.signal("worker-stopping")
#: Every outcome of a runner process is written.
#: Runner; the main thread; ``runner``.
worker_stopped = _signals.signal("worker-stopped")


def emit(signal: NamedSignal, app: Flask, **facts: t.Any) -> None:
    """Send a signal. A receiver that raises is logged, and the others still hear it (W12).

    An exit or an interrupt goes through: the calling thread is the application's own.
    """
    if signal.receivers:
        _send(signal, app, facts, Exception)


def emit_safely(signal: NamedSignal, app: Flask, **facts: t.Any) -> None:
    """Send a signal from a thread of a runner's, which nothing that a receiver raises may end."""
    if signal.receivers:
        _send(signal, app, facts, BaseException)


def emit_cancelled(app: Flask, job: Job, send: Callable[..., None] = emit_safely) -> None:
    """Send the signals of a job that was cancelled and is dead, without an attempt to tell of.

    :param send: Sends one of them.
    """
    send(job_cancelled, app, job=job)
    send(job_died, app, job=job, error=None, attempt=job.attempts)


def _send(
    signal: NamedSignal, app: Flask, facts: dict[str, t.Any], caught: type[BaseException]
) -> None:
    # Blinker's own ``send`` would let the first receiver's exception through to the queue.
    for receiver in signal.receivers_for(app):
        try:
            receiver(app, **facts)
        except caught:
            # A receiver is the user's code, and may raise anything.
            logger.exception("A receiver of %r failed.", signal.name)
