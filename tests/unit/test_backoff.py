"""How long a failed job waits."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from flask_henri_jobs.backoff import EXAMPLE, Backoff
from flask_henri_jobs.errors import ConfigError

DURATIONS = st.timedeltas(timedelta(0), timedelta(days=36500))


def longest_draw() -> float:
    return 0.0


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    base, longest = sorted([draw(DURATIONS), draw(DURATIONS)])
    return Backoff(
        base=base,
        max=longest,
        factor=draw(st.floats(1, 1000)),
        jitter=draw(st.floats(0, 1)),
    )


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 5), (2, 20), (3, 80), (4, 320), (5, 1280), (6, 3600), (7, 3600)]
)
def test_waits_grow_up_to_the_longest(attempt: int, seconds: int) -> None:
    """Q5: The wait after attempt n is ``base * factor^(n-1)``, and never more than ``max``."""
    assert Backoff().wait_after(attempt, random=longest_draw) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("drawn", "seconds"), [(0.0, 100), (0.5, 90), (1.0, 80)])
def test_jitter_shortens_a_wait(drawn: float, seconds: int) -> None:
    """Q5: Up to the share ``jitter`` of a wait is left out, as the draw says."""
    backoff = Backoff(base=timedelta(seconds=100), jitter=0.2)

    assert backoff.wait_after(1, random=lambda: drawn) == timedelta(seconds=seconds)


def test_jobs_that_failed_together_come_back_apart() -> None:
    """Q5: Without a source of its own a wait is drawn anew each time."""
    assert len({Backoff().wait_after(3) for _ in range(20)}) > 1


def test_slow_growth_reaches_the_longest() -> None:
    """Q5: A small factor reaches ``max`` too, given enough attempts."""
    backoff = Backoff(factor=1.05)

    assert backoff.wait_after(200, random=longest_draw) == backoff.max


def test_no_wait_stays_no_wait() -> None:
    """Q5: A base of zero retries at once, after any number of attempts."""
    backoff = Backoff(base=timedelta(0))

    assert {backoff.wait_after(attempt) for attempt in (1, 2, 10_000)} == {timedelta(0)}


@given(backoffs(), st.integers(1, 10_000_000), st.floats(0, 1))
def test_waits_keep_their_bounds(backoff: Backoff, attempt: int, drawn: float) -> None:
    """Q5: No number of attempts and no draw leads out of the bounds, or fails."""
    wait = backoff.wait_after(attempt, random=lambda: drawn)

    slack = timedelta(milliseconds=1)
    assert backoff.base * (1 - backoff.jitter) - slack <= wait <= backoff.max


def test_missing_fields_come_from_the_default() -> None:
    """What a mapping leaves out is as in the default."""
    default = Backoff(factor=2, max=timedelta(minutes=10))

    assert Backoff.read({"base": "7s", "jitter": 0}, "backoff", default) == Backoff(
        base=timedelta(seconds=7), factor=2, max=timedelta(minutes=10), jitter=0
    )


def test_an_empty_mapping_is_the_default() -> None:
    """A mapping that says nothing is the default, and without one the package's own."""
    assert Backoff.read({}, "backoff") == Backoff()
    assert Backoff.read({}, "backoff", Backoff(factor=2)) == Backoff(factor=2)


def test_a_backoff_is_read_as_itself() -> None:
    """A ``Backoff`` takes nothing from the default."""
    backoff = Backoff(factor=3)

    assert Backoff.read(backoff, "backoff", Backoff(jitter=0.5)) is backoff


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            5,
            f"backoff is 5. Give a mapping such as {EXAMPLE}.",
        ),
        ({"bas": "5s"}, "backoff has the unknown key 'bas'. Did you mean 'base'?"),
        (
            {"where": "here"},
            "backoff has the unknown key 'where'. Known: 'base', 'factor', 'jitter' and 'max'.",
        ),
        ({"factor": 0.5}, "backoff['factor'] is 0.5. Give a number, 1 to 1000."),
        ({"factor": "4"}, "backoff['factor'] is '4'. Give a number, 1 to 1000."),
        ({"factor": float("nan")}, "backoff['factor'] is nan. Give a number, 1 to 1000."),
        ({"jitter": 1.1}, "backoff['jitter'] is 1.1. Give a number, 0 to 1."),
        ({"jitter": True}, "backoff['jitter'] is True. Give a number, 0 to 1."),
        (
            {"max": "1s"},
            (
                "backoff has a base of 5s and a max of 1s."
                " Give a max that is no shorter than the base."
            ),
        ),
    ],
)
def test_what_is_no_backoff(value: object, message: str) -> None:
    """A value out of bounds is refused by its own name, with what is allowed."""
    with pytest.raises(ConfigError) as refused:
        Backoff.read(value, "backoff")

    assert str(refused.value) == message


def test_bounds_hold_without_a_mapping() -> None:
    """A ``Backoff`` that is made directly keeps the same bounds."""
    with pytest.raises(ConfigError, match=r"^Backoff\['jitter'\] is 2\."):
        Backoff(jitter=2)
