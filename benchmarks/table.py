"""What is measured, and what it must reach."""

from __future__ import annotations

import contextlib
import itertools
import typing as t
from dataclasses import dataclass

from . import drain, enqueue, idle, latency, limits, startup, transactions

if t.TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Rounds = Generator[t.Any, None, None]

ROUNDS = 3
MORE_ROUNDS = 7
"""Of what differs most between two rounds: what fills both cores with several processes."""

STANDALONE, REPLICA_SET = "standalone", "replica set"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the table.

    :param must: What it must reach, by the kind of deployment; it is not measured on others.
    :param at_least: Whether more is better.
    :param of: Returns its value from what a round measured.
    """

    name: str
    must: dict[str, float]
    at_least: bool
    of: Callable[[t.Any], float] = float

    def is_met(self, kind: str, value: float) -> bool:
        """Whether a value is good enough."""
        return value >= self.must[kind] if self.at_least else value <= self.must[kind]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """Something that is measured at once, for one or more lines.

    :param rounds: Yields what it measured on a server, as often as it is asked.
    :param times: How often it is.
    """

    name: str
    rounds: Callable[[str], Rounds]
    lines: tuple[Line, ...]
    times: int = ROUNDS

    def measured(self, uri: str) -> list[t.Any]:
        """Return what each round measured."""
        # Closed at once, and with it what a generator has open: a worker, a database.
        with contextlib.closing(self.rounds(uri)) as rounds:
            return list(itertools.islice(rounds, self.times))


def each(measure: Callable[[str], t.Any]) -> Callable[[str], Rounds]:
    """Return the rounds of something that is measured anew each time."""

    def rounds(uri: str) -> Rounds:
        while True:
            yield measure(uri)

    return rounds


def both(value: float) -> dict[str, float]:
    """Return a must that is the same for both kinds of deployment."""
    return {STANDALONE: value, REPLICA_SET: value}


MEASURES = (
    Measure(
        name="drain",
        rounds=each(drain.share_of_raw),
        times=MORE_ROUNDS,
        lines=(Line(name="drain of 10,000 no-op jobs / raw.py", must=both(0.60), at_least=True),),
    ),
    Measure(
        name="flat",
        rounds=drain.flatness,
        times=MORE_ROUNDS,
        lines=(Line(name="drain, 300,000 / 12,000 pending", must=both(0.90), at_least=True),),
    ),
    Measure(
        name="latency",
        rounds=latency.latencies,
        lines=(
            Line(
                name="enqueue to first line, p50 (ms)",
                must={STANDALONE: 2, REPLICA_SET: 5},
                at_least=False,
                of=lambda one: latency.percentile(one.since_return, 0.50),
            ),
            Line(
                name="enqueue to first line, p99 (ms)",
                must={STANDALONE: 10, REPLICA_SET: 20},
                at_least=False,
                of=lambda one: latency.percentile(one.since_return, 0.99),
            ),
        ),
    ),
    Measure(
        name="delay",
        rounds=each(enqueue.share_of_insert_one),
        lines=(Line(name="delay() / insert_one", must=both(0.80), at_least=True),),
    ),
    Measure(
        name="delay_many",
        rounds=each(enqueue.share_of_insert_many),
        lines=(Line(name="delay_many of 20,000 / insert_many", must=both(0.50), at_least=True),),
    ),
    Measure(
        name="idle",
        rounds=idle.idleness,
        lines=(
            Line(
                name="idle worker, server operations/s",
                must=both(3),
                at_least=False,
                of=lambda one: float(one.operations),
            ),
            Line(
                name="idle worker, share of a core (%)",
                must=both(0.5),
                at_least=False,
                of=lambda one: float(one.percent),
            ),
        ),
    ),
    Measure(
        name="short",
        rounds=each(drain.share_of_ideal),
        times=MORE_ROUNDS,
        lines=(Line(name="5,000 jobs of 20 ms, 2 x 8 / ideal", must=both(0.95), at_least=True),),
    ),
    Measure(
        name="limits",
        rounds=each(limits.share_of_unlimited),
        lines=(Line(name="100,000 jobs, 1,000 keys / unlimited", must=both(0.20), at_least=True),),
    ),
    Measure(
        name="full-key",
        rounds=each(limits.share_beside_a_full_key),
        lines=(Line(name="behind 50,000 of a full key / none", must=both(0.50), at_least=True),),
    ),
    Measure(
        name="transactions",
        rounds=each(transactions.share_of_raw_transactions),
        times=MORE_ROUNDS,
        lines=(
            # A standalone server has none.
            Line(
                name="2,000 transactions as jobs / alone",
                must={REPLICA_SET: 0.40},
                at_least=True,
            ),
        ),
    ),
    Measure(
        name="memory",
        rounds=each(idle.memory),
        times=1,
        lines=(
            Line(
                name="memory above the application (MB)",
                must=both(15),
                at_least=False,
                of=lambda one: float(one.above_bare),
            ),
            Line(
                name="memory growth over 50,000 jobs (MB)",
                must=both(2),
                at_least=False,
                of=lambda one: float(one.growth),
            ),
        ),
    ),
    Measure(
        name="startup",
        rounds=each(startup.seconds_above_import),
        lines=(Line(name="worker to first job above import (s)", must=both(0.7), at_least=False),),
    ),
)
