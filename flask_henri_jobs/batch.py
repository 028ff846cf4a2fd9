"""What a batch is: a set of jobs, and the callbacks that follow its last one."""

from __future__ import annotations

import typing as t

from .clock import to_datetime
from .job import Field, put_plain

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import Document, Job

OPEN, RUNNING, FINISHED = STATES = ("open", "running", "finished")

CALLBACKS = ("callback", "on_success", "on_failure")
"""The fields that hold the task names of a batch's callbacks."""

_KEY_ENDS = {"callback": "", "on_success": ":success", "on_failure": ":failure"}


class BatchRows(t.Protocol):
    """Where a batch's row is read anew; the store has it."""

    def row_of(self, batch_id: str) -> Document:
        """Return the row as it is now.

        :raises UnknownBatch: It was deleted.
        """
        ...

    def members(
        self, batch_id: str, *, state: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[Job]:
        """Return jobs of the batch, those first that changed last."""
        ...


class Counts(t.NamedTuple):
    """How far a batch is.

    :param done: How many members have ended, in whatever way.
    :param failed: How many of those are dead.
    """

    total: int
    done: int
    failed: int


def _count(value: t.Any) -> int:
    return 0 if value is None else int(value)


def _optional_text(value: t.Any) -> str | None:
    return None if value is None else str(value)


class Batch:
    """A set of jobs and one callback, which runs when all of them have ended.

    It is a snapshot of the row; :meth:`refresh` takes a new one. While the batch is not finished,
    ``done`` and ``failed`` show how far it is and may be short of the truth; once it is finished
    they are exact (B1). ``total`` is 0 until the batch is sealed.
    """

    __slots__ = ("_rows", "row")

    id = Field("_id", str)
    name = Field("name", _optional_text)
    total = Field("total", _count)
    done = Field("done", _count)
    failed = Field("failed", _count)
    created_at = Field("created_at", to_datetime)
    sealed_at = Field("sealed_at", to_datetime)
    finished_at = Field("finished_at", to_datetime)
    cancelled_at = Field("cancelled_at", to_datetime)
    """When somebody asked for its end, or None."""
    updated_at = Field("updated_at", to_datetime)
    callback = Field("callback", _optional_text)
    """The name of the task that is called at the end, or None."""
    callback_id = Field("callback_id", _optional_text)
    """The id of the job that calls it, once the batch is finished."""
    on_success = Field("on_success", _optional_text)
    on_failure = Field("on_failure", _optional_text)
    tenant = Field("tenant", _optional_text)

    def __init__(self, row: Mapping[str, t.Any], rows: BatchRows | None = None) -> None:
        self.row = row
        """The document as it is stored."""
        self._rows = rows

    @property
    def state(self) -> str:
        """``open`` until it is sealed, ``running`` until its last job has ended, ``finished``."""
        if self.row.get("finished_at") is not None:
            return FINISHED
        return OPEN if self.row.get("sealed_at") is None else RUNNING

    @property
    def succeeded(self) -> int:
        """How many members are done and not dead."""
        return max(0, self.done - self.failed)

    def refresh(self) -> t.Self:
        """Take a new snapshot, into this very object, and return it.

        :raises UnknownBatch: The batch was deleted.
        """
        self.row = self._source().row_of(self.id)
        return self

    def jobs(self, *, state: str | None = None, limit: int = 50, offset: int = 0) -> list[Job]:
        """Return the members, those first that changed last.

        :param state: Only those in this state.
        :param limit: At most so many, 1,000 or fewer.
        """
        return self._source().members(self.id, state=state, limit=limit, offset=offset)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the batch as JSON has it, with moments as ISO 8601."""
        shown: dict[str, t.Any] = {}
        for name in _SHOWN:
            put_plain(shown, name, getattr(self, name))
        return shown

    def _source(self) -> BatchRows:
        if self._rows is None:
            raise RuntimeError("This batch was not read from a database.")
        return self._rows

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state} {self.done}/{self.total}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self.row == other.row

    def __hash__(self) -> int:
        return hash(self.row.get("_id"))


_SHOWN = (
    "id",
    "name",
    "state",
    "total",
    "done",
    "failed",
    "succeeded",
    "created_at",
    "sealed_at",
    "cancelled_at",
    "finished_at",
    "callback",
    "callback_id",
    "on_success",
    "on_failure",
    "tenant",
)


def final_counts(batch: Mapping[str, t.Any], done: int, dead: int) -> Counts:
    """Return the counts of a batch whose members have all ended.

    :param done: How many members are found done now.
    :param dead: How many are found dead.

    A member that somebody deleted counts as ended. It counts as succeeded only so far as the
    batch's own counters saw more succeed than are found: nobody can say that of the others.
    """
    total = max(_count(batch.get("total")), done + dead)
    gone = total - done - dead
    seen = _count(batch.get("done")) - _count(batch.get("failed"))
    succeeded = done + min(gone, max(0, seen - done))
    return Counts(total=total, done=total, failed=total - succeeded)


def callbacks_after(batch: Mapping[str, t.Any], counts: Counts) -> list[str]:
    """Return which callbacks of a batch are due at its end: fields that name a task (B2)."""
    outcome = "on_failure" if counts.failed else "on_success"
    return [field for field in ("callback", outcome) if batch.get(field)]


def callback_key(batch_id: str, field: str) -> str:
    """Return the unique key under which a callback is enqueued, once (B2)."""
    return f"batch:{batch_id}{_KEY_ENDS[field]}"


def read_callback_key(key: str) -> tuple[str, str] | None:
    """Return the batch and the field that such a key is for; None where it is no such key."""
    begin, _, rest = key.partition(":")
    if begin != "batch" or not rest:
        return None
    for field in ("on_success", "on_failure"):
        if rest.endswith(_KEY_ENDS[field]):
            return rest.removesuffix(_KEY_ENDS[field]), field
    return rest, "callback"


def summary(batch: Mapping[str, t.Any], counts: Counts) -> dict[str, t.Any]:
    """Return what a callback is given as its ``batch`` argument."""
    return {
        "id": batch["_id"],
        "name": batch.get("name"),
        "total": counts.total,
        "done": counts.done,
        "failed": counts.failed,
        "succeeded": counts.done - counts.failed,
    }
