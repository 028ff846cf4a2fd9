"""What ``unique=`` means: which of a task's jobs are one and the same (Q7)."""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass
from inspect import Parameter

from .checks import is_unicode, shown
from .codec import encode
from .errors import ConfigError, InvalidArguments
from .options import LONGEST_KEY

if t.TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import UniqueOption


@dataclass(frozen=True, slots=True)
class Unique:
    """What a task's jobs are unique by.

    :param task: The task's name, with which every key begins.
    :param by: ``True`` for all arguments, an argument's name, a tuple of names, or a callable
        that is given the arguments and returns text, or None for a job that is not unique.
    :param defaults: What the arguments are that are not given.
    """

    task: str
    by: UniqueOption
    defaults: Mapping[str, t.Any]

    @classmethod
    def read(
        cls, option: UniqueOption, task: str, parameters: Mapping[str, Parameter]
    ) -> Unique | None:
        """Return what a task's ``unique=`` stands for; None where its jobs are not unique.

        :raises ConfigError: It names an argument that there is not.
        """
        if option is False:
            return None
        named = [
            parameter
            for parameter in parameters.values()
            if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        ]
        _refuse_strangers(option, task, [parameter.name for parameter in named])
        defaults = {one.name: one.default for one in named if one.default is not Parameter.empty}
        return cls(task, option, defaults)

    def key_of(self, args: Mapping[str, t.Any], tenant: str | None = None) -> str | None:
        """Return the key of a job with these arguments: ``<task>:<value>``.

        :param tenant: Whose job it is: ``<task>:<tenant>:<value>``. What one tenant has waiting
            is no reason to leave out another's.
        :raises InvalidArguments: The callable returned neither text nor None.
        """
        match self.by:
            case bool():
                # Two calls with the same arguments have one key, in whatever order they came.
                value = json.dumps(json.loads(encode(dict(args))), sort_keys=True)
            case str() as name:
                argument = self._argument(args, name)
                value = argument if isinstance(argument, str) else encode(argument, name)
            case tuple() as names:
                # As a list in JSON: "a:b" and "c" are not "a" and "b:c".
                value = encode([self._argument(args, name) for name in names], "unique")
            case make:
                made = make(**{**self.defaults, **args})
                if made is None:
                    return None
                value = self._checked(made)
        begin = self.task if tenant is None else f"{self.task}:{tenant}"
        return self._short(f"{begin}:{value}")

    def _argument(self, args: Mapping[str, t.Any], name: str) -> t.Any:
        return args[name] if name in args else self.defaults[name]

    def _checked(self, made: object) -> str:
        if not isinstance(made, str) or not made or not is_unicode(made):
            raise InvalidArguments(
                f"unique= of the task {self.task} returned {shown(made)}.",
                hint="Return text, or None for a job that is not unique.",
            )
        return made

    def _short(self, key: str) -> str:
        if len(key.encode()) <= LONGEST_KEY:
            return key
        # A digest tells two keys apart as well as the text does, and fits the index.
        return f"{self.task}:sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def _refuse_strangers(option: UniqueOption, task: str, known: list[str]) -> None:
    names = (option,) if isinstance(option, str) else option
    for name in names if isinstance(names, tuple) else ():
        if name not in known:
            raise ConfigError(
                f"unique= of the task {task} names {shown(name)}, which is not one of its"
                " arguments.",
                hint=f"It has {', '.join(known) or 'none'}.",
            )
