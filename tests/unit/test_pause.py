"""What a pause holds back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flask_henri_jobs.pause import NOTHING_PAUSED, Pause, Paused

AT = datetime(2030, 1, 31, 9, tzinfo=UTC)
ROW = {"queue": "mail", "name": "send", "tenant": "acme"}


def a_pause(kind: str, name: str) -> Pause:
    return Pause(kind=kind, name=name, paused_at=AT)


@pytest.mark.parametrize(
    ("kind", "name", "holds"),
    [
        ("queue", "mail", True),
        ("queue", "send", False),
        ("task", "send", True),
        ("task", "acme", False),
        ("tenant", "acme", True),
        ("tenant", "mail", False),
    ],
)
def test_holds_what_is_of_it(kind: str, name: str, holds: bool) -> None:
    """X4: A pause holds the jobs of its queue, task or tenant, and no others of that name."""
    pause = a_pause(kind, name)

    assert pause.holds(ROW) is holds
    assert Paused.of([pause]).holds(ROW) is holds


def test_job_of_no_tenant_is_of_none_that_is_paused() -> None:
    """T1: Jobs of nobody go on."""
    paused = Paused.of([a_pause("tenant", "acme")])

    assert not paused.holds({"queue": "mail", "name": "send"})
    assert paused.holds_some_of_a_queue
    assert paused
    assert not NOTHING_PAUSED
    assert not Paused.of([a_pause("queue", "mail")]).holds_some_of_a_queue
