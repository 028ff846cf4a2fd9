"""The extension: what an application declares its tasks with, and enqueues through."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing as t
from weakref import WeakKeyDictionary

from flask import Flask, current_app

from .app_state import AppState
from .building import BatchOptions, OpenBatch, open_batch
from .checks import checked_name, kind_of
from .cli import add_commands
from .errors import ConfigError
from .inline import perform_inline
from .limit_status import limit_statuses
from .operations import Operations
from .options import EnqueueOptions, Overrides, TaskDefaults, TaskOptions
from .registry import Registry
from .scheduling import Schedules
from .settings import Settings
from .task import Task, default_name, where_defined
from .tenant import FINDER, chosen_tenant

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from .durations import Duration
    from .job import Job
    from .limit_status import LimitStatus
    from .queues import QueuesOption
    from .settings import Tenant
    from .store.connection import Client, OwnDatabase, Session

Limits: t.TypeAlias = "list[LimitStatus]"
P = t.ParamSpec("P")
R = t.TypeVar("R")


class HenriJobs(Operations):
    """Background jobs for Flask on MongoDB.

    :param app: The app to set up at once; or call :meth:`init_app` in a factory.
    :param client: Returns the application's own ``MongoClient``. It is called once in each
        process. Without it the extension makes a client from ``HENRI_JOBS_URI``.
    :param settings: Settings by their names in lower case, which win over ``app.config``: with
        ``collection="reports"`` a second queue lives beside the first.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        client: Callable[[], t.Any] | None = None,
        **settings: t.Any,
    ) -> None:
        if client is not None and not callable(client):
            raise ConfigError(
                f"HenriJobs(client=) is {kind_of(client)}, and a function is due.",
                hint="Say client=lambda: mongo.cx: each process needs a client of its own.",
            )
        self.tasks = Registry()
        """The tasks that are declared, by name."""
        self._client = client
        self._overrides = settings
        self._states: WeakKeyDictionary[Flask, AppState] = WeakKeyDictionary()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Set the extension up for an app. It starts no thread and opens no connection.

        :raises ConfigError: A setting is unknown or wrong; the app has this queue already.
        """
        settings = Settings.from_config(
            app.config,
            app_name=app.name,
            instance_path=app.instance_path,
            **self._overrides,
        )
        group = self._register(app, settings.collection, settings.tenant)
        self._states[app] = AppState(settings, self._client, self.tasks)
        add_commands(app, self, group)

    def _register(self, app: Flask, collection: str, tenant: Tenant | None) -> str:
        """Take a place among the app's extensions. Return the name of the command group."""
        if self in app.extensions.values():
            raise ConfigError(
                f"init_app was called twice with the app {app.name!r}.", hint="Call it once."
            )
        queues = app.extensions.setdefault("henri_jobs_queues", {})
        if collection in queues:
            raise ConfigError(
                f"The app {app.name!r} has a queue in the collection {collection!r} already.",
                hint='Give the second one another: HenriJobs(collection="other_jobs").',
            )
        if app.extensions.setdefault(FINDER, tenant) is not tenant:
            raise ConfigError(
                f"The queues of the app {app.name!r} have two functions for HENRI_JOBS_TENANT.",
                hint="Give both the same: a request has one tenant.",
            )
        queues[collection] = self
        if "henri_jobs" in app.extensions:
            return collection.replace("_", "-")
        app.extensions["henri_jobs"] = self
        return "jobs"

    @t.overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @t.overload
    def task(
        self, /, **options: t.Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self, function: Callable[P, R] | None = None, /, **options: t.Any
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Declare a function as a task: ``@jobs.task``, or ``@jobs.task(queue="low")``.

        :raises ConfigError: An option is unknown or wrong, or the name is taken.
        """

        def declare(function: Callable[P, R]) -> Task[P, R]:
            name = options.get("name")
            if name is None:
                name = default_name(function)
            checked_name(name, f"name= of the task at {where_defined(function)}")
            defaults = TaskDefaults.read(options, f"the task {name}")
            task = Task(function, self, defaults)
            self.tasks.add(task)
            return task

        if function is None:
            return declare
        if not callable(function):
            raise ConfigError(
                f"@jobs.task was given {function!r:.80}.",
                hint="Say @jobs.task or @jobs.task(name=...).",
            )
        return declare(function)

    def enqueue(self, name: str, args: t.Any = None, **options: t.Unpack[EnqueueOptions]) -> Job:
        """Store a job by the name of its task, which another application may own.

        :param args: Names and values; or, as a henri task may take, any JSON value.
        """
        overrides = Overrides.read(options)
        task = self.tasks.find(checked_name(name, "the task's name"))
        if task is not None:
            return self.enqueue_task(task, task.signature.named(args), overrides)
        if self.state.settings.inline:
            return self.enqueue_task(self.tasks[name], {}, overrides)
        stored = self.state.enqueuer.add(name, args, overrides)
        return self._announced(stored, overrides.session)

    def enqueue_task(
        self, task: Task[..., t.Any], args: Mapping[str, t.Any], overrides: Overrides
    ) -> Job:
        """Store one job of a task; ``task.delay()`` ends here."""
        state = self.state
        if state.settings.inline:
            return perform_inline(_app(), state, task, args, overrides)
        stored = state.enqueuer.add(task, args, overrides)
        return self._announced(stored, overrides.session)

    def enqueue_many(
        self,
        task: Task[..., t.Any],
        many: Iterable[Mapping[str, t.Any]],
        overrides: Overrides,
    ) -> list[Job]:
        """Store many jobs of a task; ``task.delay_many()`` ends here."""
        if self.state.settings.inline:
            return [self.enqueue_task(task, args, overrides) for args in many]
        stored = self.state.enqueuer.add_many(task, many, overrides)
        return [self._announced(job, overrides.session) for job in stored]

    def tenant(self, tenant: str | None) -> AbstractContextManager[None]:
        """Return a ``with`` statement whose block runs for a tenant; None is for none (T1).

        A job that is enqueued there is the tenant's, and is performed for it. Jobs are found,
        counted, retried and deleted there only where they are the tenant's (T2).

        :raises ConfigError: The name is none, or another tenant is in scope.
        """
        return chosen_tenant(tenant)

    def batch(self, **options: t.Unpack[BatchOptions]) -> OpenBatch:
        """Store a new batch, which takes jobs until it is sealed: ``with jobs.batch() as batch:``.

        :param callback: The task that is called once, after the last job has ended in whatever
            way, or its name; with ``callback_args``, and ``batch`` as a dict of ``id``, ``name``,
            ``total``, ``done``, ``failed`` and ``succeeded``.
        :param on_success: Called in the same way, if no job failed.
        :param on_failure: Called in the same way, if one did.
        :raises ConfigError: An option is unknown or wrong; or jobs are performed inline.
        """
        state = self.state
        if state.settings.inline:
            raise ConfigError(
                "A batch is kept in the database, and HENRI_JOBS_INLINE asks none.",
                hint="Perform its jobs with jobs.run_worker(once=True) in its place.",
            )
        session = options.get("session")
        announced = functools.partial(self._announced, session=session)
        return open_batch(state, announced, options)

    def perform_now(self, name: str, args: t.Any = None) -> t.Any:
        """Perform a task here and now, through the same codec, and return what it returns.

        Nothing is stored and nothing is retried; what the task raises is raised.

        :raises UnknownTask: No task has that name.
        """
        from .worker.execution import call_now

        task = self.tasks[checked_name(name, "the task's name")]
        return call_now(task, args, self.state.settings.max_args_bytes)

    def run_worker(
        self,
        *,
        once: bool = False,
        queues: QueuesOption | None = None,
        threads: int | None = None,
        grace: Duration | None = None,
        schedules: bool = True,
    ) -> None:
        """Perform jobs until the process is told to stop, as ``flask jobs worker`` does.

        :param once: Return as soon as nothing is due and nothing runs.
        :param queues: Take from these only, such as ``"high,low"``, ``["high", "low"]``, or with
            weights ``"mail:4,*:1"``; None takes from those of the settings.
        :param schedules: Whether schedules are fired, too.
        :param threads: How many jobs are performed at once; None asks the settings.
        :raises ConfigError: An option is out of its bounds; a task's backoff does not go together
            with the settings'; or a declared schedule cannot be fired here (S4).
        :raises NotInstalled: An index is missing, and ``HENRI_JOBS_INSTALL`` is off (Q13).
        """
        from .worker import work

        work(self, once=once, queues=queues, threads=threads, grace=grace, schedules=schedules)

    @property
    def client(self) -> Client:
        """This process's ``MongoClient``, for the application's own reads, writes and sessions.

        After a fork it is another one: ask for it where it is used, and keep it nowhere.
        """
        return self.state.client

    @property
    def database(self) -> OwnDatabase:
        """The database that holds the queue, by :attr:`client`, for the application's own data."""
        return self.state.database

    def transaction(self) -> AbstractContextManager[Session]:
        """Return a ``with`` statement whose block runs in a transaction of :attr:`client` (X1).

        ``task.using(session=session).delay(...)`` stores a job in it, beside the application's own
        writes with ``session=``. All of them are there once the block has ended, or none, where
        it raised. The block is run once: ``session.with_transaction()`` is for one that is run
        again after a conflict.

        :raises TransactionRefused: The server is in no replica set.
        """
        return self.state.store.transactions.begin()

    def limits(self) -> Limits:
        """Return the limits that are declared here or held by anybody, and who holds what (L3)."""
        return limit_statuses(self.tasks.limits(), self.state.store.permits.held())

    @property
    def schedules(self) -> Schedules:
        """What recurs, and what an operator asks of it."""
        return Schedules(self.state, self.tasks)

    @property
    def state(self) -> AppState:
        """The current app's share of this extension.

        :raises RuntimeError: There is no app context, or its app has no such extension.
        """
        if not current_app:
            raise RuntimeError(
                "Jobs are enqueued and looked at within an app context."
                " Call it in a request or a task, or under 'with app.app_context():'."
            )
        return self.state_of(_app())

    @contextlib.contextmanager
    def with_settings(self, app: Flask, **settings: t.Any) -> Iterator[AppState]:
        """Give an app other settings within the block, and a store of its own; for tests."""
        before = self.state_of(app)
        state = AppState(
            dataclasses.replace(before.settings, **settings), before.make_client, self.tasks
        )
        self._states[app] = state
        try:
            yield state
        finally:
            self._states[app] = before
            state.close()

    def state_of(self, app: Flask) -> AppState:
        """Return an app's share of this extension."""
        try:
            return self._states[app]
        except KeyError:
            raise RuntimeError(
                f"The app {app.name!r} is not registered with this 'HenriJobs' instance."
                " Call 'jobs.init_app(app)' in your app factory."
            ) from None


def _app() -> Flask:
    return current_app._get_current_object()  # type: ignore[attr-defined,no-any-return]
