"""The transactions in which jobs end: with the writes of their tasks, and their outcomes (X2)."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

import pymongo
from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from ..errors import StoreUnavailable, TransactionAborted, TransactionRefused
from .connection import DURABLE, OPERATION_SECONDS, answering, in_short
from .transactions import TRANSIENT, UNKNOWN, commit_surely, tell_of_commit

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from ..job import Job
    from ..outcome import Outcome
    from .connection import Client, Connection
    from .outcomes import Outcomes
    from .transactions import Transactions

ABORT_SECONDS = 4.0
"""How long the server is asked for to end a transaction, which it does by itself in time."""


class JobSession(ClientSession):
    """A session of the driver's, in the transaction that ends with the outcome of its job.

    It is the driver's own kind, which takes no other for ``session=``.
    """

    result: t.Any = None
    """What the job's task returns, for ``store_result``: its return value comes too late."""

    _is_over = False

    def take(self, returned: object) -> None:
        """Take what a function returned for the result, unless it has given another."""
        if "result" not in vars(self):
            self.result = returned

    def commit_transaction(self) -> None:
        """Commit; the end of the block does that."""
        self._refuse_task()
        super().commit_transaction()

    def abort_transaction(self) -> None:
        """Abort; an exception that leaves the block does that."""
        self._refuse_task()
        super().abort_transaction()

    def be_over(self) -> None:
        """Note that the task's block is left."""
        self._is_over = True

    def _refuse_task(self) -> None:
        if not self._is_over:
            raise TransactionRefused(
                "The transaction of a job is ended by the end of its block.",
                hint="Raise an exception to abort it.",
            )


@dataclass(frozen=True, slots=True)
class JobTransactions:
    """Begins the transactions of jobs, and sees each to its end."""

    connection: Connection
    transactions: Transactions
    outcomes: Outcomes

    def begin(self, client: Client | None) -> JobSession:
        """Return a session with a transaction under way; :meth:`end` it.

        :param client: The application's own; None for ``jobs.client``.
        :raises TransactionRefused: It is no such client, of another deployment, or its server is
            in no replica set.
        """
        client = self.connection.task_client if client is None else client
        if not isinstance(client, MongoClient):
            raise TransactionRefused(
                f"client= is an instance of {type(client).__name__}.",
                hint="Give a pymongo.MongoClient.",
            )
        self.transactions.accept(client, "client given as client=")
        session = client.start_session()
        # The driver makes sessions of one class only, and looks at nothing but the class.
        session.__class__ = JobSession
        begun = t.cast("JobSession", session)
        begun.start_transaction(ReadConcern("snapshot"), DURABLE, ReadPreference.PRIMARY)
        return begun

    @contextlib.contextmanager
    def alone(self, client: Client | None) -> Iterator[JobSession]:
        """Run the block in a transaction of its writes alone: its job is stored nowhere."""
        session = self.begin(client)
        try:
            yield session
            session.be_over()
            commit_surely(session)
        finally:
            self.end(session)

    def write(self, session: JobSession, job: Job, outcome: Outcome) -> Job | None:
        """Write the outcome of a job in its transaction.

        :return: The job as it is after the commit; None where the claim was lost.
        """
        with answering("an outcome"):
            jobs = self.transactions.collection(session)
            return self.outcomes.write_in(jobs, job, outcome)

    def commit(self, session: JobSession, job: Job) -> None:
        """Commit a transaction that the outcome of a job was written in.

        The server takes it once, however often this is called.

        :raises StoreUnavailable: It is not known whether it is committed: call this again.
        :raises PyMongoError: It is not.
        """
        session.be_over()
        try:
            with pymongo.timeout(OPERATION_SECONDS):
                # Not the session's own, which may be hooked: what follows must not look like this.
                JobSession.commit_transaction(session)
        except PyMongoError as error:
            if error.has_error_label(UNKNOWN):
                raise StoreUnavailable(
                    f"It is not known whether a transaction is committed: {in_short(error)}"
                ) from error
            # The server may have forgotten a transaction that it has committed long ago. The
            # job's document is in it, and tells.
            if not self.outcomes.stands(job):
                raise

    def tell(self, session: JobSession) -> None:
        """Ring for what was enqueued in a transaction that is committed, and announce it."""
        tell_of_commit(session)

    def end(self, session: JobSession) -> None:
        """Give a session up. A transaction that is still under way is aborted."""
        session.be_over()
        with pymongo.timeout(ABORT_SECONDS):
            session.end_session()


def once(is_used: bool) -> bool:
    """Note that an attempt has its transaction.

    :raises TransactionRefused: It has had one.
    """
    if is_used:
        raise TransactionRefused(
            "The attempt has had its transaction: the first one ends the job.",
            hint="Make all writes in one block.",
        )
    return True


class naming_aborts:  # noqa: N801 - used as a statement
    """A ``with`` statement that raises the verdict in place of an error that says so."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, raised: BaseException | None, _traceback: object) -> None:
        if isinstance(raised, Exception) and _is_abort(raised):
            raise TransactionAborted(raised, in_short(raised)) from raised


def _is_abort(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is no fault of the task."""
    while error is not None:
        if isinstance(error, StoreUnavailable):
            return True
        if isinstance(error, PyMongoError) and error.has_error_label(TRANSIENT):
            return True
        error = error.__cause__
    return False
