"""What a runner process leaves behind for its supervisor."""

from __future__ import annotations

import os
import typing as t

import pytest

from flask_henri_jobs.worker.marks import Marks, Stage, new_marks


@pytest.fixture
def marks() -> t.Iterator[Marks]:
    marks = new_marks()
    yield marks
    marks.close()


@pytest.fixture
def seen(marks: Marks) -> t.Iterator[Marks]:
    """The same file, as the other process has it."""
    assert marks.descriptor is not None
    seen = Marks(os.dup(marks.descriptor))
    yield seen
    seen.close()


def test_nothing_is_marked_at_first(seen: Marks) -> None:
    """A process that dies before it has an id leaves nothing behind."""
    assert (seen.stage, seen.runner, seen.begun()) == (Stage.STARTING, None, [])
    assert not seen.hurry
    assert not seen.suspects_wait


def test_begun_jobs(marks: Marks, seen: Marks) -> None:
    """A3: the other side sees the jobs that have begun and not returned, by their whole ids."""
    longest = "\N{SNOWMAN}" * 512
    first, _, _ = (marks.begin(job_id) for job_id in ("a", longest, "c"))

    marks.end(first)

    assert seen.begun() == [longest, "c"]


def test_performed_jobs(marks: Marks, seen: Marks) -> None:
    """Q4: a job that has returned is told from those that have not, until its outcome is stored."""
    first, second = (marks.begin(job_id) for job_id in ("a", "b"))

    marks.returned(first)

    assert (seen.begun(), seen.performed()) == (["b"], ["a"])
    marks.end(first)
    marks.returned(second)
    assert (seen.begun(), seen.performed()) == ([], ["b"])


def test_marks_are_used_again(marks: Marks, seen: Marks) -> None:
    """A shorter id in the place of a longer one is read as it is."""
    for number in range(3000):
        marks.end(marks.begin(f"{'x' * (number % 40)}{number}"))
    marks.begin("b")

    assert seen.begun() == ["b"]


def test_both_sides_are_heard(marks: Marks, seen: Marks) -> None:
    """Each side reads what the other wrote."""
    marks.runner, marks.stage, marks.suspects_wait = "host:1:runner", Stage.WORN, True
    seen.hurry = True

    assert (seen.runner, seen.stage, seen.suspects_wait) == ("host:1:runner", Stage.WORN, True)
    assert marks.hurry
