"""The words in which a value of the wrong kind is refused."""

from __future__ import annotations

import enum
import typing as t
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from flask_henri_jobs.checks import (
    Mistakes,
    SeveralMistakes,
    checked_bool,
    checked_choice,
    checked_duration,
    checked_int,
    checked_mapping,
    checked_moment,
    checked_name,
    checked_names,
    checked_number,
    checked_text,
    did_you_mean,
    kind_of,
    listed,
)
from flask_henri_jobs.errors import ConfigError, InvalidFilter

NAME_HINT = "Give text of 1 to 512 bytes without control characters."
NAMES_HINT = 'Give a list of names, or text such as "high,low".'
HOUR = timedelta(hours=1)


class Color(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


def reject(name: str, hint: str = "") -> None:
    raise ConfigError(f"{name} is wrong.", hint=hint)


@pytest.mark.parametrize("value", [{"$ne": None}, {}, ["id"], None, 5, b"id", object])
def test_operators_are_no_text(value: object) -> None:
    """Q9: Whatever is not text is refused where text is due, and its type is named."""
    with pytest.raises(InvalidFilter) as refused:
        checked_name(value, "id", error=InvalidFilter)

    assert str(refused.value) == f"id is {kind_of(value)}, and text is due. {NAME_HINT}"


@pytest.mark.parametrize("name", ["a", "henri/task", "café ☕", "a" * 512, "é" * 256, "$where"])
def test_names(name: str) -> None:
    """A name is text of 1 to 512 bytes, whatever its characters."""
    assert checked_name(name, "name") == name


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "name is empty."),
        ("a" * 513, "name is 513 bytes long."),
        ("é" * 257, "name is 514 bytes long."),
        ("a\0b", r"name is 'a\x00b'."),
        ("a\nb", r"name is 'a\nb'."),
        ("a\x7f", r"name is 'a\x7f'."),
        ("a\x85", r"name is 'a\x85'."),
        ("\ud800", r"name is '\ud800'."),
    ],
)
def test_no_names(name: str, complaint: str) -> None:
    """Text that is empty, too long in bytes, or not printable is no name."""
    with pytest.raises(ConfigError) as refused:
        checked_name(name, "name")

    assert str(refused.value) == f"{complaint} {NAME_HINT}"


def test_exact_types() -> None:
    """An enum's member is taken as what it is worth, and is no longer a member."""
    assert type(checked_text(Color.RED, "color")) is str
    assert type(checked_int(Size.LARGE, "size", 0, 9)) is int
    assert checked_text(Color.RED, "color") == "red"


@pytest.mark.parametrize("value", [["b", "a", "b"], ("b", "a"), "b,a", " b , a,b"])
def test_lists_of_names(value: object) -> None:
    """Names keep their order, and each is there once."""
    assert checked_names(value, "queues") == ("b", "a")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "queues names nothing. Give at least one name, or leave it out."),
        ("", f"queues[0] is empty. {NAME_HINT}"),
        ("a,,b", f"queues[1] is empty. {NAME_HINT}"),
        (["a", {"$ne": 1}], f"queues[1] is a dict, and text is due. {NAME_HINT}"),
        (
            {"a": 1},
            f"queues is a dict, and names are due. {NAMES_HINT}",
        ),
        (
            None,
            f"queues is None, and names are due. {NAMES_HINT}",
        ),
    ],
)
def test_no_lists_of_names(value: object, message: str) -> None:
    """Q9: What is no list of names is refused with the place of what is wrong in it."""
    with pytest.raises(InvalidFilter) as refused:
        checked_names(value, "queues", error=InvalidFilter)

    assert str(refused.value) == message


@pytest.mark.parametrize("value", [0, 11, -1, 1.0, "5", True, None, {"$gt": 0}])
def test_no_whole_numbers(value: object) -> None:
    """A whole number is an int within its bounds, and not a bool."""
    with pytest.raises(InvalidFilter) as refused:
        checked_int(value, "limit", 1, 10, error=InvalidFilter)

    assert str(refused.value) == f"limit is {value!r}. Give a whole number, 1 to 10."


@pytest.mark.parametrize("value", [1, 10])
def test_bounds_are_included(value: int) -> None:
    """The bounds themselves are allowed."""
    assert checked_int(value, "limit", 1, 10) == value
    assert checked_number(value, "factor", 1, 10) == value


@pytest.mark.parametrize("value", [0.99, 10.01, float("nan"), float("inf"), True, "1", None])
def test_no_numbers(value: object) -> None:
    """A number is within its bounds, and neither a bool nor NaN."""
    with pytest.raises(ConfigError) as refused:
        checked_number(value, "factor", 1, 10)

    assert str(refused.value) == f"factor is {value!r}. Give a number, 1 to 10."


@pytest.mark.parametrize("value", [1, 0, "true", None, []])
def test_truthy_is_not_true(value: object) -> None:
    """Only true and false are true or false."""
    with pytest.raises(ConfigError) as refused:
        checked_bool(value, "store_result")

    assert str(refused.value) == f"store_result is {value!r}. Give true or false."


