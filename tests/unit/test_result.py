"""What is kept of what a task returned."""

from __future__ import annotations

import typing as t
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from flask_henri_jobs.codec import decode
from flask_henri_jobs.result import MOST_RESULT_BYTES, Result, result_of


class Nowhere(tzinfo):
    """A time zone whose own code fails."""

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        raise LookupError("no such place")

    def dst(self, _moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _moment: datetime | None) -> str:
        return "nowhere"


@pytest.mark.parametrize(
    "returned", [None, 7, "text", {"a": [1, (2, 3)]}, {datetime(2030, 1, 1, tzinfo=UTC)}]
)
def test_what_can_be_kept(returned: t.Any) -> None:
    """X3: a result comes back as it was returned."""
    result = result_of(returned)

    assert result.problem is None
    assert decode(result.text) == returned
    assert result.fields() == {"result": result.text}


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (object(), "result is an object instance."),
        ({"rows": [1, object()]}, "result.rows[1] is an object instance."),
        (
            "x" * MOST_RESULT_BYTES,
            "result takes at least 262145 bytes as JSON, and at most 262144 are allowed.",
        ),
        ([0] * MOST_RESULT_BYTES, "result takes at least 262145 bytes as JSON,"),
        (
            [datetime(2030, 1, 1, tzinfo=Nowhere())],
            "result is a list, and encoding it raised.",
        ),
    ],
)
def test_what_cannot(returned: t.Any, problem: str) -> None:
    """X3: what cannot be kept has a reason, and nothing is raised."""
    result = result_of(returned)

    assert result.text is None
    assert result.problem is not None
    assert result.problem.startswith(problem)
    assert result.fields() == {"result_error": result.problem}


def test_largest() -> None:
    """A result of the very size that is allowed is kept."""
    text = "x" * (MOST_RESULT_BYTES - 2)

    assert result_of(text) == Result(text=f'"{text}"')
