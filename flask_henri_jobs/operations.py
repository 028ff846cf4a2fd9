"""The operator's half of the extension: what is asked of jobs that are there."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

from flask import current_app

from . import signals
from .batch_operations import BatchOperations
from .cancelling import cancel
from .checks import checked_name
from .durations import millis, to_duration
from .errors import InvalidFilter
from .explaining import explain, explain_callback
from .job import DEAD, DONE
from .pause import KINDS, QUEUE, TASK, TENANT, Paused
from .signals import emit
from .store.filters import JobFilter
from .store.lookup import unknown
from .store.transactions import after_commit
from .tenant import is_visible, refuse_in_scope, tenant_in_scope, visible_tenant

if t.TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from flask import Flask

    from .app_state import AppState
    from .durations import Duration
    from .job import Job
    from .pause import Pause
    from .reason import Reason
    from .store import Store
    from .store.connection import Session
    from .store.runners import LiveRunner

Names: t.TypeAlias = list[str]
Found: t.TypeAlias = "list[Job]"
Alive: t.TypeAlias = "list[LiveRunner]"
Pauses: t.TypeAlias = "list[Pause]"
Reasons: t.TypeAlias = "list[Reason]"


class JobFilters(t.TypedDict, total=False):
    """What selects jobs: each is text, and all that are given must fit."""

    state: str | None
    queue: str | None
    name: str | None
    tenant: str | None
    batch: str | None
    tag: str | None
    reason: str | None


class Pausable(t.TypedDict, total=False):
    """What is paused or resumed: exactly one of these is given."""

    queue: str | None
    name: str | None
    tenant: str | None


class Operations:
    """Looking at jobs, and putting them right. Each method needs an app context.

    Where a tenant is in scope, every job that is asked for is that tenant's, and those of others
    are as if they were not there (T2).

    Each raises :class:`~flask_henri_jobs.errors.StoreUnavailable` where the database does not
    answer in time.
    """

    @property
    def state(self) -> AppState:
        """The current app's share of this extension."""
        raise AssertionError

    def _announced(self, job: Job, session: Session | None = None) -> Job:
        """Tell of a job that was stored, and return it.

        :param session: It was stored in this session's transaction, whose commit is told of (X1).
        """
        if job.created and signals.job_enqueued.receivers:
            tell = functools.partial(emit, signals.job_enqueued, _app(), job=job)
            if session is None:
                tell()
            else:
                after_commit(session, tell)
        return job

    def get(self, job_id: str) -> Job | None:
        """Return a job, or None where there is none with that id."""
        job_id = _checked_id(job_id)
        job = self.state.store.admin.find(job_id)
        return job if job is not None and is_visible(job.tenant) else None

    def list(
        self, *, limit: int = 50, offset: int = 0, **filters: t.Unpack[JobFilters]
    ) -> list[Job]:
        """Return jobs, those first that changed last.

        :param limit: At most so many, 1,000 or fewer.
        :raises InvalidFilter: A filter is not text, or names no such state (Q9).
        """
        which = _selected(filters)
        return self.state.store.admin.page(which, limit, offset)

    def dead(self, *, limit: int = 50, offset: int = 0, **filters: t.Unpack[JobFilters]) -> Found:
        """Return the dead letters that somebody should look at, the latest first.

        Without a ``reason`` they are those that :meth:`retry_all` would take.
        """
        which = _dead_letters(filters)
        return self.state.store.admin.page(which, limit, offset)

    def count(self, **filters: t.Unpack[JobFilters]) -> int:
        """Return how many jobs there are that fit."""
        which = _selected(filters)
        return self.state.store.admin.count(which)

    def status(self) -> dict[str, t.Any]:
        """Return the state of every queue, and the waiting tasks.

        ``queues`` is a list of ``{queue, pending, running, done, dead, oldest_ms, paused}``, where
        ``oldest_ms`` is how long the oldest due job has waited; ``waiting_tasks`` counts waiting
        jobs by the names of their tasks; ``unknown_tasks`` names those that no live runner knows;
        ``runners`` says how many live, and ``pauses`` what is paused, as ``Pause.to_dict``
        has it.
        """
        found = self.state.store.figures.status()
        alive = self.runners()
        known = {name for runner in alive for name in runner.tasks}
        unknown = [name for name in found["waiting_tasks"] if name not in known]
        pauses = self.pauses()
        paused = Paused.of(pauses)
        for queue in found["queues"]:
            queue["paused"] = queue["queue"] in paused.queues
        return found | {
            "unknown_tasks": unknown,
            "runners": len(alive),
            "pauses": [pause.to_dict() for pause in pauses],
        }

    def runners(self) -> Alive:
        """Return the processes that perform jobs now, those first that have lived longest."""
        return self.state.store.runners.alive(self.state.settings.stuck_after)

    def explain(self, job_id: str) -> Reasons:
        """Return every reason why a job does not run now, that it runs or has ended among them.

        There is none where nothing holds it back: a runner will take it in a moment (X8). A
        batch's callback is stored as its batch ends. It is asked about by the unique key that it
        will have: ``batch:<id>``, ``batch:<id>:success`` or ``batch:<id>:failure``.

        :raises UnknownJob: There is none with that id.
        """
        job = self.get(job_id)
        reasons = explain_callback(self.state, job_id) if job is None else explain(self.state, job)
        if reasons is None:
            raise unknown(job_id)
        return reasons

    def pause(self, **which: t.Unpack[Pausable]) -> Pause:
        """Have no job of a queue, a task or a tenant begin, until it is resumed (X4).

        What runs goes on to its end. A second after this returned nothing of it begins any more,
        in no runner. It may be repeated.

        :raises InvalidFilter: Not exactly one of ``queue=``, ``name=`` and ``tenant=`` is given;
            or the code runs for a tenant, and names more than that tenant.
        """
        kind, name = _pausable(which, "pause")
        return self.state.store.pauses.add(kind, name)

    def resume(self, **which: t.Unpack[Pausable]) -> Pause | None:
        """Let the jobs of a queue, a task or a tenant begin again, at once.

        :return: The pause that ended; None where there was none.
        :raises InvalidFilter: As :meth:`pause`.
        """
        kind, name = _pausable(which, "resume")
        ended = self.state.store.pauses.remove(kind, name)
        if ended is not None:
            queues = [name] if kind == QUEUE else self.state.store.figures.queues_with_work()
            for queue in queues:
                self.state.store.wakeups.ring(queue)
        return ended

    def pauses(self) -> Pauses:
        """Return what is paused: queues, then tasks, then tenants, by name."""
        pauses = self.state.store.pauses.all()
        return [pause for pause in pauses if pause.kind != TENANT or is_visible(pause.name)]

    def retry(self, job_id: str) -> Job:
        """Have a job that ended performed again, with all its attempts; its history stays (Q10).

        :raises UnknownJob: There is none with that id.
        :raises JobBusy: It is running.
        """
        job_id = self._reachable(job_id)
        return self.state.store.admin.retry(job_id)

    def cancel(self, job_id: str) -> Job:
        """Have a job end, and return it as it is now (W8).

        One that waits is dead at once as cancelled, and never begins. One that runs is told to
        end, and is dead then, unless it is done first; it does not begin again. One that has ended
        stays as it is.

        :raises UnknownJob: There is none with that id.
        """
        return cancel(self.state, self._reachable(job_id), self._announced)

    def retry_all(self, **filters: t.Unpack[JobFilters]) -> int:
        """Retry the dead jobs that fit. Return how many.

        Without a ``reason`` they are those that failed, were lost, or ran out of time: what was
        discarded, cancelled or has expired was meant to end (Q5).
        """
        return sum(self.retrying(**filters))

    def retrying(self, **filters: t.Unpack[JobFilters]) -> Iterator[int]:
        """Retry as :meth:`retry_all` does, as far as the caller goes on.

        Yield after each step, of a thousand jobs at most, how many it was.
        """
        which = _selected(filters)
        return self.state.store.admin.retry_in_steps(which)

    def count_retried(self, **filters: t.Unpack[JobFilters]) -> int:
        """Return how many jobs :meth:`retry_all` would retry now."""
        which = _selected(filters)
        return self.state.store.admin.count(which if which.state == DONE else which.or_alarming())

    def delete(self, job_id: str) -> Job:
        """Delete a job. Return it as it was.

        :raises UnknownJob: There is none with that id.
        :raises JobBusy: It is running.
        """
        job_id = self._reachable(job_id)
        job = self.state.store.admin.delete(job_id)
        if job is None:
            raise unknown(job_id)
        return _told_deleted(job)

    def delete_all(self, **filters: t.Unpack[JobFilters]) -> int:
        """Delete the jobs that fit and do not run. Return how many.

        :raises InvalidFilter: Nothing was given to select them by.
        """
        return sum(1 for _ in self.deleting(**filters))

    def deleting(self, **filters: t.Unpack[JobFilters]) -> Iterator[Job]:
        """Delete as :meth:`delete_all` does, as far as the caller goes on; yield each as it was."""
        # The scope alone does not say which: it was entered for other reasons.
        is_empty = JobFilter.read(**filters).is_empty
        which = JobFilter() if is_empty else _selected(filters)
        return map(_told_deleted, self.state.store.admin.delete_many(which))

    def prune(
        self, *, keep_done: Duration | None = None, keep_dead: Duration | None = None
    ) -> dict[str, int]:
        """Delete what has been kept long enough, as workers do by and by (Q12).

        :param keep_done: Instead of what the setting says; and so ``keep_dead``.
        :return: How many were deleted, by state.
        """
        settings = self.state.settings
        kept = {
            DONE: _kept(settings.keep_done, keep_done, "keep_done"),
            DEAD: _kept(settings.keep_dead, keep_dead, "keep_dead"),
        }
        return {state: _pruned(self.state.store, state, time) for state, time in kept.items()}

    def wake(self, queue: str) -> None:
        """Have the runners of a queue look for jobs at once.

        It is for jobs that nothing rang for, such as those that another program stored: they
        would be found by polling (W3).
        """
        self.state.store.wakeups.ring(checked_name(queue, "queue", error=InvalidFilter))

    @property
    def batches(self) -> BatchOperations:
        """The batches: ``get``, ``list``, ``jobs``, ``cancel``, ``delete``, ``open``."""
        return BatchOperations(self.state, self._announced)

    def install(self) -> Names:
        """Make the indexes that are missing. Return their names; it may be repeated."""
        return self.state.store_as_it_is.install()

    def uninstall(self) -> Names:
        """Drop every collection of the queue, with all jobs. Return their names."""
        return self.state.store_as_it_is.uninstall()

    def _reachable(self, job_id: object) -> str:
        """Return the id of a job, unless it is another tenant's (T2)."""
        checked = _checked_id(job_id)
        if tenant_in_scope() is not None and self.get(checked) is None:
            raise unknown(checked)
        return checked


