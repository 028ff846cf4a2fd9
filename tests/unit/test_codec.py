"""From values to JSON text and back: the form, and every refusal (Q8)."""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import sys
import typing as t
from collections import OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from bson import Int64, ObjectId
from markupsafe import Markup
from werkzeug.datastructures import FileStorage
from werkzeug.local import LocalProxy

from flask_henri_jobs.codec import decode, encode
from flask_henri_jobs.errors import InvalidArguments

BERLIN = ZoneInfo("Europe/Berlin")
OSLO_1890 = datetime(1890, 1, 1, tzinfo=ZoneInfo("Europe/Oslo"))


class User:
    """A model, as far as the codec can tell."""


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Stamp(datetime):
    """What a library derives from datetime."""


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("a class was compared")

    __hash__ = None  # type: ignore[assignment]


class Odd(metaclass=Meta):
    """An instance of a class that can be neither hashed nor compared."""


class NoOffset(tzinfo):
    """A zone that cannot say where it is."""

    def utcoffset(self, _: datetime | None, /) -> None:
        return None

    dst = tzname = utcoffset


@dataclasses.dataclass
class Address:
    town: str


class Array:
    """What stands for numpy's arrays."""

    def tolist(self) -> list[int]:
        return [1]


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the untyped kind, too


def unbound() -> t.NoReturn:
    raise RuntimeError("working outside of a request")


async def fetch() -> None:
    return None


def numbers() -> t.Iterator[int]:
    yield 1


def nested(levels: int, kind: type = list) -> t.Any:
    value: t.Any = "core"
    for _ in range(levels):
        value = {"a": value} if kind is dict else kind([value])
    return value


PLAIN = [
    (None, "null"),
    (True, "true"),
    (-1, "-1"),
    (2**53 - 1, "9007199254740991"),
    (1.0, "1.0"),
    (-0.0, "-0.0"),
    (1e300, "1e+300"),
    ("Grüße, 東京 \U0001f600", '"Grüße, 東京 \U0001f600"'),
    ('a"\\\n\x00', '"a\\"\\\\\\n\\u0000"'),
    ({}, "{}"),
    ({"user_id": 7, "tags": ["a", None, [1.5]]}, '{"user_id":7,"tags":["a",null,[1.5]]}'),
    ({"ключ": {"": False}}, '{"ключ":{"":false}}'),
]


@pytest.mark.parametrize(("value", "text"), PLAIN, ids=repr)
def test_plain_json_stays_plain(value: object, text: str) -> None:
    """Q8: plain JSON is written as it is, without spaces and without tags, and comes back."""
    assert encode(value) == text
    if not isinstance(value, set | frozenset):
        assert repr(decode(text)) == repr(value)


def tagged(name: str, value: object, **more: object) -> str:
    return json.dumps({"$henri": name, "value": value, **more}, separators=(",", ":"))


TAGGED = [
    (datetime(2026, 1, 31, 9, tzinfo=UTC), tagged("datetime", "2026-01-31T09:00:00+00:00")),
    (
        datetime(2026, 1, 31, 9, 0, 0, 1, timezone(-timedelta(hours=3, minutes=30))),
        tagged("datetime", "2026-01-31T09:00:00.000001-03:30"),
    ),
    (
        datetime(2026, 1, 31, 9, tzinfo=BERLIN),
        tagged("datetime", "2026-01-31T09:00:00+01:00", zone="Europe/Berlin"),
    ),
    (OSLO_1890, tagged("datetime", "1890-01-01T00:00:00+00:43", zone="Europe/Oslo")),
    (
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
        tagged("datetime", "2026-10-25T02:30:00+01:00", fold=1, zone="Europe/Berlin"),
    ),
    (
        datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
        tagged("datetime", "2026-03-29T02:30:00+01:00", zone="Europe/Berlin"),
    ),
    (date(2026, 1, 31), tagged("date", "2026-01-31")),
    (time(9, 30), tagged("time", "09:30:00")),
    (time(2, 30, fold=1), tagged("time", "02:30:00", fold=1)),
    (time(9, 30, 0, 5, UTC), tagged("time", "09:30:00.000005+00:00")),
    (timedelta(days=-1, microseconds=3), tagged("timedelta", [-1, 0, 3])),
    (Decimal("-0.10"), tagged("decimal", "-0.10")),
    (Decimal("1E+5"), tagged("decimal", "1E+5")),
    (
        UUID("12345678-1234-5678-1234-567812345678"),
        tagged("uuid", "12345678-1234-5678-1234-567812345678"),
    ),
    (b"\x00\xff", tagged("bytes", "AP8=")),
    (ObjectId("65a0c0ffee65a0c0ffee65a0"), tagged("objectid", "65a0c0ffee65a0c0ffee65a0")),
    ((1, (2,)), tagged("tuple", [1, {"$henri": "tuple", "value": [2]}])),
    pytest.param({"b", "a"}, tagged("set", ["a", "b"]), id="set of two"),
    (frozenset({1}), tagged("frozenset", [1])),
    (2**53, tagged("int", "9007199254740992")),
    (-(2**53), tagged("int", "-9007199254740992")),
    ({"$henri": "date"}, tagged("dict", {"$henri": "date"})),
    (
        {"$henri": "date", "value": date(2026, 1, 31)},
        tagged("dict", {"$henri": "date", "value": {"$henri": "date", "value": "2026-01-31"}}),
    ),
]


