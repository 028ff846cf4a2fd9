"""A batch while it takes jobs."""

from __future__ import annotations

import itertools
import typing as t
from concurrent.futures import ThreadPoolExecutor

from flask import current_app

from . import signals
from .batch import CALLBACKS, Batch
from .checks import checked_mapping, checked_name
from .codec import encode
from .errors import ConfigError, InvalidArguments, StoreUnavailable
from .finishing import stored_options
from .ids import new_id
from .options import NO_OVERRIDES, as_session
from .refused_options import refuse_for_batch
from .signals import emit
from .store.connection import bounded
from .store.transactions import after_commit
from .task import Prepared, Task
from .tenant import allowed_tenant, as_tenant, tenant_in_scope, tenant_scope

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from .app_state import AppState
    from .clock import Moment
    from .job import Document, Job
    from .options import Overrides
    from .store.connection import Session

P = t.ParamSpec("P")
T = t.TypeVar("T")

Callback: t.TypeAlias = Task[..., t.Any] | Prepared[..., t.Any] | str

MOST_AT_ONCE = 1000

_LARGEST: dict[str, t.Any] = {
    "id": "0" * 36,
    **dict.fromkeys(("total", "done", "failed", "succeeded"), 2**53 - 1),
}


class BatchOptions(t.TypedDict, total=False):
    """What ``jobs.batch(...)`` takes."""

    callback: Callback | None
    callback_args: Mapping[str, t.Any] | None
    on_success: Callback | None
    on_failure: Callback | None
    name: str | None
    tenant: str | None
    session: Session | None


