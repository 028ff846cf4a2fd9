"""Every question to the database, and nothing else: the only place that knows the driver."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from datetime import timedelta

from . import indexes
from .admin import Admin
from .candidates import Candidates
from .claims import Claims
from .connection import INSERT_CONCERNS, Connection, answering
from .figures import Figures
from .inbox import Inbox, unique_index
from .leases import Leases
from .outcomes import Outcomes
from .pruning import Pruning

if t.TYPE_CHECKING:
    from ..clock import Clock
    from ..settings import Settings

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
    outcomes: Outcomes
    admin: Admin
    figures: Figures
    pruning: Pruning

    @classmethod
    def open(cls, settings: Settings, connection: Connection) -> Store:
        """Return the store on a connection. Nothing is asked of the database."""
        clock, jobs = connection.clock, connection.collection()
        batches = connection.collection("batches")
        admin = Admin(jobs, batches, clock.now)
        relaxed = jobs.with_options(write_concern=INSERT_CONCERNS[settings.write_concern])
        return cls(
            connection=connection,
            clock=clock,
            inbox=Inbox(relaxed, clock.now, settings.enqueue_timeout, admin),
            claims=Claims(jobs, clock.now, Candidates(jobs), admin),
            leases=Leases(jobs, clock, admin),
            outcomes=Outcomes(jobs),
            admin=admin,
            figures=Figures(jobs, clock.now),
            pruning=Pruning(jobs, batches, clock.now),
        )

    def install(self, within: timedelta = timedelta(seconds=INSTALL_SECONDS)) -> list[str]:
        """See to it that every index is there. Return the names of those that were made."""
        with answering("the install", within.total_seconds()):
            return indexes.create(self.connection.collection(), self._declared())

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
        """Return what is wrong with the indexes, a sentence each; nothing where all is well."""
        with answering("the index check"):
            return indexes.wrong(self.connection.collection(), self._declared())

    def _declared(self) -> list[indexes.Index]:
        return [
            *Candidates.INDEXES,
            *Admin.INDEXES,
            unique_index(self.connection.prefix),
        ]
