"""Which queues a worker takes jobs from, and whose turn it is among them (Q2)."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from .checks import checked_int, checked_name, kind_of, shown
from .errors import ConfigError

if t.TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

QueuesOption: t.TypeAlias = "str | Iterable[str] | Mapping[str, int] | QueueSelection"

OTHERS = "*"
"""Stands for all queues that are not named."""

HIGHEST_WEIGHT = 100
MOST_SHARES = 16
"""Queues with weights: each is asked on its own in every claim."""

MOST_REMEMBERED = 2_000
"""Claimed jobs whose turns can be taken back; a runner holds fewer that have not begun."""

_HINT = 'Give queues such as "high,low", or with weights such as "mail:4,*:1".'
_NUMERIC = re.compile(r"[-+]?[\d.,]*")


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """The queues that a worker takes from.

    :param names: Their names; ``*`` among them stands for all others.
    :param weights: A weight for each name: the starts are shared out by them. Without weights the
        jobs of all these queues are taken in one order.
    """

    names: tuple[str, ...] = (OTHERS,)
    weights: tuple[int, ...] | None = None

    @classmethod
    def read(cls, value: object, where: str) -> QueueSelection:
        """Return the selection that a value stands for.

        :param value: Text with commas, such as ``"high,low"`` or ``"mail:4,*:1"``; a list of such
            items; or a mapping of names to weights. Among weights, an item without one has 1.
        :raises ConfigError: It is no such thing, or says the same queue twice.
        """
        if isinstance(value, QueueSelection):
            return value
        items = _items(value, where)
        if not items:
            raise ConfigError(f"{where} names no queue.", hint=_HINT)
        weights = _weights(items, where)
        names = tuple(weights)
        if all(weight is None for weight in weights.values()):
            _refuse_needless_others(names, where)
            return cls(names)
        if len(names) > MOST_SHARES:
            raise ConfigError(
                f"{where} has weights for {len(names)} queues.",
                hint=f"Give at most {MOST_SHARES}, and take the others together as '*'.",
            )
        return cls(names, tuple(weight or 1 for weight in weights.values()))

    def covers(self, queue: str) -> bool:
        """Whether jobs of a queue are taken."""
        return queue in self.names or OTHERS in self.names

    def shares(self, with_work: Callable[[], Collection[str]]) -> dict[str, Sequence[str]]:
        """Return the queues that are served together, by the names of the shares.

        :param with_work: Returns the queues that have jobs; it is asked only for ``*``.
        """
        if self.weights is None and OTHERS not in self.names:
            return {"": self.names}
        shares: dict[str, Sequence[str]] = {name: (name,) for name in self.names}
        if OTHERS in shares:
            shares[OTHERS] = [queue for queue in with_work() if queue not in self.names]
        return shares

    def __str__(self) -> str:
        """Return it as it is written on a command line."""
        if self.weights is None:
            return ",".join(self.names)
        pairs = zip(self.names, self.weights, strict=True)
        return ",".join(f"{name}:{weight}" for name, weight in pairs)


ALL_QUEUES = QueueSelection()


class Turn(t.NamedTuple):
    """A job's place in the turns: its share, and the shares that had due jobs as well."""

    share: str
    waiting: frozenset[str]


class _Taken(t.NamedTuple):
    """The turn of a job that was claimed, and what the shares had to their credit before."""

    turn: Turn
    before: dict[str, int]


