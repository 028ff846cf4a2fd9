"""From a call to the arguments that a job carries, and back to a call (Q8).

A job carries its arguments by name: ``{"user_id": 7}`` calls ``task(user_id=7)``.
"""

from __future__ import annotations

import inspect
import typing as t
from inspect import Parameter

from .errors import ConfigError, InvalidArguments

Call: t.TypeAlias = tuple[tuple[object, ...], dict[str, t.Any]]


class Signature:
    """What a task's function takes, read once.

    :param function: The task's function.
    :param task: The task's name, for messages.
    :raises ConfigError: Python does not know what the function takes.
    """

    def __init__(self, function: t.Callable[..., object], task: str) -> None:
        self._task = task
        self._signature = _signature_of(function, task)
        parameters = self._signature.parameters.values()
        self._by_place = tuple(p for p in parameters if p.kind is Parameter.POSITIONAL_ONLY)
        self._rest = {p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL}
        self._others = {p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD}
        named = [p for p in parameters if p.name not in self._rest | self._others]
        self._in_order = tuple(p.name for p in named if p.kind is not Parameter.KEYWORD_ONLY)
        self._names = frozenset(p.name for p in named)
        self.names = tuple(p.name for p in named)
        """What it calls its arguments, but for those that it takes as ``*`` and ``**``."""
        self.takes_others = bool(self._others)
        """Whether it takes arguments of any name."""
        self._required = frozenset(p.name for p in named if p.default is Parameter.empty)

    def bind(self, args: tuple[object, ...], kwargs: t.Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name. Defaults are left to the runner, which has them.

        :raises InvalidArguments: The function cannot be called so, or an argument has no name.
        """
        named = {**dict(zip(self._in_order, args, strict=False)), **kwargs} if args else {**kwargs}
        each_has_its_name = len(named) == len(args) + len(kwargs) and not self._by_place
        if each_has_its_name and self._required <= named.keys() <= self._names:
            return named
        return self._bind_as_python(args, kwargs)

    def call(self, stored: object, called: str = "the arguments that are stored") -> Call:
        """Return the positional and keyword arguments for which stored arguments stand.

        A dict is keyword arguments, None is none, and any other value, as a henri app may send,
        is the single first argument.

        :param called: What the message of an error calls them.
        :raises InvalidArguments: The function cannot be called so.
        """
        if type(stored) is not dict:
            call: Call = ((), {}) if stored is None else ((stored,), {})
        elif self._by_place:
            call = self._with_places(stored)
        else:
            call = (), stored
        args, kwargs = call
        if args or not self._required <= kwargs.keys() <= self._names:
            self._bound(args, kwargs, called)
        return call

    def named(self, given: object) -> dict[str, object]:
        """Return arguments that were given as a job stores them, by name.

        :param given: A mapping, None, or any other value, as :meth:`call` takes them.
        :raises InvalidArguments: The function cannot be called so, or an argument has no name.
        """
        named = dict(given) if isinstance(given, t.Mapping) else given
        args, kwargs = self.call(named, "these arguments")
        return self.bind(args, kwargs)

    def _bind_as_python(
        self, args: tuple[object, ...], kwargs: t.Mapping[str, object]
    ) -> dict[str, object]:
        named = dict(self._bound(args, kwargs, "these arguments").arguments)
        for name in self._rest & named.keys():
            raise InvalidArguments(
                f"The task {self._task} takes some of these arguments as *{name},"
                " where they have no name to be stored under.",
                hint="Give the function a parameter for each, or one that is a list.",
            )
        for name in self._others & named.keys():
            others = t.cast("dict[str, object]", named.pop(name))
            for shared in sorted(self._names & others.keys()):
                raise InvalidArguments(
                    f"The task {self._task} takes two arguments called {shared},"
                    " one by its place and one by its name.",
                    hint="Call them differently: a job carries its arguments by name.",
                )
            named |= others
        return named

    def _bound(
        self, args: tuple[object, ...], kwargs: t.Mapping[str, object], what: str
    ) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(
                f"The task {self._task} does not take {what}: {error}.", hint=self._takes()
            ) from None

    def _takes(self) -> str:
        # Names only: the repr of a default may be long, and is the user's code.
        names = [
            str(p.replace(annotation=Parameter.empty, default=Parameter.empty))
            for p in self._signature.parameters.values()
        ]
        return f"It takes {', '.join(names)}." if names else "It takes none."

    def _with_places(self, stored: dict[str, t.Any]) -> Call:
        """Return the call in which positional-only parameters are passed by their place."""
        kwargs = dict(stored)
        args: list[object] = []
        last = max((i for i, p in enumerate(self._by_place, 1) if p.name in stored), default=0)
        for parameter in self._by_place[:last]:
            if parameter.default is Parameter.empty and parameter.name not in kwargs:
                break  # Python says what is missing.
            args.append(kwargs.pop(parameter.name, parameter.default))
        return tuple(args), kwargs


def _signature_of(function: t.Callable[..., object], task: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise ConfigError(
            f"Python does not know what the function of the task {task} takes.",
            hint="Wrap it in a function of your own: def task(a, b): ...",
        ) from None
