"""How each setting is read: from what a config holds to the value that is kept, or refused.

A config may have been filled from the environment, so what is no text may arrive as text:
``"5"``, ``"true"``, ``"high,low"``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import typing as t
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from .backoff import Backoff
from .checks import (
    Mistakes,
    checked_bool,
    checked_choice,
    checked_duration,
    checked_int,
    checked_mapping,
    checked_name,
    checked_names,
    checked_text,
    kind_of,
    shown,
)
from .errors import ConfigError
from .queues import QueueSelection
from .schedule import Schedule
from .uri import checked_uri, database_in

Reader: t.TypeAlias = Callable[[object, str], object]
"""Takes a value and how the user calls it. Raises :class:`ConfigError`."""

EMBEDDED = "disk"
"""The URI that asks for a ``mongod`` of the extension's own."""

RESERVED_DATABASES = {"admin", "config", "local"}

MOST_THREADS = 256
"""Of one process."""

_DAY = timedelta(days=1)


def database_for(uri: str | None, app_name: str) -> str:
    """Return the database where none is set: the one in the URI, or one named after the app."""
    in_uri = database_in(uri) if uri else None
    # ``mongodb://.../admin`` is how many say where their user is kept.
    if in_uri and in_uri not in RESERVED_DATABASES:
        return _database(in_uri, "The database in HENRI_JOBS_URI")
    slug = re.sub("[^a-z0-9]+", "_", app_name.lower()).strip("_")[:63]
    return slug if slug and slug not in RESERVED_DATABASES else "henri_jobs"


def _uri(value: object, where: str) -> str:
    return EMBEDDED if value == EMBEDDED else checked_uri(value, where)


def _database(value: object, where: str) -> str:
    database = checked_name(value, where, 63)
    if set(database) & set('/\\. "$*<>:|?'):
        raise ConfigError(f"{where} is {shown(database)}.", hint="Give letters, digits, _ and -.")
    if database in RESERVED_DATABASES:
        raise ConfigError(
            f"{where} is {shown(database)}, which is the server's own.", hint="Give another name."
        )
    return database


def _collection(value: object, where: str) -> str:
    hint = "Give 1 to 100 letters, digits and underscores."
    collection = checked_text(value, where, hint=hint)
    if not re.fullmatch("[A-Za-z0-9_]{1,100}", collection):
        raise ConfigError(f"{where} is {shown(collection)}.", hint=hint)
    return collection


def _imports(value: object, where: str) -> tuple[str, ...]:
    if value in ("", [], ()):
        return ()
    modules = _names(value, where)
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ConfigError(
                f"{where} names {shown(module)}, which is no module.",
                hint='Give names such as "shop.tasks", as import takes them.',
            )
    return modules


def _names(value: object, where: str) -> tuple[str, ...]:
    parsed = parsed_text(value)
    # A queue may be called "5", which parses as well.
    return checked_names(parsed if isinstance(parsed, list) else value, where)


def _queues(value: object, where: str) -> QueueSelection:
    parsed = parsed_text(value)
    # A queue may be called "5", which parses as well.
    return QueueSelection.read(parsed if isinstance(parsed, list | dict) else value, where)


def _integer(low: int, high: int) -> Reader:
    return lambda value, where: checked_int(parsed_text(value), where, low, high)


def _duration(low: timedelta = timedelta(0), high: timedelta | None = None) -> Reader:
    return lambda value, where: checked_duration(parsed_text(value), where, low, high)


def _switch(value: object, where: str) -> bool:
    # ``FLASK_HENRI_JOBS_INLINE=1`` is a number by the time it is here, and ``=True`` is text.
    match value.lower() if isinstance(value, str) else value:
        case "true" | "1" | 1:
            return True
        case "false" | "0" | 0:
            return False
    return checked_bool(value, where)


def _choice(*choices: str) -> Reader:
    return lambda value, where: checked_choice(value, where, choices)


def _backoff(value: object, where: str) -> Backoff:
    return Backoff.read(parsed_text(value), where)


def _tenant(value: object, where: str) -> Callable[[], str | None]:
    if not callable(value):
        raise ConfigError(
            f"{where} is {kind_of(value)}, and a function is due.",
            hint="Give one that returns the tenant of the current request, or None.",
        )
    return t.cast("Callable[[], str | None]", value)


def _path(value: object, where: str) -> Path:
    return Path(checked_name(os.fspath(value) if isinstance(value, Path) else value, where, 4096))


def _schedules(value: object, where: str) -> Mapping[str, Schedule]:
    mistakes = Mistakes()
    schedules: dict[str, Schedule] = {}
    for name, entry in checked_mapping(parsed_text(value), where).items():
        with mistakes.noted():
            checked_name(name, f"A name in {where}")
            schedules[name] = _schedule(entry, f"{where}[{name!r}]", name)
    mistakes.raise_any()
    return MappingProxyType(schedules)


def _schedule(value: object, where: str, name: str) -> Schedule:
    entry = checked_mapping(parsed_text(value), where, ["cron", "every", *_SCHEDULE_READERS])
    if ("cron" in entry) == ("every" in entry):
        found = "both cron and every" if "cron" in entry else "neither cron nor every"
        raise ConfigError(f"{where} has {found}.", hint="Give one of the two.")
    for key, reader in _SCHEDULE_READERS.items():
        if key in entry:
            entry[key] = reader(entry[key], f"{where}[{key!r}]")
    return Schedule.from_config(name, entry)


def parsed_text(value: object) -> object:
    """Return what text stands for, read as ``app.config.from_prefixed_env`` reads it."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


def _or_none(reader: Reader) -> Reader:
    return lambda value, where: None if value is None else reader(value, where)


_PRIORITY = _integer(-100, 100)

_SCHEDULE_READERS: t.Final[Mapping[str, Reader]] = {
    "task": checked_name,
    "args": _or_none(checked_mapping),
    "queue": checked_name,
    "priority": _PRIORITY,
    "timezone": checked_name,
    "overlap": _choice("allow", "skip"),
    "misfire": _choice("one", "skip"),
}

READERS: t.Final[Mapping[str, Reader]] = {
    "uri": _or_none(_uri),
    "database": _or_none(_database),
    "collection": _collection,
    "imports": _imports,
    "default_queue": checked_name,
    "queues": _or_none(_queues),
    "threads": _integer(1, MOST_THREADS),
    "processes": _integer(1, 256),
    "grace": _duration(high=_DAY),
    "max_attempts": _integer(1, 1_000_000),
    "priority": _PRIORITY,
    "timeout": _or_none(_duration(low=timedelta(milliseconds=1))),
    "backoff": _backoff,
    "poll_interval": _duration(low=timedelta(milliseconds=10), high=timedelta(minutes=5)),
    "stuck_after": _duration(low=timedelta(seconds=1), high=7 * _DAY),
    "keep_done": _or_none(_duration()),
    "keep_dead": _or_none(_duration()),
    "enqueue_timeout": _duration(low=timedelta(milliseconds=10), high=timedelta(minutes=10)),
    "max_args_bytes": _integer(64, 8 * 1024 * 1024),
    "write_concern": _choice("majority", "journaled", "acknowledged"),
    "tenant": _or_none(_tenant),
    "inline": _switch,
    "install": _switch,
    "mongod": _or_none(_path),
    "schedules": _schedules,
}
"""A reader for each setting, by its name in lower case without the prefix."""
