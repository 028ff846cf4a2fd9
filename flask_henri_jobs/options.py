"""The options of a task and of an enqueue: their types, their checks, and what is refused."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .backoff import Backoff
from .checks import checked_choice, checked_int, checked_moment, checked_name, did_you_mean, shown
from .durations import Duration, millis, to_duration
from .errors import ConfigError
from .job import OWN_KEYS

if t.TYPE_CHECKING:
    from .limit import ConcurrencyOption

LOWEST_PRIORITY, HIGHEST_PRIORITY = 100, -100
MOST_ATTEMPTS = 1_000_000
LONGEST_KEY = 512

OnConflict: t.TypeAlias = t.Literal["return", "raise", "replace"]
UniqueOption: t.TypeAlias = bool | str | tuple[str, ...] | Callable[..., str | None]


class TaskOptions(t.TypedDict, total=False):
    """What ``@jobs.task(...)`` takes."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    unique: UniqueOption
    concurrency: ConcurrencyOption
    expires: Duration
    backoff: Backoff | Mapping[str, t.Any]
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    discard_on: type[BaseException] | tuple[type[BaseException], ...]


class EnqueueOptions(t.TypedDict, total=False):
    """What ``task.using(...)`` and ``jobs.enqueue(..., ...)`` take."""

    id: str
    wait: Duration
    at: datetime
    queue: str
    priority: int
    max_attempts: int
    unique: str | None
    on_conflict: OnConflict
    expires: Duration | datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Overrides:
    """The options of one enqueue, checked. None leaves it to the task, and then to the settings."""

    id: str | None = None
    wait: timedelta | None = None
    at: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    unique: str | None = None
    never_unique: bool = False
    on_conflict: OnConflict = "return"
    expires: timedelta | datetime | None = None

    @classmethod
    def read(cls, given: Mapping[str, t.Any]) -> Overrides:
        """Check the options of an enqueue.

        :raises ConfigError: One is unknown, of a later version, or has a bad value.
        """
        refuse_unknown(given, EnqueueOptions.__annotations__, "using()", CELERY_ENQUEUE)
        if given.get("wait") is not None and given.get("at") is not None:
            raise ConfigError("Both wait= and at= are given.", hint="Give one of them.")
        read = {
            name: _ENQUEUE[name](value, name) for name, value in given.items() if value is not None
        }
        return cls(**read, never_unique="unique" in given and given["unique"] is None)

    def merged(self, given: Mapping[str, t.Any]) -> Overrides:
        """Return these options with others over them."""
        before = {name: getattr(self, name) for name in _ENQUEUE if getattr(self, name) is not None}
        return Overrides.read({**before, **given})


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskDefaults:
    """The options of a task, checked. None leaves it to the settings."""

    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    unique: UniqueOption = False
    concurrency: ConcurrencyOption | None = None
    expires: timedelta | None = None
    backoff: Mapping[str, t.Any] | Backoff | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    discard_on: tuple[type[BaseException], ...] = field(default=())

    @classmethod
    def read(cls, given: Mapping[str, t.Any], where: str) -> TaskDefaults:
        """Check the options of a task.

        :param where: The task, for the messages.
        :raises ConfigError: One is unknown, of a later version, Celery's, or has a bad value.
        """
        refuse_unknown(given, TaskOptions.__annotations__, where, CELERY_TASK)
        return cls(
            **{
                name: _TASK[name](value, f"{name}= of {where}")
                for name, value in given.items()
                if value is not None
            }
        )


def refuse_unknown(
    given: Mapping[str, t.Any], known: Mapping[str, t.Any], where: str, celery: Mapping[str, str]
) -> None:
    """Refuse options that are not there, each with what to say instead."""
    for name in given:
        if name in known:
            continue
        if name in celery:
            raise ConfigError(
                f"{where} has no option {name}=, which is Celery's.", hint=celery[name]
            )
        raise ConfigError(f"{where} has no option {name}=.", hint=did_you_mean(name, known))


def as_wait(value: object, where: str) -> timedelta:
    """Return how long a job waits before it is due."""
    return to_duration(value, where)


def as_moment(value: object, where: str) -> datetime:
    """Return an aware datetime."""
    return checked_moment(value, where)


def as_queue(value: object, where: str) -> str:
    """Return the name of a queue."""
    return checked_name(value, where)


def as_priority(value: object, where: str) -> int:
    """Return a priority; the lower, the sooner."""
    return checked_int(value, where, HIGHEST_PRIORITY, LOWEST_PRIORITY)


def as_attempts(value: object, where: str) -> int:
    """Return how many attempts a job has."""
    return checked_int(value, where, 1, MOST_ATTEMPTS)


def as_key(value: object, where: str) -> str:
    """Return a unique key that a user chose."""
    key = checked_name(value, where, LONGEST_KEY)
    if key.startswith(OWN_KEYS):
        raise ConfigError(
            f"{where} is {shown(key)}, and keys that begin with {key.split(':')[0]!r}: are the"
            " queue's own.",
            hint="Begin it with the task's name.",
        )
    return key


def _as_unique(value: object, where: str) -> UniqueOption:
    if isinstance(value, bool | str) or callable(value):
        return t.cast(UniqueOption, value)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise ConfigError(
        f"{where} is {shown(value)}.",
        hint="Give True, an argument's name, a tuple of names, or a callable.",
    )


def _as_expiry(value: object, where: str) -> timedelta | datetime:
    return as_moment(value, where) if isinstance(value, datetime) else _as_lifetime(value, where)


def _as_lifetime(value: object, where: str) -> timedelta:
    lifetime = to_duration(value, where)
    if not millis(lifetime):
        raise ConfigError(f"{where} is zero.", hint="Give how long the job stays worth doing.")
    return lifetime


def _as_backoff(value: object, where: str) -> Mapping[str, t.Any] | Backoff:
    # Only checked here: what it leaves out comes from the settings, which no task has seen yet.
    Backoff.read(value, where)
    return t.cast("Mapping[str, t.Any] | Backoff", value)


def _as_errors(value: object, where: str) -> tuple[type[BaseException], ...]:
    classes = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in classes):
        raise ConfigError(
            f"{where} is {shown(value)}.", hint="Give an exception class, or a tuple of them."
        )
    return t.cast("tuple[type[BaseException], ...]", classes)


def _as_conflict(value: object, where: str) -> str:
    return checked_choice(value, where, t.get_args(OnConflict))


_TASK: dict[str, Callable[[t.Any, str], t.Any]] = {
    "name": checked_name,
    "queue": as_queue,
    "priority": as_priority,
    "max_attempts": as_attempts,
    "unique": _as_unique,
    # The task reads it: a key is checked against the arguments that the task takes.
    "concurrency": lambda value, _where: value,
    "expires": _as_lifetime,
    "backoff": _as_backoff,
    "retry_on": _as_errors,
    "discard_on": _as_errors,
}

_ENQUEUE: dict[str, Callable[[t.Any, str], t.Any]] = {
    "id": checked_name,
    "wait": as_wait,
    "at": as_moment,
    "queue": as_queue,
    "priority": as_priority,
    "max_attempts": as_attempts,
    "unique": as_key,
    "on_conflict": _as_conflict,
    "expires": _as_expiry,
}

CELERY_TASK = {
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

CELERY_ENQUEUE = {
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