class QueueTurns:
    """The queues of one runner, and whose turn it is: smooth weighted round robin.

    Of any so many starts in a row as the weights come to, every share that has due jobs gets as
    many as its weight, spread out evenly. One that has none gives its turns to the others, and
    neither saves any up nor owes any.
    """

    def __init__(self, selection: QueueSelection = ALL_QUEUES) -> None:
        self.selection = selection
        weights = selection.weights
        self._weights = (
            dict(zip(selection.names, weights, strict=True)) if weights is not None else {}
        )
        self._credit = dict.fromkeys(self._weights, 0)
        self._taken: dict[str, _Taken] = {}

    @property
    def are_weighted(self) -> bool:
        """Whether starts are shared out, and not in one order."""
        return bool(self._weights)

    def shares(self, with_work: Callable[[], Collection[str]]) -> dict[str, Sequence[str]]:
        """Return the queues that are served together, as the selection has them."""
        return self.selection.shares(with_work)

    def plan(self) -> QueueTurns:
        """Return the turns from here on, for jobs of which it is not known yet who gets them."""
        turns = QueueTurns(self.selection)
        turns._credit = dict(self._credit)
        return turns

    def next(self, waiting: Collection[str]) -> str:
        """Return whose turn it is. It stays so until that share was :meth:`served`.

        :param waiting: The shares that have due jobs; one at least.
        """
        if not self._weights:
            return next(iter(waiting))
        return max((share for share in self._weights if share in waiting), key=self._claim_of)

    def served(self, share: str, waiting: Collection[str]) -> None:
        """Count a start of a share, which had its turn among those that waited."""
        for one, weight in self._weights.items():
            self._credit[one] = self._credit[one] + weight if one in waiting else 0
        if self._weights:
            self._credit[share] -= sum(self._weights[one] for one in waiting)

    def take(self, turns: Mapping[str, Turn]) -> None:
        """Count jobs that were claimed, in their order.

        :param turns: Theirs, by their ids.
        """
        if not self._weights:
            return
        for job_id, turn in turns.items():
            self._serve(job_id, turn)
        while len(self._taken) > MOST_REMEMBERED:
            del self._taken[next(iter(self._taken))]

    def hand_back(self, job_ids: Iterable[str]) -> None:
        """Take back the turns of jobs that were not begun; those after them are counted anew."""
        back = set(job_ids) & self._taken.keys()
        if not back:
            return
        order = list(self._taken)
        since = order[min(map(order.index, back)) :]
        self._credit = dict(self._taken[since[0]].before)
        again = {job_id: self._taken.pop(job_id).turn for job_id in since}
        for job_id, turn in again.items():
            if job_id not in back:
                self._serve(job_id, turn)

    def _serve(self, job_id: str, turn: Turn) -> None:
        self._taken[job_id] = _Taken(turn, dict(self._credit))
        self.served(turn.share, turn.waiting)

    def _claim_of(self, share: str) -> int:
        return self._credit[share] + self._weights[share]


def _items(value: object, where: str) -> list[tuple[str, int | None]]:
    """Return the names and weights that a value lists, in its order."""
    if isinstance(value, Mapping):
        return [
            (checked_name(name, f"A name in {where}"), _weight(weight, f"{where}[{name!r}]"))
            for name, weight in value.items()
        ]
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ConfigError(f"{where} is {kind_of(value)}, and queues are due.", hint=_HINT)
    return [_item(part, f"{where}[{at}]") for at, part in enumerate(parts)]


def _item(part: object, where: str) -> tuple[str, int | None]:
    """Return the name and the weight that ``name`` or ``name:weight`` stands for.

    What follows the last colon is a weight where it looks like a number; ``acme:mail`` is a name.
    """
    text = checked_name(part.strip() if isinstance(part, str) else part, where)
    name, colon, weight = text.rpartition(":")
    if not colon or not _NUMERIC.fullmatch(weight):
        return text, None
    if not name or not weight.isascii() or not weight.isdigit():
        raise ConfigError(f"{where} is {shown(text)}.", hint=_HINT)
    return name, _weight(int(weight), f"The weight in {where}")


def _weight(value: object, where: str) -> int:
    return checked_int(value, where, 1, HIGHEST_WEIGHT)


def _weights(items: Sequence[tuple[str, int | None]], where: str) -> dict[str, int | None]:
    weights: dict[str, int | None] = {}
    for name, weight in items:
        if weights.setdefault(name, weight) != weight:
            raise ConfigError(
                f"{where} has two weights for the queue {shown(name)}.", hint="Give it once."
            )
    return weights


def _refuse_needless_others(names: Sequence[str], where: str) -> None:
    if OTHERS in names and len(names) > 1:
        raise ConfigError(
            f"{where} names queues beside '*', which takes from all.",
            hint='Leave them out, or give weights such as "mail:4,*:1".',
        )
