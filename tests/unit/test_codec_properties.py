"""What holds for every value: it comes back as it went in, or is refused (Q8)."""

from __future__ import annotations

import contextlib
import enum
import json
import typing as t
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

from bson import ObjectId
from hypothesis import given, settings, strategies as st

from flask_henri_jobs.codec import MOST_INTEGER, decode, encode
from flask_henri_jobs.errors import InvalidArguments
from flask_henri_jobs.tags import OBJECT_ID, TAGS

text = st.text(st.characters(exclude_categories=["Cs"]))
keys = text | st.sampled_from(["$henri", "value"])
safe_integers = st.integers(-MOST_INTEGER, MOST_INTEGER)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain_atoms = st.none() | st.booleans() | safe_integers | finite | text
plain = st.recursive(
    plain_atoms, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=12
)

seconds_of_offset = st.integers(-86_399, 86_399)
offsets = seconds_of_offset.map(lambda seconds: timezone(timedelta(seconds=seconds)))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
moments = st.datetimes(timezones=offsets | zones.map(ZoneInfo))
atoms = (
    plain_atoms
    | st.integers()
    | moments
    | st.dates()
    | st.times()
    | st.times(timezones=offsets)
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.binary()
    | st.binary(min_size=12, max_size=12).map(ObjectId)
)
hashable = st.deferred(lambda: atoms | st.frozensets(atoms, max_size=3) | st.tuples(atoms, atoms))
values = st.recursive(
    hashable | st.sets(hashable, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=12,
)


class Colour(enum.Enum):
    RED = "red"


strange = (
    st.floats()
    | st.decimals()
    | st.text()
    | st.datetimes()
    | st.complex_numbers()
    | st.fractions()
    | st.times(timezones=zones.map(ZoneInfo))
    | st.datetimes(timezones=st.timedeltas(timedelta(-1, 1), timedelta(hours=23)).map(timezone))
    | st.integers(20_000, 30_000).map(lambda bits: 1 << bits)
    | st.sampled_from([Colour.RED, object(), len, int, iter(()), type, ...])
)
anything = st.recursive(
    st.deferred(lambda: atoms | strange),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys | st.text() | st.integers() | st.none(), inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=12,
)


def seen(value: t.Any) -> object:
    """Return what equality alone would let pass: types, signs, exponents, folds and offsets."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, [seen(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(map(repr, map(seen, value)))
    if kind is dict:
        return kind, [(key, seen(item)) for key, item in value.items()]
    if kind in (datetime, time):
        return kind, value.isoformat(), value.fold, getattr(value.tzinfo, "key", None)
    return kind, repr(value)


@given(values)
def test_supported_values_come_back(value: object) -> None:
    """Q8: any value made of what is supported comes back equal, with the same types."""
    assert seen(decode(encode(value))) == seen(value)


@given(values)
def test_one_value_has_one_text(value: object) -> None:
    """Q8: encoding what was decoded gives the same text again."""
    stored = encode(value)
    assert encode(decode(stored)) == stored


@given(plain)
def test_plain_json_is_untouched(value: object) -> None:
    """Q8: plain JSON is exactly what any JSON writer makes of it."""
    stored = encode(value)
    assert stored == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert seen(json.loads(stored)) == seen(decode(stored)) == seen(value)


@settings(max_examples=300)
@given(anything)
def test_anything_comes_back_or_is_refused(value: object) -> None:
    """Q8: whatever a user passes, it comes back as it was or is refused in one way."""
    with contextlib.suppress(InvalidArguments):
        assert seen(decode(encode(value))) == seen(value)


names = ["dict", "tuple", "set", "frozenset", *(tag.name for tag in (*TAGS, OBJECT_ID))]
payloads = st.recursive(
    plain_atoms
    | st.sampled_from(
        ["NaN", "1E+99999999999999999999", "2026-01-31", "2026-01-31T00:00Z", "24:00"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {"$henri": st.sampled_from(names) | inner},
            optional={"value": inner, "zone": zones | inner, "fold": st.integers(-1, 2) | inner},
        )
    ),
    max_leaves=12,
)


@settings(max_examples=500)
@given(payloads)
def test_any_tag_is_read_or_refused(payload: object) -> None:
    """Q8: whatever somebody stored as a tag, it is read as a value that travels, or refused."""
    with contextlib.suppress(InvalidArguments):
        value = decode(json.dumps(payload))
        assert seen(decode(encode(value))) == seen(value)


@given(st.text())
def test_any_text_is_read_or_refused(stored: str) -> None:
    """Q8: whatever text is stored, reading it gives a value or the one error."""
    with contextlib.suppress(InvalidArguments):
        decode(stored)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(-(10**7), 10**7))
def test_decimals_keep_their_digits(number: Decimal, exponent: int) -> None:
    """Q8: a Decimal keeps sign, digits and exponent, or is refused as too long."""
    scaled = Decimal((number.as_tuple().sign, number.as_tuple().digits, exponent))
    with contextlib.suppress(InvalidArguments):
        assert decode(encode(scaled)).as_tuple() == scaled.as_tuple()
