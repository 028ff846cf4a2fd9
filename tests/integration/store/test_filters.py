"""What selects jobs."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.errors import InvalidFilter
from flask_henri_jobs.store.filters import ALARMING, BATCH, RECENT, TENANT, JobFilter

NAMES = ["queue", "name", "tenant", "batch", "tag"]


@pytest.mark.parametrize("where", ["state", "reason", *NAMES])
@pytest.mark.parametrize("value", [{"$ne": None}, ["low"], 7, True, b"low", ""], ids=repr)
def test_text_only(where: str, value: t.Any) -> None:
    """Q9: no filter takes anything but text, so that no operator reaches the database."""
    with pytest.raises(InvalidFilter, match=f"^{where} is"):
        JobFilter.read(**{where: value})


REASONS = "'failed', 'lost', 'timeout', 'discarded', 'cancelled' or 'expired'"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state": "failed"}, "state is 'failed'. Give 'pending', 'running', 'done' or 'dead'."),
        ({"reason": "failure"}, f"reason is 'failure'. Give {REASONS}."),
    ],
)
def test_words(given: dict[str, str], message: str) -> None:
    """A state or reason that does not exist is refused with those that do."""
    with pytest.raises(InvalidFilter) as raised:
        JobFilter.read(**given)
    assert str(raised.value) == message


def test_reason_of_what_is_not_dead() -> None:
    """A reason together with a state that has none is refused; with ``dead`` it is not."""
    with pytest.raises(InvalidFilter, match="only dead jobs have a reason"):
        JobFilter.read(state="done", reason="lost")
    assert JobFilter.read(state="dead", reason="lost").states == ("dead",)


def test_reading_nothing() -> None:
    """None is not given, and a filter without anything selects every job."""
    assert JobFilter.read(state=None, queue=None, reason=None).is_empty
    assert not JobFilter.read(queue="low").is_empty
    assert JobFilter().to_query() == {"state": {"$in": ["pending", "running", "done", "dead"]}}


def test_alarming() -> None:
    """Q5: where no reason is given it is one of the three that somebody should look at."""
    assert JobFilter.read(queue="low").or_alarming().reasons == ALARMING
    assert JobFilter.read(reason="expired").or_alarming().reasons == ("expired",)
    assert JobFilter().or_alarming().rest() == {"dead_reason": {"$in": [*ALARMING, None]}}


def test_index() -> None:
    """B5: a batch, a tenant and the rest each have an index that serves them."""
    assert JobFilter.read(batch="b1", tenant="acme").index is BATCH
    assert JobFilter.read(tenant="acme", state="dead").index is TENANT
    assert JobFilter.read(name="mail").index is RECENT
