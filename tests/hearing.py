"""What the signals of an app said."""

from __future__ import annotations

import contextlib
import typing as t

from flask_henri_jobs import signals

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask


class Heard:
    """The signals that an app sent, in order: their names and what came with them."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, t.Any]]] = []

    @contextlib.contextmanager
    def listening(self, app: Flask) -> Iterator[t.Self]:
        """Hear every signal of a job within the block."""
        with contextlib.ExitStack() as stack:
            for name in vars(signals):
                if name.startswith("job_"):
                    stack.enter_context(self._hearing(name, app))
            yield self

    def names(self, *, besides: str = "") -> list[str]:
        """Return the names of the signals, but for some that are named in one text."""
        return [name for name, _ in self.all if name not in besides.split()]

    def of(self, name: str) -> list[dict[str, t.Any]]:
        """Return what came with each signal of a name."""
        return [facts for sent, facts in self.all if sent == name]

    def ids(self, name: str) -> list[str]:
        """Return the ids of the jobs that a signal was about, in order."""
        return [facts["job"].id for facts in self.of(name)]

    @contextlib.contextmanager
    def _hearing(self, name: str, app: Flask) -> Iterator[None]:
        def hear(_app: Flask, **facts: t.Any) -> None:
            self.all.append((name, facts))

        with getattr(signals, name).connected_to(hear, app):
            yield
