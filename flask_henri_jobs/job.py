"""What a job is."""

from __future__ import annotations

import json
import typing as t
from datetime import datetime, timedelta

from .clock import to_datetime
from .codec import decode
from .durations import Duration, to_duration
from .errors import HenriJobsError, JobFailed
from .redaction import concealed_row

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from .rate import Start

Document: t.TypeAlias = dict[str, t.Any]
T = t.TypeVar("T")

PENDING, RUNNING, DONE, DEAD = STATES = ("pending", "running", "done", "dead")
DEAD_REASONS = ("failed", "lost", "timeout", "discarded", "cancelled", "expired")

OWN_KEYS = ("recurring:", "batch:", "after:")
"""How the unique keys begin that the queue writes itself. They stay with a row that ended (Q7)."""


class PastAttempt(t.TypedDict):
    """An entry of a job's history: an attempt that did not succeed."""

    at: datetime
    attempt: int
    duration: timedelta | None
    message: str | None
    runner: str | None


class Rows(t.Protocol):
    """Where a job's row is read anew; the store has it."""

    def row_of(self, job_id: str) -> Document:
        """Return the row as it is now.

        :raises UnknownJob: It was deleted.
        """
        ...

    def wait_for_end(self, job_id: str, timeout: float | None) -> Document:
        """Return the row once the job is done or dead.

        :raises WaitTimeout: It has not ended in that many seconds.
        """
        ...


class Stored(t.Protocol):
    """What has a row; a job, or a batch."""

    row: Mapping[str, t.Any]


class Field(t.Generic[T]):
    """One attribute of a job or batch, read from its row when it is asked for.

    A worker moves thousands of jobs a second and looks at few of their attributes.

    :param key: The name of the stored field.
    :param read: Makes the attribute's value of what is stored.
    """

    def __init__(self, key: str, read: t.Callable[[t.Any], T]) -> None:
        self.key = key
        self._read = read

    def can_read(self, value: t.Any) -> bool:
        """Whether what is stored is what belongs there."""
        try:
            self._read(value)
        except (HenriJobsError, ArithmeticError, AttributeError, TypeError, ValueError):
            return False
        return True

    @t.overload
    def __get__(self, stored: None, owner: type[Stored]) -> Field[T]: ...
    @t.overload
    def __get__(self, stored: Stored, owner: type[Stored]) -> T: ...
    def __get__(self, stored: Stored | None, owner: type[Stored]) -> Field[T] | T:
        return self if stored is None else self._read(stored.row.get(self.key))


def _number(value: t.Any) -> int:
    # A henri runner writes JavaScript numbers, which arrive as floats.
    return 0 if value is None else int(value)


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)


def _optional_text(value: t.Any) -> str | None:
    return None if value is None else str(value)


def _moment(value: t.Any) -> datetime:
    return t.cast(datetime, to_datetime(_number(value)))


def _duration(value: t.Any) -> timedelta | None:
    return None if value is None else timedelta(milliseconds=float(value))


def _headers(value: t.Any) -> dict[str, str]:
    return dict(value or {})


def _tags(value: t.Any) -> tuple[str, ...]:
    return tuple(map(str, value or ()))


def entries_of(history: t.Any) -> list[Document]:
    """Return the entries of a stored history; none of one that some other program spoilt."""
    try:
        entries = json.loads(history) if history else []
    except (TypeError, ValueError):
        return []
    listed = entries if isinstance(entries, list) else []
    return [entry for entry in listed if isinstance(entry, dict)]


def _history(value: t.Any) -> list[PastAttempt]:
    return [
        PastAttempt(
            at=_moment(entry.get("at")),
            attempt=_number(entry.get("attempt")),
            duration=_duration(entry.get("duration")),
            message=_optional_text(entry.get("message")),
            runner=_optional_text(entry.get("runner")),
        )
        for entry in entries_of(value)
    ]


