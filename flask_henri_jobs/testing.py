"""For the tests of an application: jobs performed at once, or kept and performed when asked (X7).

Both ways run the real thing: the codec, the app context of a job, and, where jobs are kept, the
store. ``flask_henri_jobs.pytest_plugin`` has the same as fixtures.
"""

from __future__ import annotations

import contextlib
import secrets
import typing as t
from dataclasses import dataclass
from datetime import datetime

from . import signals
from .clock import Reading, to_datetime, to_moment
from .durations import Duration, millis, to_duration
from .store.filters import JobFilter

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flask import Flask

    from .clock import Clock
    from .extension import HenriJobs
    from .job import Job
    from .task import Task

    AnyTask = Task[..., t.Any] | str

MOST_LOOKED_AT = 1000


@contextlib.contextmanager
def inline(jobs: HenriJobs, app: Flask) -> Iterator[None]:
    """Perform each job at once within the block, where it is enqueued; nothing is stored.

    The job runs in an app context of its own: the caller's ``g`` and tenant are as before. What
    the task raises is raised by ``delay``.
    """
    with jobs.with_settings(app, inline=True):
        yield


@contextlib.contextmanager
def manual(jobs: HenriJobs, app: Flask) -> Iterator[ManualJobs]:
    """Keep jobs within the block until they are drained, in a collection that is dropped after it.

    The database is the app's own, or the embedded one; the app's real jobs are never touched.
    """
    name = f"test_{secrets.token_hex(8)}"
    with jobs.with_settings(app, collection=name, inline=False, install=True) as state:
        try:
            yield ManualJobs(jobs, app)
        finally:
            state.store_as_it_is.uninstall()


@dataclass(slots=True)
class Drained:
    """What :meth:`ManualJobs.drain` did, counted in attempts."""

    succeeded: int = 0
    retried: int = 0
    snoozed: int = 0
    died: int = 0

    @property
    def performed(self) -> int:
        """How many attempts there were."""
        return self.succeeded + self.retried + self.snoozed + self.died


class ManualJobs:
    """The jobs that a test enqueued."""

    def __init__(self, jobs: HenriJobs, app: Flask) -> None:
        self._jobs = jobs
        self._app = app

    def enqueued(self, task: AnyTask | None = None, *, queue: str | None = None) -> list[Job]:
        """Return the jobs that wait, in the order in which they will be performed.

        :param task: Only of this task, or of the task with this name.
        """
        which = JobFilter.read(state="pending", queue=queue, name=_name_of(task))
        with self._app.app_context():
            found = self._jobs.state.store.admin.page(which, MOST_LOOKED_AT)
        return sorted(found, key=lambda job: (job.priority, job.run_at, job.id))

    def assert_enqueued(
        self,
        task: AnyTask,
        args: Mapping[str, t.Any] | None = None,
        *,
        queue: str | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """Return the waiting jobs of a task, of which there have to be some.

        :param args: Arguments that they were enqueued with; others are not looked at.
        :param count: How many there have to be.
        :raises AssertionError: There is none, or another number; the message shows what there is.
        """
        fitting = self._fitting(task, args, queue)
        if count is None and not fitting:
            raise AssertionError(f"No job fits {_told(task, args, queue)}.{self._instead()}")
        if count is not None and len(fitting) != count:
            raise AssertionError(
                f"{len(fitting)} jobs fit {_told(task, args, queue)}, not {count}.{self._instead()}"
            )
        return fitting

    def refute_enqueued(
        self,
        task: AnyTask,
        args: Mapping[str, t.Any] | None = None,
        *,
        queue: str | None = None,
    ) -> None:
        """See that no job of a task waits.

        :raises AssertionError: One does.
        """
        self.assert_enqueued(task, args, queue=queue, count=0)

    def drain(self, *, queue: str | None = None) -> Drained:
        """Perform what is due, one job at a time and in order, until nothing is.

        A runner does it, with everything that belongs to it: retries, batches, limits, signals.
        A job that waits for its next attempt is not due; :class:`FrozenClock` moves the time. No
        schedule is fired: what a test has not enqueued is not counted.
        """
        drained = Drained()
        with self._app.app_context(), _counted(drained, self._app):
            self._jobs.run_worker(once=True, threads=1, queues=queue, schedules=False)
        return drained

    @contextlib.contextmanager
    def frozen_clock(self, at: datetime | None = None) -> Iterator[FrozenClock]:
        """Let the queue's time stand still within the block, until the test moves it.

        :param at: The moment to begin at; now, if it is not given.
        """
        with self._app.app_context():
            clock = self._jobs.state.store.clock
            frozen = FrozenClock(clock, clock.now() if at is None else to_moment(at))
        before = clock.source
        clock.go_by(frozen.read, frozen.steady)
        try:
            yield frozen
        finally:
            clock.go_by(*before)

    def _fitting(
        self, task: AnyTask, args: Mapping[str, t.Any] | None, queue: str | None
    ) -> list[Job]:
        waiting = self.enqueued(task, queue=queue)
        return [job for job in waiting if not args or _has(job.args, args)]

    def _instead(self) -> str:
        waiting = self.enqueued()
        if not waiting:
            return " Nothing waits."
        return "".join(["\nWaiting:", *(f"\n  {_shown(job)}" for job in waiting[:20])])


class FrozenClock:
    """The queue's time, which a test moves."""

    def __init__(self, clock: Clock, moment: int) -> None:
        self._clock = clock
        self._begin = moment
        self._seconds = 0.0

    @property
    def now(self) -> datetime:
        """The queue's time."""
        return t.cast(datetime, to_datetime(self._clock.now()))

    def advance(self, duration: Duration) -> None:
        """Let so much time pass: ``"5m"``, seconds, or a ``timedelta``."""
        self._seconds += millis(to_duration(duration, "the time to advance")) / 1000

    def read(self) -> Reading:
        """Answer as the server would."""
        return Reading(server=self._begin, at=0.0)

    def steady(self) -> float:
        """Return the seconds that have passed."""
        return self._seconds


@contextlib.contextmanager
def _counted(drained: Drained, app: Flask) -> Iterator[None]:
    """Count the ends of attempts within the block."""
    counted = {
        "succeeded": signals.job_succeeded,
        "retried": signals.job_retried,
        "snoozed": signals.job_snoozed,
        "died": signals.job_died,
    }
    with contextlib.ExitStack() as stack:
        for name, signal in counted.items():

            def count(_app: Flask, name: str = name, **_facts: t.Any) -> None:
                setattr(drained, name, getattr(drained, name) + 1)

            stack.enter_context(signal.connected_to(count, app))
        yield


def _name_of(task: AnyTask | None) -> str | None:
    return task if isinstance(task, str) or task is None else task.name


def _has(args: object, wanted: Mapping[str, t.Any]) -> bool:
    # Not by ``items() <= items()``, which arguments would have to be hashable for.
    return isinstance(args, dict) and all(
        key in args and args[key] == value for key, value in wanted.items()
    )


def _told(task: AnyTask, args: Mapping[str, t.Any] | None, queue: str | None) -> str:
    given = "".join(f", {key}={value!r:.200}" for key, value in (args or {}).items())
    return f"{_name_of(task)}{given}{f' in the queue {queue}' if queue else ''}"


def _shown(job: Job) -> str:
    args = job.concealed().args
    return f"{job.name} {args!r:.200} in {job.queue}, due {job.run_at:%Y-%m-%d %H:%M:%S}"
