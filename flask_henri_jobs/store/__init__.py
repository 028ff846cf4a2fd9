"""Every question to the database, and nothing else: the only place that knows the driver."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass
from datetime import timedelta

from . import indexes
from .admin import Admin
from .batches import Batches, open_index
from .candidates import Candidates
from .claims import Claims
from .connection import INSERT_CONCERNS, Connection, answering
from .doubts import Doubts
from .figures import Figures
from .inbox import Inbox, unique_index
from .inbox_in_transaction import TransactionalInbox
from .job_transactions import JobTransactions
from .leases import Leases
from .limited import LimitedWork
from .outcomes import Outcomes
from .pauses import Pauses
from .permits import Permits, stale_index
from .pruning import Pruning
from .rates import Rates
from .repairs import Repairs
from .runners import Runners
from .schedules import Schedules
from .suspects import Suspects
from .tail import Tail
from .tallies import Tallies
from .transactions import Transactions, after_commit
from .waiting_keys import WaitingKeys
from .waits import Waits
from .wakeups import Wakeups

if t.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pymongo.collection import Collection

    from ..clock import Clock
    from ..job import Document
    from ..settings import Settings
    from .connection import Session

COLLECTIONS = frozenset(
    {"batches", "limits", "pauses", "rates", "runners", "schedules", "waiting", "wakeups"}
)
"""The ends of the other collections' names."""

INSTALL_SECONDS = 600.0
"""An index over a large collection takes its time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """The parts of the store, each with its own questions, for one queue in one process."""

    connection: Connection
    clock: Clock
    inbox: Inbox
    claims: Claims
    leases: Leases
    permits: Permits
    outcomes: Outcomes
    admin: Admin
    batches: Batches
    tallies: Tallies
    figures: Figures
    pruning: Pruning
    schedules: Schedules
    runners: Runners
    pauses: Pauses
    rates: Rates
    repairs: Repairs
    transactions: Transactions
    job_transactions: JobTransactions
    wakeups: Wakeups
    tail: Tail

    @classmethod
    def open(cls, settings: Settings, connection: Connection) -> Store:
        """Return the store on a connection. Nothing is asked of the database."""
        clock, jobs = connection.clock, connection.collection()
        schedules = connection.collection("schedules")
        kept_batches = connection.collection("batches")
        wakeups = Wakeups(connection.collection("wakeups"), clock.now, may_make=settings.install)
        tail = Tail(connection, wakeups, settings.poll_interval.total_seconds())
        admin = Admin(
            jobs,
            kept_batches,
            clock.now,
            wakeups.ring_for,
            wakeups.ended,
            waits=Waits(wakeups, tail).watched,
        )
        batches = Batches(jobs, kept_batches, clock.now, admin)
        permits = Permits(connection.collection("limits"), jobs, clock)
        rates = Rates(connection.collection("rates"), clock.now)
        limited = LimitedWork(jobs, permits, WaitingKeys(jobs), rates)
        pauses = Pauses(connection.collection("pauses"), clock.now)
        leases = Leases(jobs, clock, permits, admin, wakeups.ring_for)
        tallies = Tallies(jobs, kept_batches, clock.now, batches)
        runners = connection.collection("runners")
        outcomes, transactions = Outcomes(jobs), Transactions(connection)
        relaxed = jobs.with_options(write_concern=INSERT_CONCERNS[settings.write_concern])
        return cls(
            connection=connection,
            clock=clock,
            inbox=Inbox(
                relaxed,
                clock.now,
                settings.enqueue_timeout,
                admin,
                wakeups.ring_for,
                wakeups.ring_ahead,
            ),
            claims=Claims(
                jobs,
                clock.now,
                Candidates(jobs),
                limited,
                Suspects(jobs),
                pauses,
                Doubts(jobs, permits, admin),
                admin,
                wakeups.ring_for,
            ),
            leases=leases,
            permits=permits,
            outcomes=outcomes,
            admin=admin,
            batches=batches,
            tallies=tallies,
            figures=Figures(jobs, clock.now),
            pruning=Pruning(jobs, kept_batches, schedules, clock.now),
            schedules=Schedules(schedules, clock.now),
            pauses=pauses,
            rates=rates,
            runners=Runners(runners, jobs, clock),
            repairs=Repairs(jobs, runners, clock, permits, tallies, leases),
            transactions=transactions,
            job_transactions=JobTransactions(connection, transactions, outcomes),
            wakeups=wakeups,
            tail=tail,
        )

    def inbox_in(self, session: Session | None) -> Inbox | TransactionalInbox:
        """Return where jobs enter the queue; with a session, if its transaction commits (X1).

        :raises TransactionRefused: The session cannot carry them.
        """
        if session is None:
            return self.inbox
        jobs = self.transactions.collection(session)

        def ring_after_commit(rows: Iterable[Mapping[str, t.Any]]) -> None:
            after_commit(session, functools.partial(self.wakeups.ring_for, list(rows)))

        return TransactionalInbox(
            jobs, self.clock.now, self.inbox.timeout, self.admin, ring_after_commit
        )

    def batches_in(self, session: Session | None) -> Batches:
        """Return the batches; with a session, as they are in its transaction (X1).

        :raises TransactionRefused: The session cannot carry them.
        """
        if session is None:
            return self.batches
        return Batches(
            self.transactions.collection(session),
            self.transactions.collection(session, "batches"),
            self.clock.now,
            self.admin,
        )

    def install(self, within: timedelta = timedelta(seconds=INSTALL_SECONDS)) -> list[str]:
        """See to it that every index is there, and the wake-up collection.

        :return: The names of those that were made.
        """
        with answering("the install", within.total_seconds()):
            made = [
                name
                for collection, declared in self._declared()
                for name in indexes.create(collection, declared)
            ]
            return made + self.wakeups.install()

    def uninstall(self) -> list[str]:
        """Drop the queue's collections, and with them every job. Return their names."""
        with answering("the uninstall", INSTALL_SECONDS):
            database, prefix = self.connection.database, self.connection.prefix
            names = sorted(
                name
                for name in database.list_collection_names()
                if name == prefix or name.removeprefix(f"{prefix}_") in COLLECTIONS
            )
            for name in names:
                database.drop_collection(name)
        return names

    def problems(self) -> list[str]:
        """Return what is wrong with the indexes, a sentence each (Q13)."""
        with answering("the index check"):
            return [
                problem
                for collection, declared in self._declared()
                for problem in indexes.wrong(collection, declared)
            ]

    def _declared(self) -> list[tuple[Collection[Document], list[indexes.Index]]]:
        """Return what the parts declare, by collection."""
        jobs, limits = self.connection.collection(), self.connection.collection("limits")
        batches = self.connection.collection("batches")
        return [
            (
                jobs,
                [
                    *Candidates.INDEXES,
                    *Suspects.INDEXES,
                    *Admin.INDEXES,
                    unique_index(jobs.name),
                ],
            ),
            (limits, [stale_index(limits.name)]),
            (self.connection.collection("rates"), [*Rates.INDEXES]),
            (batches, [open_index(batches.name)]),
        ]
