"""From values to JSON text and back, so that what comes back is what went in (Q8).

Plain JSON stays plain JSON, as henri reads and writes it. Everything else that can travel is a
tagged object (``tags.py``), and what cannot is refused with its path (``unfit.py``).
"""

from __future__ import annotations

import json
import typing as t
from math import isfinite

from .errors import InvalidArguments
from .tags import TAG, tag_named, tag_of, unreadable
from .unfit import LOAD_IT_INSIDE, NO_SUCH_NUMBER, Unfit, unfit

MOST_BYTES = 524_288
MOST_LEVELS = 100

#: Beyond these JavaScript rounds, and the number that a henri runner reads is another one.
MOST_INTEGER = 2**53 - 1

_LONGEST_PATH = 120

#: A key of a dict, an index of a list, or None: the elements of a set have no place.
Step: t.TypeAlias = str | int | None


def encode(value: object, where: str = "args", most_bytes: int = MOST_BYTES) -> str:
    """Return the JSON text from which :func:`decode` makes an equal value of the same types (Q8).

    :param where: What the value is called in messages: the path to what is refused begins so.
    :param most_bytes: The text has at most this many bytes in UTF-8.
    :raises InvalidArguments: A value cannot travel, or there is too much of it.
    """
    plain = value if _is_flat(value) else _Writer(where, most_bytes).plain(value)
    text = _to_json(plain)
    size = len(text) if text.isascii() else len(text.encode())
    if size > most_bytes:
        raise _too_large(where, str(size), most_bytes)
    return text


def decode(text: object, where: str = "args") -> t.Any:
    """Return the value that was encoded; None where nothing is stored.

    The text may have been written by anybody. Reading it runs no code that it names.

    :raises InvalidArguments: The text is not JSON, or a tag in it cannot be read.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise _not_json(where, f"it is stored as {type(text).__name__}")
    try:
        plain = _from_json(text)
    except RecursionError:
        raise _not_json(where, "it is nested too deeply") from None
    except ValueError as error:
        raise _not_json(where, str(error)) from None
    return _Reader(where).value(plain)


def _is_flat(value: object) -> bool:
    """Say whether a value is what most jobs carry: a dict of text and numbers, as it stands."""
    if type(value) is not dict:
        return False
    for key, item in value.items():
        if type(key) is not str or key == TAG or not key.isascii():
            return False
        kind = type(item)
        if kind is int:
            fits = -MOST_INTEGER <= item <= MOST_INTEGER
        elif kind is str:
            fits = item.isascii()
        else:
            fits = item is None or kind is bool or (kind is float and isfinite(item))
        if not fits:
            return False
    return True


class _Walk:
    """Where a walk through nested values stands."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._steps: list[Step] = []
        self._containers: list[object] = []

    def _inside(
        self, container: object, items: t.Iterable[tuple[Step, t.Any]]
    ) -> t.Iterator[tuple[t.Any, t.Any]]:
        """Yield what a container holds, while the walk stands at it."""
        self._refuse_cycle(container)
        if len(self._steps) == MOST_LEVELS:
            raise Unfit(
                f"is nested more than {MOST_LEVELS} levels deep.",
                hint="Store it, and pass its id.",
            )
        self._steps.append(None)
        self._containers.append(container)
        for step, item in items:
            self._steps[-1] = step
            yield step, item
        # Not in a ``finally``: after a refusal the steps are the path to what was refused.
        self._steps.pop()
        self._containers.pop()

    def _refuse_cycle(self, container: object) -> None:
        for level, outer in enumerate(self._containers):
            if outer is container:
                start = self._path(self._steps[:level])
                raise Unfit(f"leads back to {start}.", hint=LOAD_IT_INSIDE)

    def _refusal(self, unfit: Unfit) -> InvalidArguments:
        return InvalidArguments(f"{self._path(self._steps)} {unfit.what}", hint=unfit.hint)

    def _path(self, steps: list[Step]) -> str:
        path = self._where + "".join(map(_shown, steps))
        return path if len(path) <= _LONGEST_PATH else f"{path[:80]}...{path[-37:]}"


