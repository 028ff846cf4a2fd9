"""The options of a task and of an enqueue: their types and their checks."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .backoff import Backoff
from .checks import (
    checked_bool,
    checked_choice,
    checked_duration,
    checked_int,
    checked_moment,
    checked_name,
    kind_of,
    shown,
)
from .durations import Duration, millis, to_duration
from .errors import ConfigError
from .job import OWN_KEYS
from .kept_lines import MOST_LINES, USUAL_LINES
from .refused_options import refuse_for_enqueue, refuse_for_task
from .tenant import as_tenant

if t.TYPE_CHECKING:
    from .limit import ConcurrencyOption
    from .rate import RateOption
    from .schedule import Misfire, Overlap
    from .store.connection import Session

LOWEST_PRIORITY, HIGHEST_PRIORITY = 100, -100
MOST_ATTEMPTS = 1_000_000
SHORTEST_TIMEOUT = timedelta(milliseconds=1)
LONGEST_KEY = 512
MOST_TAGS = 20

RECURRENCE = ("cron", "every", "timezone", "overlap", "misfire")
"""The options that make a task recur."""

OnConflict: t.TypeAlias = t.Literal["return", "raise", "replace"]
UniqueOption: t.TypeAlias = bool | str | tuple[str, ...] | Callable[..., str | None]


class TaskOptions(t.TypedDict, total=False):
    """What ``@jobs.task(...)`` takes."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    timeout: Duration
    unique: UniqueOption
    concurrency: ConcurrencyOption
    rate: RateOption
    expires: Duration
    store_result: bool
    transactional: bool
    keep_logs: bool | int
    redact: tuple[str, ...] | list[str]
    backoff: Backoff | Mapping[str, t.Any]
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    discard_on: type[BaseException] | tuple[type[BaseException], ...]
    cron: str
    every: Duration
    timezone: str
    overlap: Overlap
    misfire: Misfire


class EnqueueOptions(t.TypedDict, total=False):
    """What ``task.using(...)`` and ``jobs.enqueue(..., ...)`` take."""

    id: str
    wait: Duration
    at: datetime
    queue: str
    priority: int
    max_attempts: int
    timeout: Duration
    unique: str | None
    on_conflict: OnConflict
    expires: Duration | datetime
    tags: tuple[str, ...] | list[str]
    tenant: str | None
    session: Session | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Overrides:
    """The options of one enqueue, checked. None leaves it to the task, and then to the settings."""

    id: str | None = None
    wait: timedelta | None = None
    at: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    unique: str | None = None
    never_unique: bool = False
    on_conflict: OnConflict = "return"
    expires: timedelta | datetime | None = None
    tags: tuple[str, ...] | None = None
    tenant: str | None = None
    no_tenant: bool = False
    session: Session | None = None

    @classmethod
    def read(cls, given: Mapping[str, t.Any]) -> Overrides:
        """Check the options of an enqueue.

        :raises ConfigError: One is unknown, or has a bad value.
        """
        refuse_for_enqueue(given, EnqueueOptions.__annotations__)
        if given.get("wait") is not None and given.get("at") is not None:
            raise ConfigError("Both wait= and at= are given.", hint="Give one of them.")
        read = {
            name: _ENQUEUE[name](value, name) for name, value in given.items() if value is not None
        }
        return cls(
            **read,
            never_unique="unique" in given and given["unique"] is None,
            no_tenant="tenant" in given and given["tenant"] is None,
        )

    def merged(self, given: Mapping[str, t.Any]) -> Overrides:
        """Return these options with others over them, of which None takes an option back."""
        before = {name: getattr(self, name) for name in _ENQUEUE if getattr(self, name) is not None}
        if self.never_unique:
            before["unique"] = None
        if self.no_tenant:
            before["tenant"] = None
        # Both say when a job is due, and the later word counts.
        if given.get("wait") is not None or given.get("at") is not None:
            before.pop("wait", None)
            before.pop("at", None)
        return Overrides.read({**before, **given})


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskDefaults:
    """The options of a task, checked. None leaves it to the settings."""

    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    unique: UniqueOption = False
    concurrency: ConcurrencyOption | None = None
    rate: RateOption | None = None
    expires: timedelta | None = None
    store_result: bool = False
    transactional: bool = False
    keep_logs: int = 0
    redact: tuple[str, ...] = ()
    backoff: Mapping[str, t.Any] | Backoff | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    discard_on: tuple[type[BaseException], ...] = field(default=())
    recurrence: Mapping[str, t.Any] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Mapping[str, t.Any], where: str) -> TaskDefaults:
        """Check the options of a task.

        :param where: The task, for the messages.
        :raises ConfigError: One is unknown, Celery's, or has a bad value.
        """
        refuse_for_task(given, TaskOptions.__annotations__, where)
        used = {name: value for name, value in given.items() if value is not None}
        # The task reads these, as one schedule of its name.
        recurrence = {name: used.pop(name) for name in RECURRENCE if name in used}
        read = {name: _TASK[name](value, f"{name}= of {where}") for name, value in used.items()}
        return cls(**read, recurrence=recurrence)


