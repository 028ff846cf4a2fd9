"""The options that there are not, each with what to say instead."""

from __future__ import annotations

import typing as t

from .checks import did_you_mean
from .errors import ConfigError

if t.TYPE_CHECKING:
    from collections.abc import Mapping


def refuse_for_task(given: Mapping[str, t.Any], known: Mapping[str, t.Any], where: str) -> None:
    """Refuse what ``@jobs.task`` does not take.

    :param where: The task, for the message.
    :raises ConfigError: An option is Celery's, of a later version, or unknown.
    """
    _refuse(given, known, where, CELERY_TASK, LATER_TASK)


def refuse_for_enqueue(given: Mapping[str, t.Any], known: Mapping[str, t.Any]) -> None:
    """Refuse what ``using()`` and ``jobs.enqueue()`` do not take.

    :raises ConfigError: An option is Celery's, of a later version, or unknown.
    """
    _refuse(given, known, "an enqueue", CELERY_ENQUEUE, LATER_ENQUEUE)


def refuse_for_batch(given: Mapping[str, t.Any], known: Mapping[str, t.Any]) -> None:
    """Refuse what ``jobs.batch()`` does not take.

    :raises ConfigError: An option is unknown.
    """
    _refuse(given, known, "jobs.batch()", {}, {})


def _refuse(
    given: Mapping[str, t.Any],
    known: Mapping[str, t.Any],
    where: str,
    celery: Mapping[str, str],
    later: Mapping[str, str],
) -> None:
    for name in given:
        if name in known:
            continue
        if name in later:
            raise ConfigError(
                f"The option {name}= of {where} comes with a later version.", hint=later[name]
            )
        if name in celery:
            raise ConfigError(
                f"There is no option {name}= of {where}; it is Celery's.", hint=celery[name]
            )
        raise ConfigError(f"There is no option {name}= of {where}.", hint=did_you_mean(name, known))


LATER_TASK: t.Final[Mapping[str, str]] = {
    "timeout": "Set HENRI_JOBS_TIMEOUT, which is every task's, or leave it out.",
    "store_result": "Have the task store what it makes.",
    "redact": "Pass an id, and load what is secret inside the task.",
    "keep_logs": "Send the log to a handler of your own.",
}
"""What a later version takes. It is no typing error, so nothing like it is suggested."""

LATER_ENQUEUE: t.Final[Mapping[str, str]] = {
    "timeout": "Set HENRI_JOBS_TIMEOUT, which is every task's, or leave it out.",
    "tags": "Pass what the job is about as an argument.",
}

CELERY_TASK: t.Final[Mapping[str, str]] = {
    "rate_limit": "Say rate=, which holds over all workers.",
    "bind": "Use current_job, which is the job in hand.",
    "max_retries": "Say max_attempts=, which counts the first attempt: max_retries=3 is"
    " max_attempts=4.",
    "default_retry_delay": 'Say backoff={"base": ..., "factor": 1}.',
    "autoretry_for": "Say retry_on=; without it every exception is retried.",
    "dont_autoretry_for": "Say discard_on=.",
    "retry_kwargs": "Say max_attempts= and backoff=.",
    "retry_backoff": 'Say backoff={"base": ..., "factor": ...}.',
    "retry_backoff_max": 'Say backoff={"max": ...}.',
    "retry_jitter": 'Say backoff={"jitter": ...}.',
    "throws": "Say discard_on=.",
    "acks_late": "Leave it out: a job is always acknowledged by its outcome.",
    "acks_on_failure_or_timeout": "Leave it out: a failure is retried, and then kept.",
    "reject_on_worker_lost": "Leave it out: a lost job is always put back.",
    "ignore_result": "Leave it out: a result is not stored unless it is asked for.",
    "serializer": "Leave it out: arguments are JSON.",
    "base": "Subclassing a task is not supported; wrap the function.",
    "shared": "Leave it out.",
    "track_started": "Leave it out: started_at is always written.",
    "routing_key": "Say queue=.",
    "exchange": "Say queue=.",
}

CELERY_ENQUEUE: t.Final[Mapping[str, str]] = {
    "countdown": "Say wait=, or use apply_async(countdown=).",
    "eta": "Say at=, or use apply_async(eta=).",
    "task_id": "Say id=.",
    "routing_key": "Say queue=.",
    "exchange": "Say queue=.",
    "link": "Enqueue the next job at the end of the task.",
    "link_error": "Connect to the signal job_died.",
    "ignore_result": "Leave it out: a result is not stored unless it is asked for.",
    "serializer": "Leave it out: arguments are JSON.",
    "retry": "Leave it out: an enqueue is acknowledged or raises.",
}