def _result(value: t.Any) -> t.Any:
    return decode(value, "result")


class JobProgress(t.TypedDict):
    """How far a job said that it is."""

    done: float
    total: float | None
    message: str | None
    at: datetime


class LogLine(t.TypedDict):
    """A log line that a job has kept."""

    at: datetime
    attempt: int
    level: str
    logger: str
    message: str


def _log_lines(value: t.Any) -> list[LogLine]:
    return [
        LogLine(
            at=_moment(line.get("at")),
            attempt=_number(line.get("attempt")),
            level=_text(line.get("level")),
            logger=_text(line.get("logger")),
            message=_text(line.get("message")),
        )
        for line in (value or {}).get("lines", ())
    ]


def _dropped_lines(value: t.Any) -> int:
    return _number((value or {}).get("dropped"))


def _progress(value: t.Any) -> JobProgress | None:
    if value is None:
        return None
    done, total, message = (value.get(name) for name in ("done", "total", "message"))
    if not isinstance(done, int | float) or not isinstance(total, int | float | None):
        raise TypeError("progress is no number")
    return JobProgress(done=done, total=total, message=message, at=_moment(value.get("at")))


class Job:
    """A stored unit of work: a task's name and its arguments, with a state.

    It is a snapshot of the row; :meth:`refresh` takes a new one. Moments are aware datetimes in
    UTC, by the database server's clock.
    """

    __slots__ = ("_rows", "created", "permit", "row", "start")

    id = Field("_id", _text)
    name = Field("name", _text)
    queue = Field("queue", _text)
    state = Field("state", _text)
    priority = Field("priority", _number)
    args = Field("args", decode)
    attempts = Field("attempts", _number)
    max_attempts = Field("max_attempts", _number)
    timeout = Field("timeout_ms", _duration)
    run_at = Field("run_at", _moment)
    created_at = Field("created_at", _moment)
    updated_at = Field("updated_at", _moment)
    started_at = Field("started_at", to_datetime)
    finished_at = Field("finished_at", to_datetime)
    expires_at = Field("expires_at", to_datetime)
    claimed_at = Field("claimed_at", to_datetime)
    claimed_by = Field("claimed_by", _optional_text)
    claim_token = Field("claim_token", _optional_text)
    heartbeat_at = Field("heartbeat_at", to_datetime)
    duration = Field("duration_ms", _duration)
    error = Field("error_message", _optional_text)
    error_stack = Field("error_stack", _optional_text)
    history = Field("history", _history)
    result = Field("result", _result)
    """What the task returned, where it was declared with ``store_result=True`` (X3)."""
    result_error = Field("result_error", _optional_text)
    """Why a result that was to be stored is not."""
    progress = Field("progress", _progress)
    logs = Field("logs", _log_lines)
    """The newest lines that it has logged, where its task was declared with ``keep_logs``."""
    logs_dropped = Field("logs", _dropped_lines)
    """How many older lines there were."""
    tags = Field("tags", _tags)
    headers = Field("headers", _headers)
    tenant = Field("tenant", _optional_text)
    batch_id = Field("batch_id", _optional_text)
    unique_key = Field("unique_key", _optional_text)
    concurrency_key = Field("concurrency_key", _optional_text)
    cancel_requested = Field("cancel_requested_at", to_datetime)
    """When somebody asked for the job to end (W8), or None."""

    def __init__(
        self,
        row: Mapping[str, t.Any],
        rows: Rows | None = None,
        *,
        created: bool = True,
        permit: str | None = None,
    ) -> None:
        self.row = row
        """The document as it is stored."""
        self.created = created
        """False where an enqueue was handed a job that was there already (Q7)."""
        self.permit = permit
        """The permit that its runner holds for it, while it holds one (L2)."""
        self.start: Start | None = None
        """The start that its runner has counted for it, where its task has a rate (X4)."""
        self._rows = rows

    @property
    def dead_reason(self) -> str | None:
        """Why a dead job is dead: one of ``DEAD_REASONS``. None while it is not dead."""
        if self.row.get("state") != DEAD:
            return None
        return _text(self.row.get("dead_reason") or "failed")

    def with_row(self, row: Mapping[str, t.Any]) -> Job:
        """Return this job as another snapshot shows it."""
        return Job(row, self._rows, created=self.created)

    def refresh(self) -> t.Self:
        """Take a new snapshot, into this very object, and return it.

        :raises UnknownJob: The job was deleted.
        """
        self.row = self._source().row_of(self.id)
        return self

    def wait(self, timeout: Duration | None = None) -> t.Any:
        """Wait for the job's end and return its result, None where it stores none.

        :param timeout: Seconds, a ``timedelta``, or text such as ``"5m"``; None waits as long as
            it takes.
        :raises JobFailed: The job is dead.
        :raises WaitTimeout: It has not ended in time.
        """
        seconds = None if timeout is None else to_duration(timeout, "timeout").total_seconds()
        self.row = self._source().wait_for_end(self.id, seconds)
        if self.state == DEAD:
            raise JobFailed(f"Job {self.id} ({self.name}) is dead: {self.error}")
        return self.result

    def to_dict(self) -> dict[str, t.Any]:
        """Return the job as JSON has it: moments as ISO 8601, durations as ``…_ms``.

        What its task redacts is not in it.
        """
        return _plain(self.concealed())

    def concealed(self) -> Job:
        """Return the job as it may be shown: without the arguments that its task redacts."""
        if not self.row.get("redact"):
            return self
        return Job(concealed_row(self.row), self._rows, created=self.created)

    def _source(self) -> Rows:
        if self._rows is None:
            raise RuntimeError("This job was not read from a database.")
        return self._rows

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.row == other.row

    def __hash__(self) -> int:
        return hash(self.row.get("_id"))