@pytest.mark.parametrize(("value", "text"), TAGGED, ids=repr)
def test_what_json_lacks_is_tagged(value: object, text: str) -> None:
    """Q8: each further kind of value has one tagged form, and comes back as it went in."""
    assert encode({"a": value}) == f'{{"a":{text}}}'
    # The repr tells the type, the zone and the fold, where equality is lenient.
    if not isinstance(value, set | frozenset):
        assert repr(decode(text)) == repr(value)


def test_sets_are_written_alike_in_every_process() -> None:
    """Q8: equal sets are equal text, whatever the order of their elements in memory."""
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    assert encode(one) == encode(other) == '{"$henri":"set","value":[0,8]}'
    mixed = {"b", 10, 9, None, (2, "x"), 1.5}
    assert decode(encode(mixed)) == mixed


def with_cycle() -> dict[str, t.Any]:
    value: dict[str, t.Any] = {"user": {"posts": []}}
    value["user"]["posts"].append({"author": value["user"]})
    return value


LONE = "a lone \udcff"
REFUSED: list[tuple[object, str]] = [
    (User(), "args.x is a User instance. Pass its id, and load it inside the task."),
    (Odd(), "args.x is an Odd instance. Pass its id, and load it inside the task."),
    (
        LocalProxy(unbound),
        "args.x is a LocalProxy instance. Pass its id, and load it inside the task.",
    ),
    (Address("Oslo"), "args.x is an Address instance. Pass dataclasses.asdict(value)."),
    (Array(), "args.x is an Array instance. Pass value.tolist()."),
    (Colour.RED, "args.x is a member of the enum Colour. Pass its .value."),
    (Level.HIGH, "args.x is a member of the enum Level. Pass its .value."),
    (Mode.FAST, "args.x is a member of the enum Mode. Pass its .value."),
    (Markup("<b>"), "args.x is a Markup, a kind of str. Pass str(value)."),
    (Int64(7), "args.x is an Int64, a kind of int. Pass int(value)."),
    (OrderedDict(a=1), "args.x is an OrderedDict, a kind of dict. Pass dict(value)."),
    (defaultdict(int), "args.x is a defaultdict, a kind of dict. Pass dict(value)."),
    (Point(1, 2), "args.x is a Point, a kind of tuple. Pass value._asdict(), or tuple(value)."),
    (
        Stamp(2026, 1, 31, tzinfo=UTC),
        "args.x is a Stamp, a kind of datetime. Pass datetime.fromisoformat(value.isoformat()).",
    ),
    (
        datetime(2026, 1, 31, 9),  # noqa: DTZ001
        (
            "args.x is a naive datetime, 2026-01-31 09:00:00."
            " Say where it holds: datetime.now(UTC), or value.replace(tzinfo=...)."
        ),
    ),
    (
        datetime(2026, 1, 31, 9, tzinfo=NoOffset()),
        (
            "args.x is a naive datetime, 2026-01-31 09:00:00."
            " Say where it holds: datetime.now(UTC), or value.replace(tzinfo=...)."
        ),
    ),
    (
        time(9, tzinfo=BERLIN),
        (
            "args.x is a time in a time zone, and a zone says nothing without a date."
            " Pass the time without its zone, and the zone's name beside it."
        ),
    ),
    (
        time(9, tzinfo=timezone(timedelta(microseconds=1))),
        (
            "args.x has an offset from UTC of 0:00:00.000001, which is not in whole seconds."
            " Pass it in UTC."
        ),
    ),
    (float("nan"), "args.x is nan. JSON has no such number: pass None, or text."),
    (float("-inf"), "args.x is -inf. JSON has no such number: pass None, or text."),
    (Decimal("NaN"), "args.x is the Decimal NaN. JSON has no such number: pass None, or text."),
    (
        Decimal("1E+1000000"),
        (
            "args.x is a Decimal of more than 4300 digits, or with an exponent beyond 999999."
            " Round it, or pass it as text."
        ),
    ),
    (
        1 << 20_000,
        (
            "args.x is an integer of 20001 bits, more than Python writes in digits."
            " Pass it as text: hex(value)."
        ),
    ),
    (
        {7: "a"},
        "args.x has a key of the type int. Keys are text: pass str(key), or a list of pairs.",
    ),
    (
        {"a": 1, Mode.FAST: 2},
        "args.x has a key of the type Mode. Keys are text: pass str(key), or a list of pairs.",
    ),
    (
        LONE,
        (
            "args.x holds a lone surrogate, '\\udcff'."
            ' It is not text: pass value.encode("utf-8", "surrogatepass").'
        ),
    ),
    (
        {LONE: 1},
        (
            "args.x['a lone \\udcff'] holds a lone surrogate, '\\udcff'."
            ' It is not text: pass value.encode("utf-8", "surrogatepass").'
        ),
    ),
    (
        with_cycle(),
        (
            "args.x.user.posts[0].author leads back to args.x.user."
            " Pass its id, and load it inside the task."
        ),
    ),
    (len, "args.x is a function. Pass its name, and look it up inside the task."),
    (partial(len), "args.x is a function. Pass its name, and look it up inside the task."),
    (User, "args.x is a class. Pass its name, and look it up inside the task."),
    (numbers(), "args.x is a generator. Pass list(value)."),
    (map(str, []), "args.x is a map instance. Pass list(value)."),
    (range(3), "args.x is a range instance. Pass list(value)."),
    (deque([1]), "args.x is a deque instance. Pass list(value)."),
    ({"a": 1}.keys(), "args.x is a dict_keys instance. Pass list(value)."),
    (
        io.StringIO(),
        "args.x is a file. Store it where the worker can read it, and pass its path or id.",
    ),
    (
        FileStorage(),
        "args.x is a file. Store it where the worker can read it, and pass its path or id.",
    ),
    (PurePosixPath("/a"), "args.x is a PurePosixPath instance. Pass str(value)."),
    (Fraction(1, 2), "args.x is a Fraction instance. Pass str(value)."),
    (ValueError("no"), "args.x is a ValueError instance. Pass str(value)."),
    (bytearray(b"a"), "args.x is a bytearray instance. Pass bytes(value)."),
    (1j, "args.x is a complex instance. Pass [value.real, value.imag]."),
    (object(), "args.x is an object instance. Pass its id, and load it inside the task."),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[m[7:40] for _, m in REFUSED])
