"""From a task, its arguments and the options of one enqueue to a stored job."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from datetime import datetime, timedelta

from .clock import Moment, to_moment
from .codec import encode
from .durations import millis
from .ids import new_id
from .options import Overrides, TaskDefaults
from .store.connection import bounded
from .store.documents import new_row
from .tenant import allowed_tenant, tenant_in_scope, tenant_scope

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from .job import Document, Job
    from .settings import Settings
    from .store import Store
    from .store.inbox import Inbox
    from .store.inbox_in_transaction import TransactionalInbox
    from .task import Task

_NO_DEFAULTS = TaskDefaults()


@dataclass(frozen=True, slots=True)
class Enqueuer:
    """Makes rows and hands them to the store's inbox."""

    settings: Settings
    store: Store

    def add(self, task: Task[..., t.Any] | str, args: object, overrides: Overrides) -> Job:
        """Store one job.

        :param task: The task; or the name of one that another application owns.
        :param args: What it is called with: names and values, or for a henri task any value.
        """
        with self._bounded(overrides):
            row = self.row(task, args, overrides, self.now())
            return self._inbox(overrides).add(row, overrides.on_conflict)

    def add_many(
        self, task: Task[..., t.Any], many: Iterable[Mapping[str, t.Any]], overrides: Overrides
    ) -> list[Job]:
        """Store a job for each of many arguments, in their order."""
        with self._bounded(overrides):
            now = self.now()
        # The tenant of a request is asked for once, and not for each job.
        with tenant_scope(tenant_in_scope()):
            maker = RowMaker(task, overrides, self.settings, now)
            rows = [maker.row(args) for args in many]
        return self._inbox(overrides).add_many(rows, overrides.on_conflict)

    def row(
        self, task: Task[..., t.Any] | str, args: object, overrides: Overrides, now: Moment
    ) -> Document:
        """Return the document of a new job, which is not stored yet."""
        return row_of(task, args, overrides, self.settings, now)

    def now(self) -> Moment:
        """Return the server's time, which is asked for anew once a minute."""
        # A web process has no thread that would ask.
        if self.store.clock.is_due:
            self.store.clock.renew()
        return self.store.clock.now()

    def _bounded(self, overrides: Overrides) -> AbstractContextManager[None]:
        seconds = self.settings.enqueue_timeout.total_seconds()
        return bounded("an enqueue", seconds, overrides.session)

    def _inbox(self, overrides: Overrides) -> Inbox | TransactionalInbox:
        return self.store.inbox_in(overrides.session)


def row_of(
    task: Task[..., t.Any] | str,
    args: object,
    overrides: Overrides,
    settings: Settings,
    now: Moment,
) -> Document:
    """Return the document of a new job: an option, or else the task's, or else the app's.

    :raises ConfigError: An option names another tenant than the one in scope (T1).
    """
    return RowMaker(task, overrides, settings, now).row(args)


class RowMaker:
    """Makes the documents of new jobs of one task, with the same options and at one moment.

    :raises ConfigError: An option names another tenant than the one in scope (T1).
    """

    def __init__(
        self,
        task: Task[..., t.Any] | str,
        overrides: Overrides,
        settings: Settings,
        now: Moment,
    ) -> None:
        self._task = task
        self._overrides = overrides
        self._now = now
        self._most_bytes = settings.max_args_bytes
        self._tenant = _tenant(overrides)
        self._alike = _alike(task, overrides, settings, now, self._tenant)
        has_keys = overrides.unique is not None or not (isinstance(task, str) or task.has_no_keys)
        self._has_keys = has_keys

    def row(self, args: object) -> Document:
        """Return the document of a job with these arguments."""
        row = self._alike.copy()
        row["_id"] = self._overrides.id or new_id(self._now)
        row["args"] = encode(args, "args", self._most_bytes)
        if self._has_keys:
            row.update((key, value) for key, value in self._keys(args) if value is not None)
        return row

    def _keys(self, args: object) -> tuple[tuple[str, str | None], ...]:
        # A key that is made by a callable is made for the tenant whose job it is.
        with tenant_scope(self._tenant):
            return (
                ("unique_key", _unique_key(self._task, args, self._overrides, self._tenant)),
                ("concurrency_key", _concurrency_key(self._task, args)),
            )


def _alike(
    task: Task[..., t.Any] | str,
    overrides: Overrides,
    settings: Settings,
    now: Moment,
    tenant: str | None,
) -> Document:
    """Return what the documents have in common: an option, or else the task's, or the app's."""
    defaults = _NO_DEFAULTS if isinstance(task, str) else task.defaults
    run_at = _due(now, overrides)
    return new_row(
        id="",
        name=task if isinstance(task, str) else task.name,
        args="",
        now=now,
        run_at=run_at,
        queue=overrides.queue or defaults.queue or settings.default_queue,
        priority=_first(overrides.priority, defaults.priority, settings.priority),
        max_attempts=_first(overrides.max_attempts, defaults.max_attempts, settings.max_attempts),
        timeout_ms=_millis(overrides.timeout or defaults.timeout or settings.timeout),
        expires_at=_expiry(run_at, overrides.expires or defaults.expires),
        tenant=tenant,
        tags=[*overrides.tags] if overrides.tags else None,
        redact=[*defaults.redact] or None,
    )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _millis(duration: timedelta | None) -> int | None:
    return None if duration is None else millis(duration)


def _due(now: Moment, overrides: Overrides) -> Moment:
    if overrides.at is not None:
        return to_moment(overrides.at)
    return now + millis(overrides.wait) if overrides.wait else now


def _expiry(run_at: Moment, expires: timedelta | datetime | None) -> Moment | None:
    if isinstance(expires, timedelta):
        return run_at + millis(expires)
    return to_moment(expires) if expires else None


def _tenant(overrides: Overrides) -> str | None:
    if overrides.no_tenant:
        return None
    if overrides.tenant is not None:
        return allowed_tenant(overrides.tenant, "using(tenant=)")
    return tenant_in_scope()


def _concurrency_key(task: Task[..., t.Any] | str, args: object) -> str | None:
    if isinstance(task, str) or not task.lane:
        return None
    return task.concurrency_key(args if isinstance(args, dict) else {})


def _unique_key(
    task: Task[..., t.Any] | str, args: object, overrides: Overrides, tenant: str | None
) -> str | None:
    if overrides.unique is not None or overrides.never_unique or isinstance(task, str):
        return overrides.unique
    return task.unique_key(t.cast("Mapping[str, t.Any]", args), tenant)
