"""The tasks that the tests of batches have."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from flask_henri_jobs import Task

Document: t.TypeAlias = dict[str, t.Any]


class Tasks(t.NamedTuple):
    """The tasks of the app, and what its callbacks were given."""

    work: Task[[int], None]
    fail: Task[[int], None]
    once: Task[[int], None]
    finished: Task[..., None]
    called: list[tuple[str, Document]]
