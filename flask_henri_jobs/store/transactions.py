"""Writing in a caller's transaction (X1): through its session, and with what follows its commit."""

from __future__ import annotations

import contextlib
import functools
import typing as t
from weakref import WeakKeyDictionary

from pymongo import ReadPreference
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from ..errors import HenriJobsError, TransactionRefused
from .connection import DURABLE, answering

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

    from ..job import Document
    from .connection import Connection

TRANSIENT = "TransientTransactionError"
UNKNOWN = "UnknownTransactionCommitResult"
_COMMIT_TRIES = 10
_HOOKED = "_henri_jobs_after_commit"


class TransactionRaced(HenriJobsError, PyMongoError):
    """Another process stored a job under the same id or unique key meanwhile.

    The transaction is lost. The error has the driver's label of a transient one, so
    ``session.with_transaction`` starts over, and finds that job.
    """

    code = "TRANSACTION_RACED"

    def __init__(self, message: str, *, hint: str = "") -> None:
        HenriJobsError.__init__(self, message, hint=hint)
        PyMongoError.__init__(self, message, {TRANSIENT})


class Transactions:
    """Which sessions may be written through, and how.

    :param connection: The queue's own.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._accepted: WeakKeyDictionary[t.Any, bool] = WeakKeyDictionary()

    @contextlib.contextmanager
    def begin(self) -> Iterator[ClientSession]:
        """Run the block in a transaction of the queue's own client, and commit it after.

        :raises TransactionRefused: The server is in no replica set.
        """
        self.accept(self._connection.client)
        with (
            self._connection.client.start_session() as session,
            session.start_transaction(ReadConcern("snapshot"), DURABLE, ReadPreference.PRIMARY),
        ):
            yield session
            if session.in_transaction:
                commit_surely(session)

    def collection(self, session: ClientSession, suffix: str = "") -> Collection[Document]:
        """Return one of the queue's collections, each of whose operations is in the session.

        :raises TransactionRefused: The session has no transaction under way, or its client is of
            another deployment, or its server is in no replica set.
        """
        if not session.in_transaction:
            raise TransactionRefused(
                "The session given as session= has no transaction under way.",
                hint="Enqueue within session.start_transaction() or session.with_transaction().",
            )
        self.accept(session.client, "session given as session=")
        own = self._connection.collection(suffix)
        # The driver takes a session by the client that it belongs to alone.
        theirs = session.client.get_database(own.database.name)[own.name]
        bound = theirs.with_options(codec_options=own.codec_options)
        return t.cast("Collection[Document]", _InSession(bound, session))

    def accept(self, client: t.Any, what: str = "client") -> None:
        """Return where a client's transactions may carry jobs.

        :param what: What is of this client, for the message.
        :raises TransactionRefused: Its server is in no replica set, or of another deployment.
        """
        if client in self._accepted:
            return
        with answering("the look at a client's deployment"):
            hello = client.admin.command("hello")
            own = self._connection.client.admin.command("hello")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise TransactionRefused(
                "The MongoDB server is in no replica set, and has no transactions.",
                hint="Start it with --replSet and call rs.initiate() once: a set of one will do.",
            )
        if hello.get("setName") != own.get("setName") or not _share_a_host(hello, own):
            raise TransactionRefused(
                f"The {what} is of another deployment than the queue.",
                hint="Take one of jobs.client, or of a client of the same replica set.",
            )
        self._accepted[client] = True


def after_commit(session: ClientSession, call: Callable[[], object]) -> None:
    """Have something called once the session's transaction is committed; an abort drops it.

    A session whose methods cannot be replaced is left alone, and the call is not made.
    """
    waiting = getattr(session, _HOOKED, None)
    if waiting is None:
        try:
            waiting = _hook(session)
        except AttributeError:
            return
    waiting.append(call)


def tell_of_commit(session: ClientSession) -> None:
    """Make the calls that waited for the session's commit."""
    waiting: list[Callable[[], object]] = getattr(session, _HOOKED, [])
    calls = waiting.copy()
    waiting.clear()
    for call in calls:
        call()


def _hook(session: ClientSession) -> list[Callable[[], object]]:
    # ``with_transaction`` and ``with session.start_transaction()`` look these up anew each time.
    waiting: list[Callable[[], object]] = []
    setattr(session, _HOOKED, waiting)
    commit, abort, start = (
        session.commit_transaction,
        session.abort_transaction,
        session.start_transaction,
    )

    @functools.wraps(commit)
    def commit_and_tell() -> None:
        commit()
        tell_of_commit(session)

    @functools.wraps(abort)
    def abort_and_forget() -> None:
        waiting.clear()
        abort()

    @functools.wraps(start)
    def start_afresh(*args: t.Any, **options: t.Any) -> t.Any:
        # A transaction whose commit failed for good is left by starting another.
        begun = start(*args, **options)
        waiting.clear()
        return begun

    session.commit_transaction = commit_and_tell  # type: ignore[method-assign]
    session.abort_transaction = abort_and_forget  # type: ignore[method-assign]
    session.start_transaction = start_afresh  # type: ignore[method-assign]
    return waiting


def commit_surely(session: ClientSession) -> None:
    """Commit, again while nobody knows whether it was; the server takes it once."""
    for tries in range(_COMMIT_TRIES):
        try:
            session.commit_transaction()
        except PyMongoError as error:
            if not error.has_error_label(UNKNOWN) or tries + 1 == _COMMIT_TRIES:
                raise
        else:
            return


def _share_a_host(hello: Document, own: Document) -> bool:
    if "hosts" not in hello:
        return "hosts" not in own
    return not {*hello["hosts"]}.isdisjoint(own.get("hosts", ()))


class _InSession:
    """A collection that passes one session to each of its operations."""

    def __init__(self, collection: Collection[Document], session: ClientSession) -> None:
        self._collection = collection
        self._session = session

    def __getattr__(self, name: str) -> t.Any:
        operation = getattr(self._collection, name)
        return (
            functools.partial(operation, session=self._session)
            if callable(operation)
            else operation
        )
