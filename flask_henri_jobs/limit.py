"""What ``concurrency=`` means: how many of a task run at once, counted by which key (L1)."""

from __future__ import annotations

import hashlib
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .checks import checked_int, checked_mapping, checked_name, shown
from .codec import encode
from .errors import ConfigError, InvalidArguments

MOST_AT_ONCE = 10_000
LONGEST_BUCKET = 512

Key: t.TypeAlias = str | tuple[str, ...] | Callable[..., object]
ConcurrencyOption: t.TypeAlias = int | Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on how many jobs of a group run at once.

    :param group: Whose jobs are counted together; tasks of one group agree on the limit.
    :param most: How many of one bucket run at once.
    :param key: What divides the group into buckets: an argument's name, a tuple of names, or a
        callable that is given the arguments. Without one the group is a single bucket.
    """

    group: str
    most: int
    key: Key | None = None

    @classmethod
    def read(cls, option: object, task: str, parameters: t.Collection[str]) -> Limit:
        """Return the limit that a task's ``concurrency=`` stands for.

        :param parameters: The names of the task's arguments.
        :raises ConfigError: It is no such thing, or names an argument that there is not.
        """
        where = f"concurrency= of the task {task}"
        if not isinstance(option, Mapping):
            return cls(task, _checked_most(option, where))
        group, most, key = read_group(option, where, task, parameters, 'Give {"limit": 3, ...}.')
        return cls(group, _checked_most(most, f"{where}['limit']"), key)

    def bucket(self, args: Mapping[str, t.Any], defaults: Mapping[str, t.Any]) -> str:
        """Return what a job with these arguments is counted by: ``group`` or ``group:value``.

        :param defaults: What the arguments are that are not given.
        :raises InvalidArguments: The callable returned neither text nor a number.
        """
        return bucket_of(self.group, self.key, args, defaults)


def read_group(
    option: Mapping[str, t.Any], where: str, task: str, parameters: t.Collection[str], hint: str
) -> tuple[str, object, Key | None]:
    """Return whose jobs are counted together, the ``limit`` as it was given, and the key.

    :param where: What was given, for errors.
    :param hint: What to give where there is no limit.
    :raises ConfigError: An entry is missing, unknown or no such thing.
    """
    given = checked_mapping(option, where, ["limit", "key", "group"])
    if "limit" not in given:
        raise ConfigError(f"{where} has no limit.", hint=hint)
    group = checked_name(given.get("group", task), f"{where}['group']", 256)
    return group, given["limit"], _checked_key(given.get("key"), f"{where}['key']", parameters)


def bucket_of(
    group: str, key: Key | None, args: Mapping[str, t.Any], defaults: Mapping[str, t.Any]
) -> str:
    """Return ``group`` or ``group:value``, the value being what the key says of the arguments.

    :param defaults: What the arguments are that are not given.
    :raises InvalidArguments: The callable returned neither text nor a number.
    """
    match key:
        case None:
            return group
        case str() as name:
            value = _text(args[name] if name in args else defaults[name], group)
        case tuple() as names:
            value = ":".join(
                _text(args[name] if name in args else defaults[name], group) for name in names
            )
        case make:
            made = make(**args)
            if made is None:
                return group
            value = _text(made, group)
    return _short(f"{group}:{value}", group)


def names_in(key: Key | None) -> tuple[str, ...]:
    """Return the arguments that a key is made of, where it names any."""
    match key:
        case str() as name:
            return (name,)
        case tuple() as names:
            return names
        case _:
            return ()


def slot_id(bucket: str, slot: int) -> str:
    """Return the id of one permit. The slot stands last, whatever the bucket holds."""
    return f"{bucket}#{slot}"


def _checked_most(value: object, where: str) -> int:
    return checked_int(value, where, 1, MOST_AT_ONCE)


def _checked_key(key: object, where: str, parameters: t.Collection[str]) -> Key | None:
    """Return what divides a group into buckets.

    :raises ConfigError: It is no such thing, or names an argument that there is not.
    """
    if key is None or callable(key):
        return key
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names:
        raise ConfigError(
            f"{where} is {shown(key)}.",
            hint="Give an argument's name, a tuple of names, or a callable.",
        )
    for name in names:
        if name not in parameters:
            raise ConfigError(
                f"{where} names {shown(name)}, which is not one of the task's arguments.",
                hint=f"It has {', '.join(parameters) or 'none'}.",
            )
    return key if isinstance(key, str) else tuple(names)


def _text(value: object, group: str) -> str:
    if isinstance(value, str):
        return value
    if callable(value):
        raise InvalidArguments(f"The key of the limit {group} is {shown(value)}.")
    return encode(value, f"the key of the limit {group}")


def _short(bucket: str, group: str) -> str:
    if len(bucket.encode()) <= LONGEST_BUCKET:
        return bucket
    # A digest tells two buckets apart as well as the text does.
    return f"{group}:sha256:{hashlib.sha256(bucket.encode()).hexdigest()}"
