"""The log lines that a job keeps, where its task was declared with ``keep_logs`` (X3).

They are stored in the job's field ``logs``, which is absent when unused: a document of ``lines``,
each of them ``{at, attempt, level, logger, message}``, and ``dropped``, how many older ones there
were.
"""

from __future__ import annotations

import logging
import threading
import typing as t
import weakref
from collections import deque

from .outcome import cut

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from .clock import Moment
    from .job import Document, Job

USUAL_LINES, MOST_LINES = 100, 1000
MOST_BYTES = 64 * 1024
"""Of the messages of all lines together, in UTF-8."""

MOST_LINE_BYTES = 4 * 1024
MOST_NAME_BYTES = 256

_traceback_of = logging.Formatter().formatException


class KeptLines:
    """The newest lines of a job, those of the attempt in hand and of the ones before it.

    :param most: How many lines.
    :param now: The server's time.
    """

    def __init__(self, job: Job, most: int, now: Callable[[], Moment]) -> None:
        stored = job.row.get("logs") or {}
        self._lines: deque[Document] = deque(stored.get("lines", ()))
        self._dropped = int(stored.get("dropped", 0))
        self._bytes = sum(map(_size, self._lines))
        self._attempt = job.attempts
        self._most = most
        self._now = now
        # The record itself would keep alive the frames of an exception that it tells of.
        self._last: Callable[[], logging.LogRecord | None] | None = None
        self._lock = threading.Lock()

    def add(self, record: logging.LogRecord) -> None:
        """Keep a record's line, and drop old ones where they are too many.

        :raises Exception: Whatever the application's ``__str__`` raises.
        """
        message = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            message = f"{message}\n{_traceback_of(record.exc_info)}"
        line: Document = {
            "at": self._now(),
            "attempt": self._attempt,
            "level": cut(record.levelname, MOST_NAME_BYTES),
            "logger": cut(record.name, MOST_NAME_BYTES),
            "message": cut(message, MOST_LINE_BYTES),
        }
        with self._lock:
            # Two factories of records may each have been given the other's.
            if self._last is None or self._last() is not record:
                self._last = weakref.ref(record)
                self._lines.append(line)
                self._bytes += _size(line)
                self._drop_old()

    def left(self) -> Document:
        """Return the fields that the attempt's outcome has to write."""
        with self._lock:
            if self._last is None:
                return {}
            return {"logs": {"lines": list(self._lines), "dropped": self._dropped}}

    def _drop_old(self) -> None:
        while len(self._lines) > self._most or self._bytes > MOST_BYTES:
            self._bytes -= _size(self._lines.popleft())
            self._dropped += 1


def _size(line: Document) -> int:
    return len(str(line["message"]).encode())
