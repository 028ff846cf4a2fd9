"""A function that can be run later."""

from __future__ import annotations

import functools
import inspect
import sys
import typing as t
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from .arguments import Signature
from .backoff import Backoff
from .checks import did_you_mean, shown
from .errors import ConfigError, InvalidArguments
from .limit import Limit, names_in
from .options import NO_OVERRIDES, EnqueueOptions, Overrides, TaskDefaults
from .outcome import RetryPolicy
from .rate import Lane, Rate, refuse_other_key
from .schedule import Schedule
from .unique import Unique

if t.TYPE_CHECKING:
    from datetime import datetime

    from .durations import Duration
    from .job import Job

P = t.ParamSpec("P")
R = t.TypeVar("R")


class Queue(t.Protocol):
    """What a task enqueues into; the extension is one."""

    def enqueue_task(
        self, task: Task[..., t.Any], args: Mapping[str, t.Any], overrides: Overrides
    ) -> Job:
        """Store one job of a task."""
        ...

    def enqueue_many(
        self,
        task: Task[..., t.Any],
        many: Iterable[Mapping[str, t.Any]],
        overrides: Overrides,
    ) -> list[Job]:
        """Store many jobs of a task, in order."""
        ...


class Task(t.Generic[P, R]):
    """A function with a name under which jobs are stored. Calling it calls the function.

    :param function: What is performed. ``async def`` is as good.
    :param queue: Where ``delay`` enqueues.
    :param defaults: The options it was declared with.
    """

    def __init__(self, function: Callable[P, R], queue: Queue, defaults: TaskDefaults) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = defaults.name or default_name(function)
        self.defaults = defaults
        self.signature = Signature(function, self.name)
        self.parameters = inspect.signature(function).parameters
        self._refuse_generators()
        self._queue = queue
        self._unnamed = Prepared(self, queue, NO_OVERRIDES)
        self.limit = (
            None
            if defaults.concurrency is None
            else Limit.read(defaults.concurrency, self.name, self.parameters)
        )
        self.rate = (
            None if defaults.rate is None else Rate.read(defaults.rate, self.name, self.parameters)
        )
        refuse_other_key(self.limit, self.rate, self.name)
        self.lane = Lane.of(self.limit, self.rate)
        self._unique = Unique.read(defaults.unique, self.name, self.parameters)
        self._refuse_unknown_secrets()
        self.schedule = self._schedule(defaults.recurrence)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it were not a task."""
        return self.function(*args, **kwargs)

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Store a job that calls the function with these arguments, and return it.

        :raises InvalidArguments: The arguments do not fit the function, or JSON (Q8).
        :raises StoreUnavailable: The database did not answer in time (Q11).
        :raises RuntimeError: There is no app context.
        """
        return self._unnamed.delay(*args, **kwargs)

    def delay_many(self, many: Iterable[Mapping[str, t.Any]]) -> list[Job]:
        """Store a job for each mapping of arguments, in the order given.

        It takes one round trip for each thousand.
        """
        return self._unnamed.delay_many(many)

    def using(self, **options: t.Unpack[EnqueueOptions]) -> Prepared[P, R]:
        """Return the task with other options, for one enqueue or several.

        :raises ConfigError: An option is unknown, or has a bad value.
        """
        return Prepared(self, self._queue, Overrides.read(options))

    def apply_async(
        self,
        args: Iterable[t.Any] = (),
        kwargs: Mapping[str, t.Any] | None = None,
        *,
        countdown: Duration | None = None,
        eta: datetime | None = None,
        **options: t.Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job, by the names that Celery's users know.

        :param countdown: Seconds to wait; or a ``timedelta``, or text such as ``"5m"``.
        :param eta: The aware moment at which it is due.
        """
        return self._unnamed.apply_async(args, kwargs, countdown=countdown, eta=eta, **options)

    def policy(self, backoff: Backoff) -> RetryPolicy:
        """Return what becomes of the task's failures.

        :param backoff: The settings' backoff, for what the task's own leaves out.
        """
        own = self.defaults.backoff
        return RetryPolicy(
            backoff=Backoff.read(own, f"backoff= of {self.name}", backoff) if own else backoff,
            retry_on=self.defaults.retry_on,
            discard_on=self.defaults.discard_on,
        )

    @property
    def has_no_keys(self) -> bool:
        """Whether its jobs are neither unique nor counted in a bucket, whatever their arguments."""
        return self._unique is None and self.lane is None

    def unique_key(self, args: Mapping[str, t.Any], tenant: str | None = None) -> str | None:
        """Return the key that a job with these arguments is unique by, or None (Q7).

        :raises InvalidArguments: The key is made of an argument that is not given, or of nothing.
        """
        return None if self._unique is None else self._unique.key_of(args, tenant)

    def concurrency_key(self, args: Mapping[str, t.Any]) -> str | None:
        """Return the bucket that a job with these arguments is counted in, or None (L1)."""
        counts = self.limit or self.rate
        if counts is None:
            return None
        given = self.parameters.items()
        return counts.bucket(args, {name: parameter.default for name, parameter in given})

    def _schedule(self, recurrence: Mapping[str, t.Any]) -> Schedule | None:
        if not recurrence:
            return None
        schedule = Schedule.read(self.name, **recurrence)
        try:
            self.signature.bind((), {})
        except InvalidArguments as error:
            raise ConfigError(
                f"The schedule {self.name!r} calls its task without arguments: {error.message}",
                hint="Give them defaults, or declare it in HENRI_JOBS_SCHEDULES with its args.",
            ) from None
        return schedule

    def _refuse_generators(self) -> None:
        # Calling one only makes the generator: the job would be done with nothing performed.
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise ConfigError(
                f"The function of the task {self.name} is a generator.",
                hint="Have it do its work and return; a task yields nothing.",
            )

    def _refuse_unknown_secrets(self) -> None:
        where = f"redact= of the task {self.name}"
        for name in self.defaults.redact:
            if name not in self.signature.names and not self.signature.takes_others:
                raise ConfigError(
                    f"{where} names {shown(name)}, which is not one of its arguments.",
                    hint=did_you_mean(name, self.signature.names),
                )
            counts = {"limit": self.limit, "rate": self.rate}
            if by := [kind for kind, one in counts.items() if one and name in names_in(one.key)]:
                raise ConfigError(
                    f"{where} names {shown(name)}, which its {by[0]} counts by.",
                    hint="Count by a callable that returns something else, such as a hash of it.",
                )

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Prepared(t.Generic[P, R]):
    """A task with the options of its next enqueue."""

    def __init__(self, task: Task[P, R], queue: Queue, overrides: Overrides) -> None:
        self.task = task
        self.overrides = overrides
        self._queue = queue

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Store a job, as :meth:`Task.delay` does."""
        bound = self.task.signature.bind(args, kwargs)
        return self._queue.enqueue_task(self.task, bound, self.overrides)

    def delay_many(self, many: Iterable[Mapping[str, t.Any]]) -> list[Job]:
        """Store many jobs, as :meth:`Task.delay_many` does."""
        if self.overrides.id is not None:
            raise ConfigError(
                "delay_many was given id=, and each job has its own.",
                hint="Leave it out, or call delay() for each job.",
            )
        bind = self.task.signature.bind
        bound = [bind((), _checked_arguments(args, at)) for at, args in enumerate(many)]
        return self._queue.enqueue_many(self.task, bound, self.overrides)

    def using(self, **options: t.Unpack[EnqueueOptions]) -> Prepared[P, R]:
        """Return the task with these options over those it was prepared with."""
        return Prepared(self.task, self._queue, self.overrides.merged(options))

    def apply_async(
        self,
        args: Iterable[t.Any] = (),
        kwargs: Mapping[str, t.Any] | None = None,
        *,
        countdown: Duration | None = None,
        eta: datetime | None = None,
        **options: t.Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job, as :meth:`Task.apply_async` does."""
        given: dict[str, t.Any] = {**options}
        if countdown is not None:
            given["wait"] = countdown
        if eta is not None:
            given["at"] = eta
        bound = self.task.signature.bind(tuple(args), dict(kwargs or {}))
        overrides = self.overrides.merged(given) if given else self.overrides
        return self._queue.enqueue_task(self.task, bound, overrides)


def default_name(function: Callable[..., t.Any]) -> str:
    """Return the name of a task that was given none: ``module.function``.

    :raises ConfigError: The function has no name of its own.
    """
    name = getattr(function, "__qualname__", "<nameless>").replace("<locals>.", "")
    if "<" in name:
        raise ConfigError(
            f"The task at {where_defined(function)} has no name of its own.",
            hint='Say name="...", or declare it with def.',
        )
    return f"{_importable_name(function.__module__)}.{name}"


def _importable_name(module: str) -> str:
    """Return the name under which another process imports a module.

    In ``python shop.py`` the module is ``__main__``, and in the worker, which imports it, ``shop``.
    """
    if module != "__main__":
        return module
    main = sys.modules[module]
    if (spec := main.__spec__) is not None:
        return spec.name.removesuffix(".__main__")
    return Path(getattr(main, "__file__", None) or module).stem


def where_defined(function: Callable[..., t.Any]) -> str:
    """Return the file and line of a function, for a message."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _checked_arguments(args: object, at: int) -> Mapping[str, t.Any]:
    if type(args) is dict:
        return args
    if not isinstance(args, Mapping):
        raise InvalidArguments(
            f"Item {at} of delay_many is {shown(args)}.",
            hint="Give a mapping of arguments for each job.",
        )
    return dict(args)
