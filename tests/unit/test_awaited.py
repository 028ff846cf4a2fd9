"""Telling those who wait for a job that it has ended, and nobody else (X3)."""

from __future__ import annotations

import pytest

from flask_henri_jobs.job import Job
from flask_henri_jobs.store.waits import REMEMBERED_SECONDS
from flask_henri_jobs.worker.awaited import MOST_REMEMBERED, Awaited


class Bell:
    def __init__(self) -> None:
        self.rung: list[list[str]] = []
        self.seconds = 0.0
        self.awaited = Awaited(self.rung.append, steady=lambda: self.seconds)

    def ask(self, job_id: str) -> None:
        self.awaited.heard({"awaited": job_id, "at": 0})


@pytest.fixture
def bell() -> Bell:
    return Bell()


def job(job_id: str, state: str = "done") -> Job:
    return Job({"_id": job_id, "state": state})


def test_costs_nothing_where_nobody_waits(bell: Bell) -> None:
    """X3: outcomes ring for those alone that somebody asked for."""
    bell.awaited.tell([job("a"), job("b")])
    bell.ask("c")
    bell.awaited.heard({"queue": "default", "run_at": 0})
    bell.awaited.tell([job("a"), job("b")])

    assert bell.rung == []


def test_tells_of_an_end_once(bell: Bell) -> None:
    """X3: the end of an attempt that goes back is no end; the first end is told, once."""
    bell.ask("a")
    bell.ask("b")
    bell.awaited.tell([job("a", "pending"), job("c")])
    bell.awaited.tell([job("a"), job("b", "dead"), job("c")])
    bell.awaited.tell([job("a")])

    assert bell.rung == [["a", "b"]]


def test_forgets_whom_nobody_asks_for_again(bell: Bell) -> None:
    """X3: somebody who waits asks again; one who gave up costs nothing for ever."""
    bell.ask("a")
    bell.ask("b")
    bell.seconds += REMEMBERED_SECONDS - 1
    bell.ask("b")
    bell.seconds += 1
    bell.awaited.tell([job("other")])
    bell.awaited.tell([job("a"), job("b")])

    assert bell.rung == [["b"]]


def test_memory_is_bounded(bell: Bell) -> None:
    """X3: very many that are waited for are found by looking, as if nobody rang."""
    for number in range(MOST_REMEMBERED + 1):
        bell.ask(str(number))
    bell.awaited.tell([job(str(MOST_REMEMBERED))])

    assert bell.rung == [[str(MOST_REMEMBERED)]]
