"""When a runner performs suspects: jobs that ran in a process that died, each alone (W6)."""

from __future__ import annotations

import typing as t

from ..clock import steady_seconds
from .post import Role

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from .post import Post

LOOK_SECONDS = 1.0
SUPERVISED_LOOK_SECONDS = 5.0
"""A supervisor knows of its own processes' suspects; this finds those of a host that died."""

PATIENCE_SECONDS = 3.0
"""For how long a process for suspects waits for another before it ends."""


class Apart:
    """Says whose turn it is, suspects' or the others'.

    :param are_due: Whether suspects wait.
    """

    def __init__(self, post: Post, are_due: Callable[[], bool]) -> None:
        self._post = post
        self._are_due = are_due
        self._look_at = 0.0
        self._wait = False
        self._has_one = False
        self._idle_since = steady_seconds()

    def is_turn(self, *, has_none: bool) -> bool:
        """Whether suspects have their turn: nothing else is taken while they do.

        :param has_none: Whether the runner has no job in hand.
        """
        if self._has_one:
            if not has_none:
                return True
            self._end_turn()
            if self._post.role is Role.ALONE:
                # The others come next: a row of suspects must not hold them all up.
                return False
        if self._post.role is Role.SUSPECTS:
            return True
        self._look()
        return self._wait and self._post.role is Role.ALONE

    def took(self, one: bool) -> None:
        """Note whether there was a suspect to take."""
        self._has_one = one
        self._wait = False

    @property
    def is_over(self) -> bool:
        """Whether none has come for so long that a process for suspects is not needed any more."""
        waited = 0.0 if self._has_one else steady_seconds() - self._idle_since
        return self._post.role is Role.SUSPECTS and waited > PATIENCE_SECONDS

    def look_again(self) -> None:
        """Look before the next turn, however short the last look was ago."""
        self._look_at = 0.0

    def _end_turn(self) -> None:
        self._has_one = False
        self._idle_since = steady_seconds()

    def _look(self) -> None:
        if steady_seconds() >= self._look_at:
            is_alone = self._post.role is Role.ALONE
            self._look_at = steady_seconds() + (
                LOOK_SECONDS if is_alone else SUPERVISED_LOOK_SECONDS
            )
            self._wait = self._are_due()
            self._post.marks.suspects_wait = self._wait
