"""How far a job says that it is."""

from __future__ import annotations

import typing as t

import pytest

from bad_inputs import BAD_PROGRESS
from flask_henri_jobs.context import RunningJob, current_job, entered
from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.job import Job
from flask_henri_jobs.progress import MOST_COUNT, MOST_MESSAGE_BYTES, Progress, Track

AT = 1_800_000_000_000


@pytest.fixture
def job() -> Job:
    return Job({"_id": "a"})


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ((3, None, None), {"done": 3, "total": None, "message": None}),
        ((0, 0, ""), {"done": 0, "total": 0, "message": ""}),
        ((0.5, 1, "half"), {"done": 0.5, "total": 1, "message": "half"}),
        ((MOST_COUNT, MOST_COUNT, None), {"done": MOST_COUNT, "total": MOST_COUNT}),
    ],
)
def test_what_is_stored(said: tuple[t.Any, ...], stored: dict[str, t.Any]) -> None:
    """X3: progress is stored as it was said, with its moment."""
    assert Progress.read(*said).stored(AT) == {"message": None, **stored, "at": AT}


def test_long_message() -> None:
    """A message that is too long is cut; one that is no UTF-8 is spelt out."""
    stored = Progress.read(1, None, "ä" * MOST_MESSAGE_BYTES).stored(AT)

    assert MOST_MESSAGE_BYTES - 4 <= len(stored["message"].encode()) <= MOST_MESSAGE_BYTES
    assert Progress.read(1, None, "a\ud800").stored(AT)["message"] == "a\\ud800"


@pytest.mark.parametrize(("given", "message"), BAD_PROGRESS)
def test_what_is_no_progress(job: Job, given: dict[str, t.Any], message: str) -> None:
    """What is no progress is refused, and what was said before stays."""
    track = Track(job)
    with entered(RunningJob(job, track)):
        current_job.set_progress(1)
        with pytest.raises(ConfigError) as refused:
            current_job.set_progress(**given)

    assert str(refused.value) == message
    assert track.left(AT)["progress"]["done"] == 1


def test_outside_a_job() -> None:
    """Outside a job ``set_progress`` does nothing, so that a function can be called by anybody."""
    current_job.set_progress(1, total=2, message="half")

    assert not current_job


def test_news_is_told_once(job: Job) -> None:
    """Who writes is told of the first of many, and again only after that was taken."""
    told: list[Track] = []
    track = Track(job, told.append)

    for done in range(100):
        track.set(Progress(done))
    assert told == [track]
    assert track.take() == Progress(99)
    track.set(Progress(100))
    assert told == [track, track]


def test_what_an_outcome_has_to_write(job: Job) -> None:
    """The last value lands: with the outcome, where nobody has written it before."""
    silent, written, behind = Track(job), Track(job), Track(job)
    last = Progress(7)
    for track in (written, behind):
        track.set(last)
    written.wrote(written.take())
    behind.wrote(behind.take())
    behind.set(Progress(8))

    assert silent.left(AT) == {}
    assert written.left(AT) == {}
    assert behind.left(AT)["progress"]["done"] == 8
    assert behind.has_ended
