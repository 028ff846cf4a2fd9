"""The values that JSON has no form for, and the form in which they travel (Q8).

Each is an object with the key ``$henri``, which names the kind, and the key ``value``::

    {"$henri": "date", "value": "2026-01-31"}
    {"$henri": "datetime", "value": "2026-01-31T09:00:00+01:00", "zone": "Europe/Berlin"}

Reading is more tolerant than writing: what another program writes as
``{"$henri": "datetime", "value": "2026-01-31T08:00:00.000Z"}`` is a datetime too.
"""

from __future__ import annotations

import importlib
import re
import typing as t
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from .unfit import NO_SUCH_NUMBER, Unfit

TAG = "$henri"

#: The exponents of Python's own decimal context, and the digits of its own integers.
MOST_EXPONENT = 999_999
MOST_DIGITS = 4300

Fields: t.TypeAlias = dict[str, t.Any]


@dataclass(frozen=True, slots=True)
class Tag:
    """A kind of value, and how it is written and read.

    :param name: What ``$henri`` says.
    :param kind: The exact type that is written so.
    :param write: Returns the fields beside ``$henri``; raises :class:`Unfit`.
    :param read: Takes the field ``value``, and the others by keyword; returns the value.
    :param payload: The type of the field ``value``.
    """

    name: str
    kind: type
    write: t.Callable[[t.Any], Fields]
    read: t.Callable[..., object]
    payload: type = str

    def value_of(self, fields: Fields) -> object:
        """Return the value that fields stand for, which may have been written by anybody.

        :raises Unfit: They stand for none.
        """
        payload = fields.pop("value", None)
        if type(payload) is not self.payload:
            raise unreadable(self.name)
        try:
            return self.read(payload, **fields)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise unreadable(self.name) from None


def tag_of(kind: type) -> Tag | None:
    """Return the tag under which a type travels."""
    # By identity: looking a type up by its hash runs code of a metaclass.
    for tag in TAGS:
        if tag.kind is kind:
            return tag
    if kind.__module__ == "bson.objectid" and kind.__name__ == "ObjectId":
        return OBJECT_ID
    return None


def tag_named(name: object) -> Tag:
    """Return the tag of a name.

    :raises Unfit: No value is tagged so.
    """
    for tag in (*TAGS, OBJECT_ID):
        if tag.name == name:
            return tag
    raise unreadable(name)


def unreadable(name: object) -> Unfit:
    """Return why a tagged object is refused: its tag is unknown, or its fields are not that."""
    tag = f"the tag {name[:40]!r}" if isinstance(name, str) else "a tag that is not text"
    return Unfit(
        f"carries {tag}, and cannot be read.",
        hint="A newer version of flask_henri_jobs may have written it, or another program.",
    )


def _write_datetime(value: datetime) -> Fields:
    if value.utcoffset() is None:
        raise Unfit(
            f"is a naive datetime, {value}.",
            hint="Say where it holds: datetime.now(UTC), or value.replace(tzinfo=...).",
        )
    fields = _iso(value)
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key is not None:
        _zone(value.tzinfo.key)
        fields["zone"] = value.tzinfo.key
    return fields


def _read_datetime(value: str, zone: object = None, fold: int = 0) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("naive")
    if zone is None:
        return moment.replace(fold=fold)
    local = moment.replace(tzinfo=_zone(zone), fold=fold)
    # The rules of the zone may have changed since it was written: the instant is what was meant.
    return local if local.utcoffset() == moment.utcoffset() else moment.astimezone(local.tzinfo)


def _zone(name: object) -> ZoneInfo:
    if not isinstance(name, str):
        raise TypeError(name)
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise Unfit(
            f"is in the time zone {name[:40]!r}, which this host does not know.",
            hint="Install the package tzdata, or pass the moment in UTC.",
        ) from None


def _write_time(value: time) -> Fields:
    zoned = isinstance(value.tzinfo, ZoneInfo)
    if zoned or (value.tzinfo is not None and value.utcoffset() is None):
        raise Unfit(
            "is a time in a time zone, and a zone says nothing without a date.",
            hint="Pass the time without its zone, and the zone's name beside it.",
        )
    return _iso(value)


def _iso(value: datetime | time) -> Fields:
    offset = value.utcoffset()
    if offset is not None and offset.microseconds:
        # Python reads an offset of less than a second as UTC.
        raise Unfit(
            f"has an offset from UTC of {offset}, which is not in whole seconds.",
            hint="Pass it in UTC.",
        )
    iso: Fields = {"value": value.isoformat()}
    return iso | {"fold": 1} if value.fold else iso


def _read_time(value: str, fold: int = 0) -> time:
    return time.fromisoformat(value).replace(fold=fold)


def _read_timedelta(value: list[t.Any]) -> timedelta:
    days, seconds, microseconds = value
    if not all(type(part) is int for part in value):
        raise TypeError("whole numbers only")
    return timedelta(days, seconds, microseconds)


def _write_decimal(value: Decimal) -> Fields:
    if not value.is_finite():
        raise Unfit(f"is the Decimal {value}.", hint=NO_SUCH_NUMBER)
    # Unbounded, a dozen characters such as 1E+999999999 fill the memory of whoever formats them.
    if abs(value.adjusted()) > MOST_EXPONENT or len(value.as_tuple().digits) > MOST_DIGITS:
        raise Unfit(
            f"is a Decimal of more than {MOST_DIGITS} digits, or with an exponent beyond"
            f" {MOST_EXPONENT}.",
            hint="Round it, or pass it as text.",
        )
    return {"value": str(value)}


def _read_decimal(value: str) -> Decimal:
    number = Decimal(value)
    _write_decimal(number)
    return number


def _write_integer(value: int) -> Fields:
    try:
        return {"value": str(value)}
    except ValueError:
        # Python bounds this conversion, since its time grows with the square of the digits.
        raise Unfit(
            f"is an integer of {value.bit_length()} bits, more than Python writes in digits.",
            hint="Pass it as text: hex(value).",
        ) from None


def _read_bytes(value: str) -> bytes:
    return b64decode(value, validate=True)


def _read_object_id(value: str) -> object:
    if re.fullmatch("[0-9a-fA-F]{24}", value) is None:
        raise ValueError(value)
    # Only the store imports pymongo's packages, and it stands below: the one class is looked up
    # here when the first such id is read.
    object_id: object = importlib.import_module("bson").ObjectId(value)
    return object_id


def _text(value: object) -> Fields:
    return {"value": str(value)}


TAGS: t.Final = (
    Tag("datetime", datetime, _write_datetime, _read_datetime),
    Tag("date", date, _text, date.fromisoformat),
    Tag("time", time, _write_time, _read_time),
    Tag(
        "timedelta",
        timedelta,
        lambda value: {"value": [value.days, value.seconds, value.microseconds]},
        _read_timedelta,
        payload=list,
    ),
    Tag("decimal", Decimal, _write_decimal, _read_decimal),
    Tag("uuid", UUID, _text, UUID),
    Tag("bytes", bytes, lambda value: {"value": b64encode(value).decode()}, _read_bytes),
    Tag("int", int, _write_integer, int),
)
#: Of no type here: ``bson`` is not imported. :func:`tag_of` knows it by its name.
OBJECT_ID: t.Final = Tag("objectid", object, _text, _read_object_id)
