"""Transactions that end with the outcome of their job: effects that are there once (X2)."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass
from datetime import timedelta

from ..backoff import Backoff
from ..clock import steady_seconds
from ..context import has_heeded, track_of
from ..errors import (
    JobCancelled,
    JobLost,
    StoreUnavailable,
    TransactionAborted,
)
from ..log import logger
from ..store.job_transactions import naming_aborts, once
from .loop import Wakeup

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..store.connection import Client
    from ..store.job_transactions import JobSession, JobTransactions
    from .attempts import Attempts, RunningAttempt
    from .committer import Committer
    from .execution import Ending, Execution
    from .holdings import Holdings
    from .keeper import Keeper
    from .loop import Outages
    from .marks import Marks
    from .reporting import Reporter

R = t.TypeVar("R")

MOST_TRIES = 10
"""So often one attempt runs a function that is run again; then its job goes back."""

PAUSES = Backoff(
    base=timedelta(milliseconds=5), factor=2.0, max=timedelta(milliseconds=500), jitter=0.5
)

RETRY_SECONDS = 0.5
"""After which it is asked again whether a transaction is committed."""


@dataclass(kw_only=True, slots=True)
class Transacting:
    """What of a runner the transactions of its jobs have to do with.

    :param warning: What is to be said with the first of them.
    """

    transactions: JobTransactions
    holdings: Holdings
    keeper: Keeper
    reporter: Reporter
    attempts: Attempts
    committer: Committer
    outages: Outages
    marks: Marks
    warning: str | None

    def warn(self) -> None:
        """Say once what is to be said."""
        if self.warning is not None:
            logger.warning(self.warning)
            self.warning = None


class OwnTransaction:
    """The transaction of one attempt, in which its task's writes and its outcome are committed."""

    def __init__(self, runner: Transacting, attempt: RunningAttempt, execution: Execution) -> None:
        self._runner = runner
        self._attempt = attempt
        self._execution = execution
        self._is_used = False

    @contextlib.contextmanager
    def block(self, client: Client | None) -> Iterator[JobSession]:
        """Run a block in the transaction; its end is that of the job."""
        self._use()
        with self._tried(client) as session:
            yield session

    def run(self, work: Callable[[JobSession], R], client: Client | None) -> R:
        """Call a function in the transaction, again where that was aborted."""
        self._use()
        pause = Wakeup()
        for tries in range(1, MOST_TRIES + 1):
            try:
                with self._tried(client) as session:
                    returned = work(session)
                    session.take(returned)
            except TransactionAborted:
                if tries == MOST_TRIES:
                    raise
            else:
                return returned
            pause.sleep(PAUSES.wait_after(tries).total_seconds())
        raise AssertionError("unreachable")

    def _use(self) -> None:
        self._is_used = once(self._is_used)
        self._runner.warn()

    @contextlib.contextmanager
    def _tried(self, client: Client | None) -> Iterator[JobSession]:
        with naming_aborts(), self._apart():
            session = self._runner.transactions.begin(client)
            try:
                yield session
                with self._execution.frame.quiet():
                    self._settle(session)
            finally:
                with self._execution.frame.quiet():
                    self._runner.transactions.end(session)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Have nobody else of this process write the job's document within the block.

        Such a write between the transaction's first statement and its outcome aborts it, and one
        after that waits for its end, with whatever is in the same write.
        """
        track = track_of(self._execution.running)
        self._runner.reporter.hold_back(track)
        try:
            if not self._runner.keeper.set_apart(self._attempt.job):
                raise JobLost("The claim of the job is gone: another runner has it.")
            yield
        finally:
            track.is_held = False
            if self._execution.settled is None:
                self._runner.holdings.set_apart(self._attempt.job, apart=False)

    def _settle(self, session: JobSession) -> None:
        """Write the outcome, as the last of the transaction, and commit.

        Nobody gives the attempt up meanwhile: what it came to is not known.
        """
        attempts, attempt = self._runner.attempts, self._attempt
        if not attempts.hold(attempt) or self._execution.frame.thrown is not None:
            attempts.release(attempt)
            raise self._execution.frame.instance()
        self._mark(committing=True)
        try:
            ending = self._commit_with_outcome(session)
            # The thread has the mark until the task returns.
            ending.mark = None
            self._execution.settled = ending
            self._runner.committer.hand_over(ending)
        finally:
            self._mark(committing=self._execution.settled is not None)
            attempts.release(attempt)
        self._runner.transactions.tell(session)

    def _mark(self, *, committing: bool) -> None:
        """Tell the supervisor whether the server may have the job's document locked."""
        if self._execution.mark is not None:
            self._runner.marks.commits(self._execution.mark, so=committing)

    def _commit_with_outcome(self, session: JobSession) -> Ending:
        if has_heeded(self._execution.running):
            raise JobCancelled("The job was cancelled.")
        seconds = steady_seconds() - self._attempt.began
        ending = self._execution.ended(None, session.result, seconds)
        ending.stands = self._runner.transactions.write(session, ending.job, ending.outcome)
        if ending.stands is None:
            raise JobLost("The claim of the job is gone: its transaction was aborted.")
        self._commit(session, ending)
        return ending

    def _commit(self, session: JobSession, ending: Ending) -> None:
        pause = Wakeup()
        is_known = False
        while not is_known:
            try:
                with self._runner.outages.asking():
                    self._runner.transactions.commit(session, ending.job)
                is_known = True
            except StoreUnavailable:
                pause.sleep(RETRY_SECONDS)
