"""Binding a call to names, and names back to a call (Q8, and section 3 on ``args``)."""

from __future__ import annotations

import functools
import typing as t

import pytest

from flask_henri_jobs.arguments import Signature
from flask_henri_jobs.codec import decode, encode
from flask_henri_jobs.errors import ConfigError, InvalidArguments

Call = tuple[tuple[object, ...], dict[str, object]]


def add(a: int, b: int = 2) -> None: ...


def nothing() -> None: ...


def places(a: int, b: int = 2, /, c: int = 3) -> None: ...


def places_with_defaults(a: int = 1, b: int = 2, /) -> None: ...


def names_only(*, batch: object) -> None: ...


def anything(a: int, /, *rest: int, **others: int) -> None: ...


def gathering(a: int, *rest: int) -> None: ...


@functools.wraps(add)
def wrapped(*args: t.Any, **kwargs: t.Any) -> None:
    add(*args, **kwargs)


BOUND: list[tuple[t.Callable[..., object], Call, dict[str, object]]] = [
    (add, ((1, 5), {}), {"a": 1, "b": 5}),
    (add, ((1,), {"b": 5}), {"a": 1, "b": 5}),
    (add, ((1,), {}), {"a": 1}),
    (nothing, ((), {}), {}),
    (places, ((1, 5), {"c": 6}), {"a": 1, "b": 5, "c": 6}),
    (places, ((1,), {}), {"a": 1}),
    (names_only, ((), {"batch": 1}), {"batch": 1}),
    (anything, ((1,), {"x": 2, "rest": 3, "others": 4}), {"a": 1, "x": 2, "rest": 3, "others": 4}),
    (gathering, ((1,), {}), {"a": 1}),
    (wrapped, ((1, 5), {}), {"a": 1, "b": 5}),
]


@pytest.mark.parametrize(("function", "call", "named"), BOUND)
def test_a_call_is_bound_to_names(
    function: t.Callable[..., object], call: Call, named: dict[str, object]
) -> None:
    """Section 3: arguments are stored by name, without the defaults, which the runner has."""
    assert Signature(function, "mail").bind(*call) == named


@pytest.mark.parametrize(("function", "call", "named"), BOUND)
def test_a_bound_call_is_the_same_call(
    function: t.Callable[..., object], call: Call, named: dict[str, object]
) -> None:
    """Q8: what was bound and stored calls the function as it was called."""

    @functools.wraps(function)
    def spy(*args: object, **kwargs: object) -> Call:
        return args, kwargs

    signature = Signature(spy, "mail")
    args, kwargs = signature.call(decode(encode(signature.bind(*call))))
    bind = signature._signature.bind
    assert bind(*args, **kwargs) == bind(*call[0], **call[1])


STORED: list[tuple[t.Callable[..., object], object, Call]] = [
    (add, {"a": 1, "b": 5}, ((), {"a": 1, "b": 5})),
    (add, {"a": 1}, ((), {"a": 1})),
    (nothing, None, ((), {})),
    (nothing, {}, ((), {})),
    (add, 7, ((7,), {})),
    (add, [1, 2], (([1, 2],), {})),
    (add, "seven", (("seven",), {})),
    (add, False, ((False,), {})),
    (places, {"a": 1, "c": 3}, ((1,), {"c": 3})),
    (places, {"c": 3, "b": 5, "a": 1}, ((1, 5), {"c": 3})),
    (places_with_defaults, {"b": 5}, ((1, 5), {})),
    (anything, {"a": 1, "$henri": 2}, ((1,), {"$henri": 2})),
]


@pytest.mark.parametrize(("function", "stored", "call"), STORED)
def test_stored_arguments_become_a_call(
    function: t.Callable[..., object], stored: object, call: Call
) -> None:
    """Section 3: a dict is keywords, null is nothing, any other value is the first argument."""
    assert Signature(function, "mail").call(stored) == call


def test_a_call_leaves_what_is_stored_as_it_was() -> None:
    """Taking positional-only arguments out of a dict does not change that dict."""
    stored = {"a": 1, "c": 3}
    Signature(places, "mail").call(stored)
    assert stored == {"a": 1, "c": 3}


MISCALLED: list[tuple[t.Callable[..., object], Call, str]] = [
    (
        add,
        ((), {}),
        (
            "The task mail does not take these arguments: missing a required argument: 'a'."
            " It takes a, b."
        ),
    ),
    (
        add,
        ((1, 2, 3), {}),
        (
            "The task mail does not take these arguments: too many positional arguments."
            " It takes a, b."
        ),
    ),
    (
        add,
        ((1,), {"a": 1}),
        (
            "The task mail does not take these arguments: multiple values for argument 'a'."
            " It takes a, b."
        ),
    ),
    (
        nothing,
        ((), {"x": 1}),
        (
            "The task mail does not take these arguments: got an unexpected keyword argument 'x'."
            " It takes none."
        ),
    ),
    (
        gathering,
        ((1, 2), {}),
        (
            "The task mail takes some of these arguments as *rest,"
            " where they have no name to be stored under."
            " Give the function a parameter for each, or one that is a list."
        ),
    ),
    (
        anything,
        ((1,), {"a": 2}),
        (
            "The task mail takes two arguments called a, one by its place and one by its name."
            " Call them differently: a job carries its arguments by name."
        ),
    ),
]


@pytest.mark.parametrize(("function", "call", "message"), MISCALLED)
def test_a_wrong_call_is_refused_where_it_is_made(
    function: t.Callable[..., object], call: Call, message: str
) -> None:
    """Q8: a call that would fail in the runner fails at enqueue, in Python's words."""
    with pytest.raises(InvalidArguments) as refusal:
        Signature(function, "mail").bind(*call)
    assert str(refusal.value) == message


def test_positional_only_parameters_take_no_keyword() -> None:
    """Q8: a positional-only parameter is stored by its name, and not called by it."""
    with pytest.raises(InvalidArguments, match=r"does not take these arguments: .*'a'"):
        Signature(places, "mail").bind((), {"a": 1})


MISFITS: list[tuple[t.Callable[..., object], object]] = [
    (add, {"b": 1}),
    (add, {"a": 1, "c": 3}),
    (add, None),
    (nothing, 7),
    (names_only, 7),
    (places, {"b": 1}),
    (places, {"c": 1}),
]


@pytest.mark.parametrize(("function", "stored"), MISFITS)
def test_stored_arguments_that_do_not_fit(
    function: t.Callable[..., object], stored: object
) -> None:
    """Q8: arguments of another program, or of another version of the task, are refused by name."""
    with pytest.raises(InvalidArguments) as refusal:
        Signature(function, "mail").call(stored)
    assert refusal.value.message.startswith(
        "The task mail does not take the arguments that are stored: "
    )
    assert refusal.value.hint.startswith("It takes ")


@pytest.mark.parametrize("function", [7, dict])
def test_what_python_cannot_read_is_no_task(function: t.Any) -> None:
    """A function whose parameters are unknown is refused when the task is declared."""
    with pytest.raises(ConfigError, match=r"^Python does not know what the function of the task m"):
        Signature(function, "mail")


def test_the_hint_runs_no_code_of_the_user() -> None:
    """A default is never shown: its repr is the user's code, and may be long or secret."""

    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("shown")

    def mail(
        to: str, using: object = Loud(), *parts: str, dry: bool = False, **more: str
    ) -> None: ...

    with pytest.raises(InvalidArguments) as refusal:
        Signature(mail, "mail").bind((), {})
    assert refusal.value.hint == "It takes to, using, *parts, dry, **more."