def _pausable(given: Pausable, verb: str) -> tuple[str, str]:
    """Return the kind and the name of the one thing that is named."""
    named = {kind: given.get(_PAUSABLE[kind]) for kind in KINDS}
    names = {kind: name for kind, name in named.items() if name is not None}
    if len(names) != 1 or given.keys() - Pausable.__annotations__.keys():
        raise InvalidFilter(
            f"jobs.{verb}() is given {', '.join(f'{one}=' for one in given) or 'nothing'}.",
            hint="Give exactly one of queue=, name= (a task's) and tenant=.",
        )
    [(kind, name)] = names.items()
    checked = checked_name(name, _PAUSABLE[kind], error=InvalidFilter)
    if kind == TENANT:
        return kind, t.cast(str, visible_tenant(checked))
    refuse_in_scope(f"jobs.{verb}({_PAUSABLE[kind]}=) is about the jobs of every tenant")
    return kind, checked


_PAUSABLE = {QUEUE: "queue", TASK: "name", TENANT: "tenant"}


def _selected(filters: JobFilters) -> JobFilter:
    which = JobFilter.read(**filters)
    return replace(which, tenant=visible_tenant(which.tenant))


def _told_deleted(job: Job) -> Job:
    emit(signals.job_deleted, _app(), job=job)
    return job


def _dead_letters(filters: JobFilters) -> JobFilter:
    which = _selected(filters)
    if which.state not in {None, DEAD}:
        raise InvalidFilter(f"state is {which.state!r}, and dead letters are dead.")
    return which.or_alarming()


def _kept(setting: timedelta | None, instead: Duration | None, where: str) -> timedelta | None:
    return setting if instead is None else to_duration(instead, where)


def _pruned(store: Store, state: str, kept: timedelta | None) -> int:
    if kept is None:
        return 0
    before = store.clock.now() - millis(kept)
    return sum(iter(lambda: store.pruning.prune(state, before), 0))


def _checked_id(job_id: object) -> str:
    return checked_name(job_id, "id", error=InvalidFilter)


def _app() -> Flask:
    return current_app._get_current_object()  # type: ignore[attr-defined,no-any-return]
