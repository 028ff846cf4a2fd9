"""What a person sees on a terminal while something long goes on."""

from __future__ import annotations

import contextlib
import sys
import time
import typing as t

import click

from .. import signals

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

REDRAW_SECONDS = 0.1

_COUNTED = {
    "done": signals.job_succeeded,
    "retried": signals.job_retried,
    "snoozed": signals.job_snoozed,
    "dead": signals.job_died,
    "lost": signals.job_lost,
}


@contextlib.contextmanager
def bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs. It is given what moves the bar on by so many."""
    with click.progressbar(
        length=total, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as shown:
        yield shown.update


class Tally:
    """Counts how the attempts of a worker end, and shows the counts as they grow.

    :ivar counts: How many there were of each ending.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTED, 0)
        self._is_shown = sys.stderr.isatty()
        self._drawn_at = 0.0

    @contextlib.contextmanager
    def of(self, app: Flask) -> Iterator[t.Self]:
        """Count while the block runs."""
        with contextlib.ExitStack() as listening:
            for ending, signal in _COUNTED.items():
                receiver = self._receiver(ending)
                listening.enter_context(signal.connected_to(receiver, sender=app))
            yield self
        if self._is_shown:
            self._draw()
            click.echo(err=True)

    def __str__(self) -> str:
        named = [f"{count} {ending}" for ending, count in self.counts.items() if count]
        return ", ".join(named) or "nothing was due"

    def _receiver(self, ending: str) -> Callable[..., None]:
        def count(_app: Flask, **_facts: object) -> None:
            self.counts[ending] += 1
            if self._is_shown and time.monotonic() > self._drawn_at + REDRAW_SECONDS:
                self._draw()

        return count

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        click.echo(f"\rWorking: {self}", nl=False, err=True)