class OpenBatch(Batch):
    """A batch that takes jobs until it is sealed, as the end of a ``with`` block does.

    An exception in the block leaves it unsealed: what is stored is performed, and no callback
    follows. It is used by one thread at a time.

    :param announced: Tells of a job that was stored.
    :param session: The batch, its jobs and its seal are there if this one's transaction commits.
    """

    __slots__ = ("_announced", "_batches", "_in_doubt", "_inbox", "_session", "_state")

    def __init__(
        self,
        batch: Batch,
        state: AppState,
        announced: Callable[[Job], Job],
        session: Session | None = None,
    ) -> None:
        super().__init__(batch.row, state.store.batches)
        self._state = state
        self._announced = announced
        self._session = session
        self._inbox = state.store.inbox_in(session)
        self._batches = state.store.batches_in(session)
        self._in_doubt: list[Document] = []

    def add(
        self, task: Task[P, t.Any] | Prepared[P, t.Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job:
        """Store a job of the batch that calls the task with these arguments, and return it.

        A job that was there already, under the same unique key or id, is returned in its place.
        It is no member, and ``job.created`` says so.

        :raises BatchSealed: The batch takes no more jobs (B4).
        :raises InvalidArguments: The arguments do not fit the function, or JSON (Q8).
        :raises StoreUnavailable: The database did not answer in time. Where ``maybe_stored`` has
            an id, do not add the job again: it will be stored before the batch is sealed.
        """
        prepared = _prepared(task)
        [row] = self._members_of(prepared, [prepared.task.signature.bind(args, kwargs)])
        with self._answering("an enqueue"):
            self._batches.refuse_sealed(self.id)
            try:
                job = self._inbox.add(row, prepared.overrides.on_conflict)
            except StoreUnavailable as error:
                if error.maybe_stored:
                    self._in_doubt.append(row)
                raise
        return self._announced(job)

    def add_many(
        self, task: Task[..., t.Any] | Prepared[..., t.Any], many: Iterable[Mapping[str, t.Any]]
    ) -> list[Job]:
        """Store a job for each mapping of arguments, as :meth:`add` does each; in the order given.

        They are stored a thousand at a time, so ``many`` may be a generator of very many.

        :raises StoreUnavailable: The database did not answer in time. The thousand at hand will
            be stored before the batch is sealed; those before it are stored.
        """
        prepared = _prepared(task)
        jobs: list[Job] = []
        # One thousand is made while the one before it is stored: each takes about as long.
        with ThreadPoolExecutor(1, "henri-jobs-batch") as aside:
            storing: Future[list[Job]] | None = None
            for part in _thousands(_bound(prepared, many)):
                rows = self._members_of(prepared, part)
                jobs += self._stored(storing)
                storing = aside.submit(self._store, rows, prepared.overrides)
            jobs += self._stored(storing)
        return jobs

    def seal(self) -> t.Self:
        """Close the batch to new jobs, and return it. Its callbacks run after its last job.

        A batch without jobs is finished at once. Sealing again changes nothing.

        :raises UnknownBatch: The batch was deleted.
        :raises StoreUnavailable: The database did not answer in time. It may be repeated.
        """
        self._settle_doubts()
        with self._answering("the seal of a batch"):
            self.row = self._batches.seal(self.id)
        if self._session is None:
            self._finish()
        else:
            after_commit(self._session, self._finish)
        return self

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.seal()

    def _answering(self, what: str) -> AbstractContextManager[None]:
        seconds = self._state.settings.enqueue_timeout.total_seconds()
        return bounded(what, seconds, self._session)

    def _now(self) -> Moment:
        with self._answering("an enqueue"):
            return self._state.enqueuer.now()

    def _members_of(
        self, prepared: Prepared[..., t.Any], many: Iterable[Mapping[str, t.Any]]
    ) -> list[Document]:
        """Return the documents of members, which are the batch's tenant's where it has one."""
        task, overrides, now = prepared.task, prepared.overrides, self._now()
        if overrides.session is not None and overrides.session is not self._session:
            raise ConfigError(
                "A job with session= is added to a batch with another, or with none.",
                hint="Give session= to jobs.batch(): its jobs and its seal go with it.",
            )
        with tenant_scope(self.tenant or tenant_in_scope()):
            made = [self._state.enqueuer.row(task, args, overrides, now) for args in many]
        return [row | {"batch_id": self.id} for row in made]

    def _store(self, rows: list[Document], overrides: Overrides) -> list[Job]:
        with self._answering("an enqueue"):
            self._batches.refuse_sealed(self.id)
        try:
            return self._inbox.add_many(rows, overrides.on_conflict)
        except StoreUnavailable:
            self._in_doubt += rows
            raise

    def _stored(self, storing: Future[list[Job]] | None) -> list[Job]:
        return [self._announced(job) for job in storing.result()] if storing else []

    def _finish(self) -> None:
        """End a batch whose jobs have all ended, or that has none."""
        if ended := finish_and_tell(self._state, self, self._announced):
            self.row = ended.row

    def _settle_doubts(self) -> None:
        """Store what may have been stored, so that it is counted, and not stored later (B4)."""
        if self._in_doubt:
            with self._answering("an enqueue"):
                self._batches.refuse_sealed(self.id)
            # What was stored meets its own id, and is there once (A11).
            for job in self._inbox.add_many(self._in_doubt):
                self._announced(job)
            self._in_doubt.clear()


def open_batch(
    state: AppState, announced: Callable[[Job], Job], options: Mapping[str, t.Any]
) -> OpenBatch:
    """Store a new batch, which takes jobs.

    :raises ConfigError: An option is unknown or wrong.
    :raises InvalidArguments: A callback cannot be called with ``callback_args`` and ``batch``.
    """
    refuse_for_batch(options, BatchOptions.__annotations__)
    given = {name: one for name, one in options.items() if one is not None}
    session = as_session(given["session"], "session=") if "session" in given else None
    seconds = state.settings.enqueue_timeout.total_seconds()
    with bounded("a new batch", seconds, session):
        row = _new_row(state, given, _tenant(options))
        batch = state.store.batches_in(session).create(row)
        return OpenBatch(batch, state, announced, session)


def finish_and_tell(state: AppState, batch: Batch, announced: Callable[[Job], Job]) -> Batch | None:
    """End a batch if its last job has ended, and tell. Return it where this call ended it."""
    ending = state.finisher.finish(batch)
    for job in ending.enqueued:
        announced(job)
    if ending.batch is not None:
        app = current_app._get_current_object()  # type: ignore[attr-defined]
        emit(signals.batch_finished, app, batch=ending.batch)
    return ending.batch


def _tenant(options: Mapping[str, t.Any]) -> str | None:
    """Return whose a new batch is: as for a job, None is for none (T1)."""
    if "tenant" not in options:
        return tenant_in_scope()
    named = options["tenant"]
    if named is None:
        return None
    return allowed_tenant(as_tenant(named, "tenant"), "jobs.batch(tenant=)")


def _new_row(state: AppState, given: Mapping[str, t.Any], tenant: str | None) -> Document:
    now = state.enqueuer.now()
    args = checked_mapping(given.get("callback_args", {}), "callback_args", error=InvalidArguments)
    row: Document = {
        "_id": new_id(now),
        "name": checked_name(given["name"], "name") if "name" in given else None,
        "callback": None,
        "callback_args": encode(args, "callback_args") if args else None,
        "callback_options": None,
        "callback_id": None,
        "total": 0,
        "done": 0,
        "failed": 0,
        "created_at": now,
        "sealed_at": None,
        "finished_at": None,
        "updated_at": now,
    }
    if tenant is not None:
        row["tenant"] = tenant
    with tenant_scope(tenant):
        for field in CALLBACKS:
            if field in given:
                row |= _callback_fields(state, field, given[field], args, row)
    return row


def _callback_fields(
    state: AppState, field: str, callback: Callback, args: Mapping[str, t.Any], row: Document
) -> Document:
    task, overrides = _callback(field, callback)
    given = {**args, "batch": _LARGEST | {"name": row["name"]}}
    if isinstance(task, Task):
        task.signature.call(given)
    now = row["created_at"]
    # Made now as it will be made at the end: what is wrong with it is told to who can mend it.
    job = state.enqueuer.row(task, given, overrides, now)
    options = stored_options(job, now, at=overrides.at, tenant=row.get("tenant"))
    return {field: job["name"], f"{field}_options": options}


def _callback(field: str, callback: object) -> tuple[Task[..., t.Any] | str, Overrides]:
    match callback:
        case Task():
            task, overrides = callback, NO_OVERRIDES
        case Prepared():
            task, overrides = callback.task, callback.overrides
        case str():
            return checked_name(callback, field), NO_OVERRIDES
        case _:
            raise ConfigError(
                f"{field} is {callback!r:.80}.", hint="Give a task, or the name of one."
            )
    if overrides.id or overrides.unique or overrides.session:
        raise ConfigError(
            f"{field} has an id, a unique key or a session of its own.",
            hint="Leave it out: a batch enqueues its callback once, under a key of its own.",
        )
    return task, overrides


def _prepared(task: object) -> Prepared[..., t.Any]:
    match task:
        case Prepared():
            return task
        case Task():
            return task.using()
        case _:
            raise ConfigError(
                f"A batch was given {task!r:.80} to add.",
                hint="Give a task, or task.using(...), and its arguments.",
            )


def _bound(
    prepared: Prepared[..., t.Any], many: Iterable[Mapping[str, t.Any]]
) -> Iterator[Mapping[str, t.Any]]:
    bind = prepared.task.signature.bind
    for at, given in enumerate(many):
        yield bind((), checked_mapping(given, f"Item {at} of add_many", error=InvalidArguments))


def _thousands(many: Iterator[T]) -> Iterator[list[T]]:
    while part := list(itertools.islice(many, MOST_AT_ONCE)):
        yield part
