"""A function that can be run later."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import typing as t
from collections.abc import Callable, Iterable, Mapping

from .arguments import Signature
from .backoff import Backoff
from .codec import encode
from .errors import ConfigError, InvalidArguments
from .limit import Limit
from .options import LONGEST_KEY, NO_OVERRIDES, EnqueueOptions, Overrides, TaskDefaults
from .outcome import RetryPolicy

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

    def enqueue_many(
        self,
        task: Task[..., t.Any],
        many: Iterable[Mapping[str, t.Any]],
        overrides: Overrides,
    ) -> list[Job]:
        """Store many jobs of a task, in order."""


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
        self.is_async = inspect.iscoroutinefunction(function)
        self._queue = queue
        self._unnamed = Prepared(self, queue, NO_OVERRIDES)
        self.limit = (
            None
            if defaults.concurrency is None
            else Limit.read(defaults.concurrency, self.name, self.parameters)
        )
        self._check_unique()

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
        countdown: float | None = None,
        eta: datetime | None = None,
        **options: t.Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job, by the names that Celery's users know.

        :param countdown: Seconds to wait; here also a ``timedelta`` or text such as ``"5m"``.
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

    def unique_key(self, args: Mapping[str, t.Any]) -> str | None:
        """Return the key that a job with these arguments is unique by, or None (Q7).

        :raises InvalidArguments: The key is made of an argument that is not given, or of nothing.
        """
        unique = self.defaults.unique
        match unique:
            case False:
                return None
            case True:
                # Two calls with the same arguments have one key, in whatever order they came.
                value = json.dumps(json.loads(encode(dict(args))), sort_keys=True)
            case str():
                value = self._argument(args, unique)
            case tuple():
                value = ":".join(self._argument(args, name) for name in unique)
            case _:
                made = unique(**args)
                if made is None:
                    return None
                value = self._made(made)
        return _short_key(f"{self.name}:{value}", self.name)

    def concurrency_key(self, args: Mapping[str, t.Any]) -> str | None:
        """Return the bucket that a job with these arguments is counted in, or None (L1)."""
        if self.limit is None:
            return None
        given = self.parameters.items()
        return self.limit.bucket(args, {name: parameter.default for name, parameter in given})

    def _argument(self, args: Mapping[str, t.Any], name: str) -> str:
        value = args[name] if name in args else self.parameters[name].default
        return value if isinstance(value, str) else encode(value, name)

    def _made(self, made: object) -> str:
        if not isinstance(made, str) or not made:
            raise InvalidArguments(
                f"unique= of the task {self.name} returned {made!r:.80}.",
                hint="Return text, or None for a job that is not unique.",
            )
        return made

    def _check_unique(self) -> None:
        unique = self.defaults.unique
        names = (unique,) if isinstance(unique, str) else unique
        for name in names if isinstance(names, tuple) else ():
            if name not in self.parameters:
                raise ConfigError(
                    f"unique= of the task {self.name} names {name!r}, which is not one of its"
                    " arguments.",
                    hint=f"It has {', '.join(self.parameters) or 'none'}.",
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
    """Return the name of a task that was given none: ``module.function``."""
    return f"{function.__module__}.{function.__qualname__}".replace("<locals>.", "")


def where_defined(function: Callable[..., t.Any]) -> str:
    """Return the file and line of a function, for a message."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _checked_arguments(args: object, at: int) -> dict[str, t.Any]:
    if not isinstance(args, Mapping):
        raise InvalidArguments(
            f"Item {at} of delay_many is {args!r:.80}.",
            hint="Give a mapping of arguments for each job.",
        )
    return dict(args)


def _short_key(key: str, name: str) -> str:
    if len(key.encode()) <= LONGEST_KEY:
        return key
    # A digest tells two keys apart as well as the text does, and fits the index.
    return f"{name[:256]}:sha256:{hashlib.sha256(key.encode()).hexdigest()}"
