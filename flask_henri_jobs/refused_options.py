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
    :raises ConfigError: An option is Celery's, or unknown.
    """
    _refuse(given, known, where, CELERY_TASK)


def refuse_for_enqueue(given: Mapping[str, t.Any], known: Mapping[str, t.Any]) -> None:
    """Refuse what ``using()`` and ``jobs.enqueue()`` do not take.

    :raises ConfigError: An option is Celery's, or unknown.
    """
    _refuse(given, known, "an enqueue", CELERY_ENQUEUE)


def refuse_for_batch(given: Mapping[str, t.Any], known: Mapping[str, t.Any]) -> None:
    """Refuse what ``jobs.batch()`` does not take.

    :raises ConfigError: An option is unknown.
    """
    _refuse(given, known, "jobs.batch()", {})


def _refuse(
    given: Mapping[str, t.Any],
    known: Mapping[str, t.Any],
    where: str,
    celery: Mapping[str, str],
) -> None:
    for name in given:
        if name in known:
            continue
        if name in celery:
            raise ConfigError(
                f"There is no option {name}= of {where}; it is Celery's.", hint=celery[name]
            )
        raise ConfigError(f"There is no option {name}= of {where}.", hint=did_you_mean(name, known))


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
    "time_limit": "Say timeout=.",
    "soft_time_limit": "Say timeout=.",
    "acks_late": "Leave it out: a job is always acknowledged by its outcome.",
    "acks_on_failure_or_timeout": "Leave it out: a failure is retried, and then kept.",
    **dict.fromkeys(
        ("acks_on_failure", "acks_on_timeout"), "Leave it out: a failure is retried, and then kept."
    ),
    **dict.fromkeys(
        ("reject_on_worker_lost", "retry_on_worker_lost"),
        "Leave it out: a lost job is always put back.",
    ),
    "ignore_result": "Leave it out: a result is stored only with store_result=True.",
    "store_errors_even_if_ignored": "Leave it out: a job keeps its error and its history.",
    **dict.fromkeys(
        ("serializer", "compression", "typing", "pydantic"),
        "Leave it out: arguments are JSON, and checked against the function.",
    ),
    **dict.fromkeys(
        ("backend", "resultrepr_maxsize", "trail", "send_events"),
        "Leave it out: all that is known of a job is in the database.",
    ),
    **dict.fromkeys(
        ("base", "abstract", "Strategy", "Request", "request"),
        "Wrap the function: a task is its function, and current_job the job in hand.",
    ),
    **dict.fromkeys(
        ("before_start", "on_success", "on_retry", "on_failure", "after_return"),
        "Connect to the signals job_started, job_succeeded, job_retried and job_died.",
    ),
    **dict.fromkeys(("shared", "on_replace", "on_bound"), "Leave it out."),
    "track_started": "Leave it out: started_at is always written.",
    **dict.fromkeys(("routing_key", "exchange"), "Say queue=."),
}

CELERY_ENQUEUE: t.Final[Mapping[str, str]] = {
    "countdown": "Say wait=, or use apply_async(countdown=).",
    "eta": "Say at=, or use apply_async(eta=).",
    "task_id": "Say id=.",
    "routing_key": "Say queue=.",
    "exchange": "Say queue=.",
    "time_limit": "Say timeout=.",
    "soft_time_limit": "Say timeout=.",
    "link": "Enqueue the next job at the end of the task.",
    "link_error": "Connect to the signal job_died.",
    "ignore_result": "Leave it out: a result is stored only with store_result=True.",
    **dict.fromkeys(("serializer", "compression"), "Leave it out: arguments are JSON."),
    **dict.fromkeys(
        ("retry", "retry_policy"), "Leave it out: an enqueue is acknowledged or raises."
    ),
    **dict.fromkeys(
        ("group_id", "chord", "chain", "add_to_parent", "parent_id", "root_id"),
        "Make a batch: with jobs.batch(callback=...) as batch.",
    ),
    **dict.fromkeys(
        ("producer", "publisher", "connection", "router", "reply_to"),
        "Leave it out: a job goes to the database of the application.",
    ),
    **dict.fromkeys(("shadow", "stamps", "headers"), 'Say tags=, such as tags=("order:42",).'),
}
