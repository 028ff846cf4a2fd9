"""Jobs in any state, as they are stored, and the time at which they are."""

from __future__ import annotations

import typing as t

from flask_henri_jobs.job import DEAD, DONE, RUNNING
from flask_henri_jobs.store.documents import new_row

if t.TYPE_CHECKING:
    from flask_henri_jobs.job import Document

START = 1_800_000_000_000


class Now:
    """The database server's time, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> int:
        return self.moment

    def advance(self, *, ms: int) -> int:
        """Move on, and return the new moment."""
        self.moment += ms
        return self.moment


class Stored(t.Protocol):
    """Stores a job and returns its row."""

    def __call__(self, job_id: str = ..., state: str = ..., **fields: t.Any) -> Document: ...


def row_of_state(job_id: str, state: str, now: int, **fields: t.Any) -> Document:
    """Return the row of a job in a state, as the queue would have left it there."""
    row = new_row(
        id=job_id,
        name="mail",
        args="{}",
        now=now,
        run_at=now,
        queue="default",
        priority=0,
        max_attempts=5,
    )
    if state == RUNNING:
        claim = {"claimed_by": "host:1:runner", "claim_token": "token", "started_at": now}
        row |= {"attempts": 1, "claimed_at": now, "heartbeat_at": now, **claim}
    if state in {DONE, DEAD}:
        row |= {"attempts": 1, "finished_at": now, "claim_token": "token", "duration_ms": 20}
    if state == DEAD:
        row |= {"error_message": "ValueError: no", "error_stack": "…", "dead_reason": "failed"}
    return row | {"state": state} | fields
