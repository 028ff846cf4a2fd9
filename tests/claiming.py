"""Claims as the store puts them together, on a collection of a test's own."""

from __future__ import annotations

import typing as t

from flask_henri_jobs.clock import Clock, Reading, steady_seconds
from flask_henri_jobs.queues import QueueSelection, QueueTurns
from flask_henri_jobs.store import indexes
from flask_henri_jobs.store.candidates import Candidates
from flask_henri_jobs.store.claims import Claims
from flask_henri_jobs.store.doubts import Doubts
from flask_henri_jobs.store.limited import LimitedWork
from flask_henri_jobs.store.pauses import Pauses
from flask_henri_jobs.store.permits import Permits
from flask_henri_jobs.store.rates import Rates
from flask_henri_jobs.store.suspects import Suspects
from flask_henri_jobs.store.waiting_keys import WaitingKeys

if t.TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document


def claims_on(
    jobs: Collection[Document],
    now: Callable[[], int],
    candidates: Candidates | None = None,
    steady: Callable[[], float] = steady_seconds,
    **how: t.Any,
) -> Claims:
    """Return one runner's claims, with the permits that they take."""
    clock = Clock(lambda: Reading(server=now(), at=0.0), lambda: 0.0)
    rates = Rates(jobs.database[f"{jobs.name}_rates"], now)
    permits = permits_on(jobs, clock)
    limited = LimitedWork(jobs, permits, WaitingKeys(jobs), rates)
    doubts = Doubts(jobs, permits, steady=steady)
    pauses = Pauses(jobs.database[f"{jobs.name}_pauses"], now)
    found = candidates or Candidates(jobs)
    return Claims(jobs, now, found, limited, Suspects(jobs), pauses, doubts, **how)


def permits_on(jobs: Collection[Document], clock: Clock) -> Permits:
    """Return the permits beside a collection of jobs."""
    return Permits(jobs.database[f"{jobs.name}_limits"], jobs, clock)


def rates_on(jobs: Collection[Document], now: Callable[[], int]) -> Rates:
    """Return the rates beside a collection of jobs, with their indexes."""
    rates = Rates(jobs.database[f"{jobs.name}_rates"], now)
    indexes.create(rates.rates, Rates.INDEXES)
    return rates


def turns(queues: Sequence[str] | None) -> QueueTurns:
    """Return the turns of queues that are served together; None for all queues."""
    return QueueTurns() if queues is None else QueueTurns(QueueSelection.read(queues, "queues"))
