"""Why a value cannot travel with a job, and what to pass in its place (Q8)."""

from __future__ import annotations

import dataclasses
import enum
import io
import types
import typing as t
from collections import deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from uuid import UUID

from werkzeug.datastructures import FileStorage
from werkzeug.local import LocalProxy

NO_SUCH_NUMBER = "JSON has no such number: pass None, or text."
LOAD_IT_INSIDE = "Pass its id, and load it inside the task."

#: What to pass in place of a subclass. It would come back as the class that it derives from, so it
#: is refused, and its owner says what is meant. A class stands before the ones it derives from.
SUBCLASSES: t.Final[tuple[tuple[type, str], ...]] = (
    (str, "str(value)"),
    (int, "int(value)"),
    (float, "float(value)"),
    (dict, "dict(value)"),
    (list, "list(value)"),
    (tuple, "tuple(value)"),
    (set, "set(value)"),
    (frozenset, "frozenset(value)"),
    (bytes, "bytes(value)"),
    (datetime, "datetime.fromisoformat(value.isoformat())"),
    (date, "date.fromisoformat(value.isoformat())"),
    (time, "time.fromisoformat(value.isoformat())"),
    (timedelta, "timedelta(value.days, value.seconds, value.microseconds)"),
    (Decimal, "Decimal(value)"),
    (UUID, "UUID(str(value))"),
)

FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    partial,
)
REPEATABLE: t.Final[tuple[type, ...]] = (
    range,
    deque,
    type(dict[str, int]().keys()),
    type(dict[str, int]().values()),
    type(dict[str, int]().items()),
)
#: What open files of every kind derive from; ``io.IOBase`` itself merely knows them by name.
FILE = io.IOBase.__mro__[1]


class Unfit(Exception):
    """A value cannot be written, or cannot be read. Whoever walks the values adds where it stands.

    :param what: The rest of a sentence that begins with the path to the value.
    :param hint: What to do about it.
    """

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def unfit(value: object) -> Unfit:
    """Return why a value that has no written form cannot travel.

    Only its type is looked at: a proxy or a model may run anything when one of its attributes is
    read.
    """
    kind = type(value)
    if kind is float:
        return Unfit(f"is {value!r}.", hint=NO_SUCH_NUMBER)
    if _is(kind, LocalProxy):
        # It has every special method there is, and would be taken for an iterator.
        return _instance(kind, LOAD_IT_INSIDE)
    if _is(kind, enum.Enum):
        return Unfit(f"is a member of the enum {kind.__name__}.", hint="Pass its .value.")
    for parent, cure in SUBCLASSES:
        if _is(kind, parent):
            return _subclass(kind, parent, cure)
    return (
        _callable(kind) or _readable(kind) or _convertible(kind) or _instance(kind, LOAD_IT_INSIDE)
    )


def _subclass(kind: type, parent: type, cure: str) -> Unfit:
    if parent is tuple and hasattr(kind, "_asdict"):
        cure = "value._asdict(), or tuple(value)"
    return Unfit(f"is {_a(kind.__name__)}, a kind of {parent.__name__}.", hint=f"Pass {cure}.")


def _callable(kind: type) -> Unfit | None:
    if _is(kind, type):
        return Unfit("is a class.", hint="Pass its name, and look it up inside the task.")
    if _is(kind, *FUNCTIONS):
        return Unfit("is a function.", hint="Pass its name, and look it up inside the task.")
    if _is(kind, types.CoroutineType):
        return Unfit("is a coroutine.", hint="Await it, and pass what it returns.")
    return None


def _readable(kind: type) -> Unfit | None:
    if _is(kind, FILE, FileStorage):
        hint = "Store it where the worker can read it, and pass its path or id."
        return Unfit("is a file.", hint=hint)
    if _is(kind, types.GeneratorType):
        return Unfit("is a generator.", hint="Pass list(value).")
    if _is(kind, *REPEATABLE) or hasattr(kind, "__next__"):
        return _instance(kind, "Pass list(value).")
    return None


def _convertible(kind: type) -> Unfit | None:
    if _is(kind, bytearray, memoryview):
        return _instance(kind, "Pass bytes(value).")
    if _is(kind, PurePath, Fraction, BaseException):
        return _instance(kind, "Pass str(value).")
    if _is(kind, complex):
        return _instance(kind, "Pass [value.real, value.imag].")
    if dataclasses.is_dataclass(kind):
        return _instance(kind, "Pass dataclasses.asdict(value).")
    if hasattr(kind, "tolist"):
        return _instance(kind, "Pass value.tolist().")
    return None


def _instance(kind: type, hint: str) -> Unfit:
    return Unfit(f"is {_a(kind.__name__)} instance.", hint=hint)


def _is(kind: type, *parents: type) -> bool:
    # ``issubclass`` may run code of the type's own, and of the parents'.
    return any(base is parent for base in kind.__mro__ for parent in parents)


def _a(name: str) -> str:
    return f"an {name}" if name[:1] in "AEIOaeio" else f"a {name}"