class _Writer(_Walk):
    """Turns values into plain JSON values."""

    def __init__(self, where: str, most_bytes: int) -> None:
        super().__init__(where)
        self._most_bytes = most_bytes
        self._spent = 0

    def plain(self, value: object) -> object:
        """Return the plain JSON value that stands for a value.

        :raises InvalidArguments: There is none.
        """
        try:
            return self._plain(value)
        except Unfit as unfit:
            raise self._refusal(unfit) from None

    def _plain(self, value: t.Any) -> object:
        self._spend(1)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return self._text(value)
        if (kind is int and abs(value) <= MOST_INTEGER) or (kind is float and isfinite(value)):
            return value
        if kind is list:
            return self._items(value, enumerate(value))
        if kind is dict:
            return self._dict(value)
        return self._tagged(value, kind)

    def _spend(self, characters: int) -> None:
        # Counted on the way: a few lists that hold each other ten times over are small in memory
        # and without end as text.
        self._spent += characters
        if self._spent > self._most_bytes:
            raise _too_large(self._where, f"at least {self._spent}", self._most_bytes)

    def _text(self, value: str) -> str:
        self._spend(len(value))
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Unfit(
                    f"holds a lone surrogate, {value[error.start]!r}.",
                    hint='It is not text: pass value.encode("utf-8", "surrogatepass").',
                ) from None
        return value

    def _items(self, container: object, items: t.Iterable[tuple[Step, t.Any]]) -> list[object]:
        return [self._plain(item) for _, item in self._inside(container, items)]

    def _dict(self, value: dict[t.Any, t.Any]) -> dict[str, object]:
        for key in value:
            if type(key) is not str:
                raise Unfit(
                    f"has a key of the type {type(key).__name__}.",
                    hint="Keys are text: pass str(key), or a list of pairs.",
                )
        entries = {
            self._text(key): self._plain(item) for key, item in self._inside(value, value.items())
        }
        return {TAG: "dict", "value": entries} if TAG in entries else entries

    def _tagged(self, value: t.Any, kind: type) -> dict[str, object]:
        if kind is tuple:
            return {TAG: "tuple", "value": self._items(value, enumerate(value))}
        if kind is set or kind is frozenset:
            elements = self._items(value, ((None, element) for element in value))
            # Sorted as text, so that equal sets are equal text in every process.
            return {TAG: kind.__name__, "value": sorted(elements, key=_to_json)}
        tag = tag_of(kind)
        if tag is None or kind is float:
            raise unfit(value)
        fields = tag.write(value)
        self._spend(len(fields["value"]))
        return {TAG: tag.name, **fields}


class _Reader(_Walk):
    """Turns plain JSON values, which may have been written by anybody, into values."""

    def value(self, plain: object) -> object:
        """Return the value that a plain JSON value stands for.

        :raises InvalidArguments: There is none.
        """
        try:
            return self._value(plain)
        except Unfit as unfit:
            raise self._refusal(unfit) from None

    def _value(self, plain: t.Any) -> object:
        kind = type(plain)
        if kind is list:
            return self._items(plain)
        if kind is dict:
            return self._untagged(plain) if TAG in plain else self._dict(plain)
        if kind is float and not isfinite(plain):
            raise Unfit(f"is {plain!r}.", hint=NO_SUCH_NUMBER)
        return plain

    def _items(self, plain: list[t.Any]) -> list[object]:
        return [self._value(item) for _, item in self._inside(plain, enumerate(plain))]

    def _dict(self, plain: dict[str, t.Any]) -> dict[str, object]:
        return {key: self._value(item) for key, item in self._inside(plain, plain.items())}

    def _untagged(self, tagged: dict[str, t.Any]) -> object:
        match tagged:
            case {"$henri": "dict", "value": dict(entries)} if len(tagged) == 2:
                return self._dict(entries)
            case {"$henri": "tuple", "value": list(items)} if len(tagged) == 2:
                return tuple(self._items(items))
            case {"$henri": "set" | "frozenset" as name, "value": list(items)} if len(tagged) == 2:
                return self._set(name, items)
        fields = dict(tagged)
        return tag_named(fields.pop(TAG)).value_of(fields)

    def _set(self, name: str, items: list[t.Any]) -> object:
        elements = self._items(items)
        try:
            return set(elements) if name == "set" else frozenset(elements)
        except TypeError:
            raise unreadable(name) from None


def _shown(step: Step) -> str:
    match step:
        case None:
            return "{*}"
        case str() if step.isidentifier():
            return f".{step}"
        case str():
            return f"[{step[:40]!r}]"
        case _:
            return f"[{step}]"


def _too_large(where: str, size: str, most_bytes: int) -> InvalidArguments:
    return InvalidArguments(
        f"{where} takes {size} bytes as JSON, and at most {most_bytes} are allowed.",
        hint="Store it, and pass its id.",
    )


def _not_json(where: str, reason: str) -> InvalidArguments:
    return InvalidArguments(
        f"{where} is not JSON: {reason}.",
        hint="Whoever enqueued the job must store its arguments as JSON text.",
    )


def _refuse_constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is no JSON number")


_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_from_json = json.JSONDecoder(parse_constant=_refuse_constant).decode