_SHOWN = [
    "id",
    "name",
    "queue",
    "state",
    "priority",
    "attempts",
    "max_attempts",
    "timeout",
    "run_at",
    "created_at",
    "started_at",
    "finished_at",
    "expires_at",
    "duration",
    "error",
    "error_stack",
    "dead_reason",
    "history",
    "result_error",
    "progress",
    "logs",
    "logs_dropped",
    "tags",
    "tenant",
    "batch_id",
    "unique_key",
    "concurrency_key",
    "claimed_by",
    "cancel_requested",
    "headers",
    "created",
]


def _plain(job: Job) -> dict[str, t.Any]:
    shown: dict[str, t.Any] = {}
    for name in _SHOWN:
        put_plain(shown, name, getattr(job, name))
    # As stored: a tagged value is JSON already, and its Python form is not.
    shown["args"] = json.loads(job.row["args"]) if job.row.get("args") else None
    shown["result"] = json.loads(job.row["result"]) if job.row.get("result") else None
    return shown


def put_plain(into: dict[str, t.Any], name: str, value: t.Any) -> None:
    """Put a value under its name as JSON has it; a duration goes under ``<name>_ms``."""
    match value:
        case timedelta():
            into[f"{name}_ms"] = round(value / timedelta(milliseconds=1))
        case None if name in {"timeout", "duration"}:
            into[f"{name}_ms"] = None
        case datetime():
            into[name] = value.isoformat()
        case dict():
            into[name] = _all_plain(value)
        case list() | tuple():
            into[name] = [_all_plain(item) if isinstance(item, dict) else item for item in value]
        case _:
            into[name] = value


def _all_plain(values: Mapping[str, t.Any]) -> dict[str, t.Any]:
    plain: dict[str, t.Any] = {}
    for name, value in values.items():
        put_plain(plain, name, value)
    return plain


def keeps_key(unique_key: str | None) -> bool:
    """Whether a unique key stays with its row when the job ends (Q7)."""
    return unique_key is not None and unique_key.startswith(OWN_KEYS)