@pytest.mark.parametrize("value", [True, False])
def test_true_and_false(value: bool) -> None:
    """True and false are what they are."""
    assert checked_bool(value, "store_result") is value


def test_choices() -> None:
    """A word that is not among the choices is refused with all of them."""
    assert checked_choice("skip", "overlap", ("allow", "skip")) == "skip"
    with pytest.raises(InvalidFilter) as refused:
        checked_choice("sikp", "overlap", ("allow", "skip"), error=InvalidFilter)

    assert str(refused.value) == "overlap is 'sikp'. Give 'allow' or 'skip'."


@pytest.mark.parametrize(
    ("value", "high", "message"),
    [
        ("1s", HOUR, "wait is 1s. Give 1m to 1h."),
        ("2h", HOUR, "wait is 2h. Give 1m to 1h."),
        ("1s", None, "wait is 1s. Give 1m or more."),
    ],
)
def test_durations_out_of_bounds(value: str, high: timedelta | None, message: str) -> None:
    """A duration out of bounds is refused with the bounds."""
    with pytest.raises(ConfigError) as refused:
        checked_duration(value, "wait", timedelta(minutes=1), high)

    assert str(refused.value) == message


def test_aware_moments() -> None:
    """A moment with a time zone is taken as it is."""
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    assert checked_moment(moment, "at") is moment


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            datetime(2030, 1, 1),  # noqa: DTZ001 - this is what is refused
            (
                "at is 2030-01-01T00:00:00, which names no moment without a time zone."
                " Say datetime.now(UTC) rather than datetime.now(), or .replace(tzinfo=...)."
            ),
        ),
        (
            datetime(2030, 1, 1, tzinfo=UTC).date(),
            "at is a date, and a moment is due. Give a datetime with a time zone.",
        ),
        (
            {"$gt": 0},
            "at is a dict, and a moment is due. Give a datetime with a time zone.",
        ),
    ],
)
def test_naive_moments(value: object, message: str) -> None:
    """Q9: A naive datetime is refused, with what to write instead."""
    with pytest.raises(InvalidFilter) as refused:
        checked_moment(value, "at", error=InvalidFilter)

    assert str(refused.value) == message


def test_mappings_are_copied() -> None:
    """A mapping is returned as a dict of the caller's own."""
    given = {"base": 1}
    read = checked_mapping(MappingProxyType(given), "backoff", ["base"])
    read["base"] = 2

    assert given == {"base": 1}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([("a", 1)], "backoff is a list, and a mapping is due."),
        ({1: 2}, "backoff has the key 1. Give keys that are text."),
        ({"bsae": 2}, "backoff has the unknown key 'bsae'. Did you mean 'base'?"),
        ({"x": 2}, "backoff has the unknown key 'x'. Known: 'base' and 'max'."),
    ],
)
def test_no_mappings(value: object, message: str) -> None:
    """A key that is no text, or unknown, is refused with the one that may be meant."""
    with pytest.raises(ConfigError) as refused:
        checked_mapping(value, "backoff", ["max", "base"])

    assert str(refused.value) == message


def test_suggestions_look_past_the_prefix() -> None:
    """A common prefix makes no two names look alike, and stands in the suggestion."""
    assert did_you_mean("QUEUE", ["URI", "QUEUES"], "X_") == "Did you mean 'X_QUEUES'?"
    assert did_you_mean("FOO", ["URI", "QUEUES"], "X_") == "Known: 'X_URI' and 'X_QUEUES'."


@pytest.mark.parametrize(
    ("words", "text"), [("a", "'a'"), ("ab", "'a' or 'b'"), ("abc", "'a', 'b' or 'c'")]
)
def test_lists_in_words(words: t.Iterable[str], text: str) -> None:
    """Choices read as a sentence does."""
    assert listed(words, "or") == text


def test_one_mistake_is_told_as_itself() -> None:
    """A single mistake is raised as the error that it is, and none is no error."""
    mistakes = Mistakes()
    mistakes.raise_any()
    with mistakes.noted():
        reject("A")

    with pytest.raises(ConfigError, match=r"^A is wrong\.$") as told:
        mistakes.raise_any()
    assert type(told.value) is ConfigError


def test_several_mistakes_are_told_at_once() -> None:
    """Several mistakes are one error with a line for each, however they were collected."""
    inner, outer = Mistakes(), Mistakes()
    for name in "AB":
        with inner.noted():
            reject(name, hint="Mend it.")
    with outer.noted():
        inner.raise_any()
    with outer.noted():
        reject("C")

    with pytest.raises(SeveralMistakes) as told:
        outer.raise_any()
    assert str(told.value).splitlines() == [
        "3 settings are wrong:",
        "A is wrong. Mend it.",
        "B is wrong. Mend it.",
        "C is wrong.",
    ]


def test_other_errors_are_not_collected() -> None:
    """What is no mistake in the configuration goes through."""
    with pytest.raises(ZeroDivisionError), Mistakes().noted():
        raise ZeroDivisionError
