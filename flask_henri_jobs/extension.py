"""The extension: what an application declares its tasks with, and enqueues through."""

from __future__ import annotations

import typing as t
from weakref import WeakKeyDictionary

from flask import Flask, current_app

from . import signals
from .app_state import AppState
from .cli import add_commands
from .errors import ConfigError
from .operations import Operations
from .options import EnqueueOptions, Overrides, TaskDefaults, TaskOptions
from .registry import Registry
from .settings import Settings
from .signals import emit
from .task import Task, default_name

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .job import Job

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
        key = _extension_key(app, settings.collection)
        app.extensions[key] = self
        self._states[app] = AppState(settings, self._client)
        add_commands(app, self, "jobs" if key == "henri_jobs" else settings.collection)

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
            name = options.get("name") or default_name(function)
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

    def enqueue(
        self, name: str, args: t.Any = None, **options: t.Unpack[EnqueueOptions]
    ) -> Job:
        """Store a job by the name of its task, which another application may own.

        :param args: Names and values; or, as a henri task may take, any JSON value.
        """
        overrides = Overrides.read(options)
        task = self.tasks.find(checked_task_name(name))
        if task is not None:
            return self.enqueue_task(task, task.signature.bind_stored(args), overrides)
        return self._announced(self.state.enqueuer.add(name, args, overrides))

    def enqueue_task(
        self, task: Task[..., t.Any], args: Mapping[str, t.Any], overrides: Overrides
    ) -> Job:
        """Store one job of a task; ``task.delay()`` ends here."""
        return self._announced(self.state.enqueuer.add(task, args, overrides))

    def enqueue_many(
        self,
        task: Task[..., t.Any],
        many: Iterable[Mapping[str, t.Any]],
        overrides: Overrides,
    ) -> list[Job]:
        """Store many jobs of a task; ``task.delay_many()`` ends here."""
        stored = self.state.enqueuer.add_many(task, many, overrides)
        return [self._announced(job) for job in stored]

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
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
        return self.state_of(app)

    def state_of(self, app: Flask) -> AppState:
        """Return an app's share of this extension."""
        try:
            return self._states[app]
        except KeyError:
            raise RuntimeError(
                f"The app {app.name!r} is not registered with this 'HenriJobs' instance."
                " Call 'jobs.init_app(app)' in your app factory."
            ) from None

    def _announced(self, job: Job) -> Job:
        if job.created and signals.job_enqueued.receivers:
            emit(signals.job_enqueued, current_app._get_current_object(), job=job)  # type: ignore[attr-defined]  # noqa: SLF001
        return job
