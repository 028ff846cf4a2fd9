"""How far a running job says that it is (X3)."""

from __future__ import annotations

import typing as t

from .checks import checked_number, checked_text
from .outcome import cut

if t.TYPE_CHECKING:
    from .clock import Moment
    from .job import Document, Job

MOST_MESSAGE_BYTES = 512
MOST_COUNT = 2**53 - 1
"""Beyond it a henri application, and a browser, reads another number."""


class Progress(t.NamedTuple):
    """What a task said of its progress."""

    done: float
    total: float | None = None
    message: str | None = None

    @classmethod
    def read(cls, done: object, total: object, message: object) -> Progress:
        """Check what a task says.

        :raises ConfigError: ``done`` or ``total`` is no number from 0 on, or ``message`` no text.
        """
        return cls(
            _count(done, "done"),
            None if total is None else _count(total, "total"),
            None if message is None else checked_text(message, "message"),
        )

    def stored(self, at: Moment) -> Document:
        """Return it as its job has it; the message is cut to 512 bytes."""
        message = None if self.message is None else cut(self.message, MOST_MESSAGE_BYTES)
        return {"done": self.done, "total": self.total, "message": message, "at": at}


class Track:
    """The progress of one attempt: what its task said last, and what of it is stored.

    A task may say something a hundred thousand times, so that is cheap, and others write what it
    said last.

    :param on_news: Called in the task's thread when there is something to write, and not again
        before that was taken.
    """

    __slots__ = (
        "_is_waiting",
        "_latest",
        "_on_news",
        "_written",
        "has_ended",
        "is_held",
        "job",
    )

    def __init__(self, job: Job, on_news: t.Callable[[Track], None] | None = None) -> None:
        self.job = job
        self.has_ended = False
        """Whether the attempt is over. What is not written by then goes with its outcome."""
        self.is_held = False
        """Whether it is not to be written for now: the job is in a transaction (X2)."""
        self._on_news = on_news
        self._latest: Progress | None = None
        self._written: Progress | None = None
        self._is_waiting = False

    def set(self, progress: Progress) -> None:
        """Note what the task says."""
        self._latest = progress
        if not self._is_waiting and self._on_news is not None:
            self._is_waiting = True
            self._on_news(self)

    def take(self) -> Progress:
        """Return what was said last, to be written."""
        # Before it is read: what is said from now on is news.
        self._is_waiting = False
        assert self._latest is not None
        return self._latest

    def wrote(self, progress: Progress) -> None:
        """Note what is stored."""
        self._written = progress

    def left(self, at: Moment) -> Document:
        """End the track. Return the fields that the attempt's outcome has to write."""
        self.has_ended = True
        if self._latest is None or self._latest is self._written:
            return {}
        return {"progress": self._latest.stored(at)}


def _count(value: object, where: str) -> float:
    # The usual case first: this is called in loops.
    if type(value) is int and 0 <= value <= MOST_COUNT:
        return value
    return checked_number(value, where, 0, MOST_COUNT)