def test_refusals(value: object, message: str) -> None:
    """Q8: what would not come back is refused, with its path and what to pass instead."""
    with pytest.raises(InvalidArguments) as refusal:
        encode({"x": value})
    assert str(refusal.value) == message


def test_coroutine_is_refused() -> None:
    """Q8: a coroutine is refused with the advice to await it."""
    coroutine = fetch()
    with pytest.raises(InvalidArguments) as refusal:
        encode({"x": coroutine})
    coroutine.close()
    assert str(refusal.value) == "args.x is a coroutine. Await it, and pass what it returns."


PATHS = [
    (User(), "args "),
    ([0, User()], "args[1] "),
    ({"a": {"b": [(User(),)]}}, "args.a.b[0][0] "),
    ({"odd key": User()}, "args['odd key'] "),
    ({"users": {User()}}, "args.users{*} "),
    ({"$henri": {"value": User()}}, "args['$henri'].value "),
    ({"a" * 200: User()}, f"args.{'a' * 75}...{'a' * 37} "),
    ([[], {"a": []}, {"b": {}}, User()], "args[3] "),
]


@pytest.mark.parametrize(("value", "path"), PATHS, ids=[path for _, path in PATHS])
def test_the_path_leads_to_what_is_refused(value: object, path: str) -> None:
    """Q8: a refusal begins with the path to the value, which is never too long to read."""
    with pytest.raises(InvalidArguments) as refusal:
        encode(value)
    assert refusal.value.message == f"{path}is a User instance."


