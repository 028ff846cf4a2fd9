"""Log lines that say which job they are about, and as JSON if wanted (X6).

In a worker every handler of the process gives each record the fields :data:`FIELDS`. Elsewhere,
and in a format string that names them, the application's own configuration does::

    logging.config.dictConfig({
        "version": 1,
        "formatters": {"json": {"()": "flask_henri_jobs.logs.JsonFormatter"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"level": "INFO", "handlers": ["console"]},
    })
"""

from __future__ import annotations

import json
import logging
import typing as t
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime

from flask.logging import default_handler

from .context import job_in_hand

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .job import Job

FIELDS = ("job_id", "task", "queue", "attempt", "runner", "tenant")
"""What a record says of the job in hand; each is None outside a job, or where there is none."""

_subject: ContextVar[Job | None] = ContextVar("flask_henri_jobs.subject", default=None)


class JobFields(logging.Filter):
    """Gives each record the fields of the job that it is about, and lets all of them pass.

    It goes on a handler. A field that the record has already, from ``extra=`` or another filter,
    stays as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the fields that are not there."""
        for name, value in _fields_of(_subject.get() or job_in_hand()).items():
            record.__dict__.setdefault(name, value)
        return True


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON.

    It has ``time`` (ISO 8601 in UTC), ``level``, ``logger``, ``message``; the fields of the job
    that are not None; whatever ``extra=`` gave; and ``exception`` and ``stack`` where there are.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        _JOB_FIELDS.filter(record)
        line: dict[str, t.Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _OF_EVERY_RECORD and not (name in FIELDS and value is None):
                line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str, skipkeys=True)


def tell_of_jobs() -> None:
    """Have the handlers of this process give their records the fields. It may be repeated.

    Not by a factory of records: where that sets a field, a line with ``extra={"tenant": ...}``
    raises in the application.
    """
    for handler in _handlers():
        if not any(isinstance(one, JobFields) for one in handler.filters):
            # The first: the application's own filters may go by the fields.
            handler.filters.insert(0, _JOB_FIELDS)


def keep_lines() -> None:
    """Have the lines that a job logs kept by it, where it keeps any. It may be repeated.

    It is, before each such job: somebody may have set another factory since.

    By a factory of records, which changes none: a handler would take the place of those that step
    in where an application has no handler of its own.
    """
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, _Keeping):
        logging.setLogRecordFactory(_Keeping(factory))


class _Keeping:
    """Makes records as another factory does, and gives them to the job in hand."""

    def __init__(self, factory: Callable[..., logging.LogRecord]) -> None:
        self._factory = factory

    def __call__(self, *args: t.Any, **kwargs: t.Any) -> logging.LogRecord:
        record = self._factory(*args, **kwargs)
        job = job_in_hand()
        # A record without a name is a copy of another, as logging.makeLogRecord makes it.
        if job is not None and job.lines is not None and record.name is not None:
            # The record's arguments are the application's, and may not go with its message.
            with suppress(Exception):
                job.lines.add(record)
        return record


@contextmanager
def about(job: Job) -> Iterator[None]:
    """Have what is logged within the block be about a job, which need not be the one in hand."""
    token = _subject.set(job)
    try:
        yield
    finally:
        _subject.reset(token)


def _fields_of(job: Job | None) -> dict[str, t.Any]:
    if job is None:
        return dict.fromkeys(FIELDS)
    values = (job.id, job.name, job.queue, job.attempts, job.claimed_by, job.tenant)
    return dict(zip(FIELDS, values, strict=True))


def _handlers() -> Iterator[logging.Handler]:
    """Yield every handler that a logger has, and those that step in where none has one."""
    yield default_handler
    if logging.lastResort is not None:
        yield logging.lastResort
    yield from logging.root.handlers
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers


_JOB_FIELDS = JobFields()
_OF_EVERY_RECORD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