def as_wait(value: object, where: str) -> timedelta:
    """Return how long a job waits before it is due."""
    if isinstance(value, datetime):
        raise ConfigError(f"{where} is a moment, and a duration is due.", hint="Say at=.")
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


def as_timeout(value: object, where: str) -> timedelta:
    """Return how long one attempt may take."""
    return checked_duration(value, where, SHORTEST_TIMEOUT)


def as_key(value: object, where: str) -> str:
    """Return a unique key that a user chose."""
    if not isinstance(value, str):
        raise ConfigError(
            f"{where} is {kind_of(value)}, and the key itself is due.",
            hint="Give text; what makes a key of the arguments is an option of the task.",
        )
    key = checked_name(value, where, LONGEST_KEY)
    if key.startswith(OWN_KEYS):
        raise ConfigError(
            f"{where} is {shown(key)}, and keys that begin so are the queue's own.",
            hint="Begin it with the task's name.",
        )
    return key


def as_tags(value: object, where: str) -> tuple[str, ...]:
    """Return what jobs are found by, in the order given and each once."""
    if not isinstance(value, list | tuple):
        raise ConfigError(
            f"{where} is {shown(value)}.", hint='Give a tuple of texts, such as ("order:42",).'
        )
    if len(value) > MOST_TAGS:
        raise ConfigError(f"{where} has {len(value)} tags.", hint=f"Give at most {MOST_TAGS}.")
    read = (checked_name(tag, f"{where}[{at}]") for at, tag in enumerate(value))
    return tuple(dict.fromkeys(read))


def as_session(value: t.Any, where: str) -> Session:
    """Return a session of the driver's, in whose transaction jobs are stored (X1)."""
    if not hasattr(value, "in_transaction") or not hasattr(value, "client"):
        raise ConfigError(
            f"{where} is {kind_of(value)}, and a session of pymongo is due.",
            hint="Take one of jobs.client.start_session().",
        )
    return t.cast("Session", value)


def _as_task_name(value: object, where: str) -> str:
    name = checked_name(value, where)
    # A unique key of such a task would be taken for one of the queue's own, and never be freed.
    if f"{name}:".startswith(OWN_KEYS):
        raise ConfigError(
            f"{where} is {shown(name)}, which is the queue's own.", hint="Choose another."
        )
    return name


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


def _as_lines(value: object, where: str) -> int:
    if isinstance(value, bool):
        return USUAL_LINES if value else 0
    return checked_int(value, where, 1, MOST_LINES)


def _as_redacted(value: object, where: str) -> tuple[str, ...]:
    # The task sees that it has them.
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(dict.fromkeys(value))
    raise ConfigError(
        f"{where} is {shown(value)}.", hint='Give a tuple of arguments, such as ("email",).'
    )


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
    "name": _as_task_name,
    "queue": as_queue,
    "priority": as_priority,
    "max_attempts": as_attempts,
    "timeout": as_timeout,
    "unique": _as_unique,
    # The task reads it: a key is checked against the arguments that the task takes.
    "concurrency": lambda value, _where: value,
    "rate": lambda value, _where: value,
    "expires": _as_lifetime,
    "store_result": checked_bool,
    "transactional": checked_bool,
    "keep_logs": _as_lines,
    "redact": _as_redacted,
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
    "timeout": as_timeout,
    "unique": as_key,
    "on_conflict": _as_conflict,
    "expires": _as_expiry,
    "tags": as_tags,
    "tenant": as_tenant,
    "session": as_session,
}