def test_the_path_begins_with_the_given_name() -> None:
    """Q8: a result is refused as a result, and read as one."""
    with pytest.raises(InvalidArguments, match=r"^result\[0\] is nan"):
        encode([float("nan")], where="result")
    with pytest.raises(InvalidArguments, match=r"^result is not JSON"):
        decode("", where="result")


@pytest.mark.parametrize("kind", [list, dict, tuple, frozenset])
def test_levels(kind: type) -> None:
    """Q8: a hundred levels travel, and one more does not, in either direction."""
    deepest = nested(100, kind)
    assert decode(encode(deepest)) == deepest
    with pytest.raises(InvalidArguments, match="is nested more than 100 levels deep") as refusal:
        encode(nested(101, kind))
    assert len(refusal.value.message) < 200


def test_a_value_may_stand_in_two_places() -> None:
    """Q8: a value that is shared, and is no cycle, travels; it comes back once per place."""
    shared = [1]
    assert decode(encode({"a": shared, "b": [shared, shared]})) == {"a": [1], "b": [[1], [1]]}


def test_most_bytes() -> None:
    """Q8: arguments take at most the allowed bytes of UTF-8, and the refusal says both numbers."""
    assert encode("é" * 10, most_bytes=22) == '"éééééééééé"'
    with pytest.raises(InvalidArguments) as refusal:
        encode({"a": ["é" * 10]}, most_bytes=29)
    assert str(refusal.value) == (
        "args takes 30 bytes as JSON, and at most 29 are allowed. Store it, and pass its id."
    )


def test_half_a_mebibyte_is_the_default() -> None:
    """Q8: 512 KiB is what arguments may take unless told otherwise."""
    assert len(encode("a" * (512 * 1024 - 2))) == 512 * 1024
    with pytest.raises(
        InvalidArguments, match=r"takes (at least )?\d+ bytes as JSON, and at most 524288"
    ):
        encode("a" * (512 * 1024 - 1))
    with pytest.raises(InvalidArguments, match="takes 524289 bytes as JSON, and at most 524288"):
        encode({"a": "b" * (512 * 1024 - 7)})


def test_shared_values_cannot_explode() -> None:
    """Q8: a small value that would be an endless text is refused on the way."""
    value: list[t.Any] = ["x"]
    for _ in range(60):
        value = [value] * 10
    with pytest.raises(InvalidArguments, match="args takes at least 524289 bytes as JSON"):
        encode(value)


def test_nothing_is_stored() -> None:
    """Q8: absent text reads as no arguments, as ``null`` does."""
    assert decode(None) is None
    assert decode("null") is None


READ_TOLERANTLY = [
    (tagged("datetime", "2026-01-31T08:00:00.000Z"), datetime(2026, 1, 31, 8, tzinfo=UTC)),
    (tagged("uuid", "1" * 32), UUID("1" * 32)),
    (tagged("objectid", "65A0C0FFEE65A0C0FFEE65A0"), ObjectId("65a0c0ffee65a0c0ffee65a0")),
    ("12345678901234567890", 12345678901234567890),
    ('"\\ud800"', "\ud800"),
    # The zone's rules were others when it was written: the instant stands.
    (
        tagged("datetime", "2026-01-31T09:00:00+03:00", zone="Europe/Berlin"),
        datetime(2026, 1, 31, 7, tzinfo=BERLIN),
    ),
]


@pytest.mark.parametrize(("text", "value"), READ_TOLERANTLY, ids=[x for x, _ in READ_TOLERANTLY])
def test_other_programs_forms_are_read(text: str, value: object) -> None:
    """Q8: what another program writes for the same value is read as that value."""
    if not isinstance(value, set | frozenset):
        assert repr(decode(text)) == repr(value)


NOT_JSON = [
    ("", "Expecting value: line 1 column 1 (char 0)"),
    ("{'a': 1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ("NaN", "NaN is no JSON number"),
    ("[-Infinity]", "-Infinity is no JSON number"),
    ("[" * 100_000, "it is nested too deeply"),
    (7, "it is stored as int"),
    (b"null", "it is stored as bytes"),
]


@pytest.mark.parametrize(("text", "reason"), NOT_JSON, ids=[reason for _, reason in NOT_JSON])
def test_text_that_is_not_json(text: object, reason: str) -> None:
    """Q8: text that is not JSON is one clear error, whatever is wrong with it."""
    with pytest.raises(InvalidArguments) as refusal:
        decode(text)
    assert str(refusal.value) == (
        f"args is not JSON: {reason}."
        " Whoever enqueued the job must store its arguments as JSON text."
    )


def test_hostile_digits() -> None:
    """Q8: a number of a million digits costs no time to refuse."""
    with pytest.raises(InvalidArguments, match="args is not JSON: Exceeds the limit"):
        decode("9" * 1_000_000)


UNREADABLE = [
    tagged("path", "/etc/passwd"),
    tagged("date", 7),
    tagged("date", "soon"),
    tagged("date", "2026-01-31", zone="UTC"),
    '{"$henri":"date"}',
    tagged("datetime", "2026-01-31T09:00:00"),
    tagged("datetime", "2026-01-31T09:00:00Z", fold=7),
    tagged("datetime", "2026-01-31T09:00:00Z", zone=["UTC"]),
    tagged("datetime", "0001-01-01T00:00:00+01:00", zone="America/New_York"),
    tagged("time", "25:00"),
    tagged("timedelta", [1, 2]),
    tagged("timedelta", [1.5, 2, 3]),
    tagged("timedelta", [10**18, 0, 0]),
    tagged("decimal", "1E+9999999999999999999"),
    tagged("decimal", [0, [1], 0]),
    tagged("uuid", "1"),
    tagged("bytes", "A"),
    tagged("bytes", "é"),
    tagged("objectid", "65a0"),
    tagged("tuple", "ab"),
    tagged("tuple", [], more=1),
    tagged("dict", {}, more=1),
    tagged("set", [[1]]),
    tagged("set", {"a": 1}),
    tagged("dict", []),
    tagged("int", "0x10"),
    tagged("int", "9" * 5000),
]


@pytest.mark.parametrize("text", UNREADABLE, ids=[text[:60] for text in UNREADABLE])
def test_unreadable_tags(text: str) -> None:
    """Q8: a tag that is unknown or malformed is refused with its path."""
    name = json.loads(text)["$henri"]
    with pytest.raises(InvalidArguments) as refusal:
        decode(f'{{"x":{text}}}')
    assert str(refusal.value) == (
        f"args.x carries the tag '{name}', and cannot be read."
        " A newer version of flask_henri_jobs may have written it, or another program."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"$henri":7}', "args carries a tag that is not text, and cannot be read."),
        ("[1e999]", "args[0] is inf."),
        (tagged("decimal", "sNaN"), "args is the Decimal sNaN."),
        (
            tagged("decimal", "1E+999999999"),
            "args is a Decimal of more than 4300 digits, or with an exponent beyond 999999.",
        ),
        *(
            (
                tagged("datetime", "2026-01-31T09:00:00Z", zone=zone),
                f"args is in the time zone {zone!r}, which this host does not know.",
            )
            for zone in ["Mars/Base", "../../etc/passwd", "/etc/passwd", "Europe", "\x00", ""]
        ),
    ],
)
def test_what_is_read_is_bounded_too(text: str, message: str) -> None:
    """Q8: what would be refused at enqueue is refused when somebody else has stored it."""
    with pytest.raises(InvalidArguments) as refusal:
        decode(text)
    assert refusal.value.message == message


def test_a_tag_named_by_a_deep_value() -> None:
    """Q8: a tag whose name is no text, however deep, is refused and not shown."""
    deep = "[" * 500 + "]" * 500
    with pytest.raises(InvalidArguments, match="cannot be read"):
        decode(f'{{"$henri":{deep},"value":1}}')


def test_python_decides_how_many_digits() -> None:
    """Q8: the longest integer that Python writes in digits travels."""
    longest = 10 ** sys.get_int_max_str_digits() - 1
    assert decode(encode(longest)) == longest
