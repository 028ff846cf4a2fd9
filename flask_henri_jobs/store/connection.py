"""The client of this process, its collections, and the server's clock."""

from __future__ import annotations

import contextlib
import threading
import typing as t
from datetime import UTC

import pymongo
from bson.codec_options import CodecOptions
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from ..clock import Clock, Reading, steady_seconds, to_moment
from ..errors import ConfigError, StoreUnavailable
from ..setting_readers import RESERVED_DATABASES
from ..uri import mask_uri

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection
    from pymongo.database import Database

    from ..job import Document
    from ..settings import Settings

Jobs: t.TypeAlias = "Collection[Document]"
Client: t.TypeAlias = "MongoClient[Document]"
OwnDatabase: t.TypeAlias = "Database[Document]"

Session: t.TypeAlias = "ClientSession"

DriverError = PyMongoError
"""What the driver raises where the database refuses, or is asked for nonsense."""

DURABLE = WriteConcern("majority", j=True)
"""What every write has but the insert of a job, which a setting may relax (A6)."""

INSERT_CONCERNS = {
    "majority": DURABLE,
    "journaled": WriteConcern(1, j=True),
    "acknowledged": WriteConcern(1),
}

OPERATION_SECONDS = 10.0
"""How long a worker or a command waits for one answer before it says so."""

CLOSING_SECONDS = 1.0
"""For how long a client that is closed looks for its server: the driver's 30 s hold up a stop."""

MEMBER_MS = 1_000
"""For how long a single member is asked what time it is there."""

_NOT_ALLOWED = frozenset({13, 18, 8000})
"""The server's codes for a user who may not do this, or whose password is wrong."""

_DUPLICATE = 11000

_NOT_NOW = frozenset({50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
"""The server's codes for stepping down, shutting down, recovering, and out of time."""


class Connection:
    """A client, the collections of one queue in its database, and the clock of its server.

    The client's own read and write options are never taken over: a claim that is not majority
    acknowledged can be rolled back, and then two runners perform one job (A6).

    :param client: The client; nothing is asked of it yet.
    :param database: The name of the database.
    :param prefix: The name of the jobs' collection, and the start of the others'.
    :param uri: What the client was made from; None where the application made it.
    """

    def __init__(
        self, client: MongoClient[Document], database: str, prefix: str, uri: str | None = None
    ) -> None:
        self.client = client
        self.task_client = client
        """The client that the code of tasks is given; in a connection apart it is another."""
        self.prefix = prefix
        self._uri = uri
        self._listening: dict[int, MongoClient[Document]] = {}
        self.database: Database[Document] = client.get_database(
            database,
            codec_options=CodecOptions(),
            read_preference=ReadPreference.PRIMARY,
            write_concern=DURABLE,
            read_concern=ReadConcern("local"),
        )
        self.clock = Clock(self._read_clock)

    @classmethod
    def open(
        cls, settings: Settings, make_client: t.Callable[[], MongoClient[t.Any]] | None, uri: str
    ) -> Connection:
        """Return a connection for this process. Nothing is sent before the first question.

        :param make_client: The application's own way to a client; None makes one from ``uri``.
        """
        client = make_client() if make_client is not None else client_of(uri)
        if not client.options.retry_writes:
            raise ConfigError(
                "The MongoDB client has retryWrites=false.",
                hint="Remove it: a write whose reply is lost must be safe to repeat.",
            )
        database = settings.database
        if make_client is not None and not settings.database_is_set:
            database = default_database_of(client, database)
        made_from = uri if make_client is None else None
        return cls(client, database, settings.collection, made_from)

    def collection(self, suffix: str = "") -> Collection[Document]:
        """Return one of the queue's collections, by the end of its name."""
        return self.database[f"{self.prefix}_{suffix}" if suffix else self.prefix]

    def reach(self, seconds: float) -> None:
        """Return as soon as the server answers.

        :raises StoreUnavailable: It does not, within so many seconds.
        """
        with answering("a ping", seconds):
            self.client.admin.command("ping")

    @contextlib.contextmanager
    def apart(self) -> Iterator[Connection]:
        """Return a connection whose client no task ever sees, until the end of the block (B10).

        It has the same clock, which asks by that client meanwhile. An application's own
        client cannot be made again: for such a one it is this connection itself.
        """
        if self._uri is None:
            yield self
            return
        own = Connection(client_of(self._uri), self.database.name, self.prefix, self._uri)
        own.task_client, own.clock = self.client, self.clock
        self._hand_clock_over(self, own)
        try:
            yield own
        finally:
            self._hand_clock_over(own, self)
            own.close()

    def _hand_clock_over(self, before: Connection, after: Connection) -> None:
        # A test's clock asks nobody.
        if self.clock.source[0] == before._read_clock:
            self.clock.ask_by(after._read_clock)

    @contextlib.contextmanager
    def listening_client(self) -> Iterator[Client | None]:
        """Return a client for one cursor that is always waited on, until the end of the block.

        It is one with a single connection, which takes none of the others'; or a runner's client,
        where that has enough. An application's own cannot be made again: it is used itself,
        unless it has no connection to spare; then there is none.
        """
        has_more = self.client.options.pool_options.max_pool_size != 1
        if self._uri is None:
            yield self.client if has_more else None
            return
        if has_more and self.client is not self.task_client:
            yield self.client
            return
        # Its one cursor tells at once when the server is gone; it need not be asked as well.
        client = client_of(
            self._uri, maxPoolSize=1, heartbeatFrequencyMS=60_000, serverMonitoringMode="poll"
        )
        # Clients of the same servers are equal to each other, and not the same.
        self._listening[id(client)] = client
        try:
            yield client
        finally:
            del self._listening[id(client)]
            with contextlib.suppress(InvalidOperation):
                # Where it is closed already, it cannot tell the server of a cursor any more.
                _close(client)

    def clocks(self) -> dict[str, int]:
        """Return by how many milliseconds the clock of each other member that answers is ahead of
        the primary's, by their addresses.

        It is empty for a client that the application made: how a member is reached is not known.
        """
        primary, uri = self._read_clock(), self._uri
        ahead: dict[str, int] = {}
        if uri is None or primary.member is None:
            return ahead
        for host, port in sorted(self.client.nodes):
            address = f"{host}:{port}"
            if address != primary.member:
                with contextlib.suppress(PyMongoError), _member_of(uri, host, port) as member:
                    _, reading = _sample(member)
                    between = round((reading.at - primary.at) * 1000)
                    ahead[address] = reading.server - primary.server - between
        return ahead

    def close(self) -> None:
        """Close the clients' sockets."""
        for client in [self.client, *self._listening.values()]:
            _close(client)

    def _read_clock(self) -> Reading:
        with answering("the clock"):
            samples = [_sample(self.client) for _ in range(3)]
        # The shortest round trip leaves the least room for error.
        return min(samples, key=lambda sample: sample[0])[1]


def default_database_of(client: MongoClient[t.Any], otherwise: str) -> str:
    """Return the database that a client's own connection string names, or another where none."""
    name = client.get_default_database(otherwise).name
    # ``mongodb://.../admin`` is how many say where their user is kept.
    return otherwise if name in RESERVED_DATABASES else name


def client_of(uri: str, **options: t.Any) -> MongoClient[t.Any]:
    """Return a client for a connection string. It connects when it is first asked something: one
    that is never asked costs neither threads nor sockets.

    :param options: The driver's, in place of what the string says.
    :raises ConfigError: The connection string is wrong; its password is not shown.
    """
    try:
        return MongoClient(
            uri, appname="flask_henri_jobs", connect=False, connectTimeoutMS=5_000, **options
        )
    except (PyMongoError, ValueError) as error:
        hint = "Give mongodb://user:password@host:port/database, or mongodb+srv://…"
        raise ConfigError(f"HENRI_JOBS_URI is {mask_uri(uri)!r}: {error}.", hint=hint) from None


def _close(client: MongoClient[t.Any]) -> None:
    # It tells the server of its sessions, and waits for one that takes that: where none does, they
    # end by themselves there.
    with pymongo.timeout(CLOSING_SECONDS):
        client.close()


def _member_of(uri: str, host: str, port: int | None) -> MongoClient[t.Any]:
    """Return a client for one member, which is asked what it tells anybody."""
    given = parse_uri(uri, validate=False, warn=False)["options"]
    tls = {name: value for name, value in given.items() if name.lower().startswith("tls")}
    return MongoClient(host, port, directConnection=True, serverSelectionTimeoutMS=MEMBER_MS, **tls)


def _sample(client: MongoClient[t.Any]) -> tuple[float, Reading]:
    """Ask what time it is. Return how long that took, and the answer."""
    sent = steady_seconds()
    answer = client.admin.command("hello", read_preference=ReadPreference.PRIMARY)
    received = steady_seconds()
    local_time = answer["localTime"]
    at = to_moment(local_time.replace(tzinfo=UTC) if local_time.tzinfo is None else local_time)
    reading = Reading(server=at, at=(sent + received) / 2, member=answer.get("me"))
    return received - sent, reading


class _Answers(threading.local):
    count = 0


_answers = _Answers()


def answers() -> int:
    """Return how many times the database has answered this thread. What need not be asked, since
    it is known or not due, is no answer."""
    return _answers.count


@contextlib.contextmanager
def answering(what: str, seconds: float = OPERATION_SECONDS) -> Iterator[None]:
    """Bound what is asked inside to so many seconds in all, on the server too.

    :param what: What is asked, for the message.
    :raises StoreUnavailable: There was no answer in time, or no server to ask.
    """
    try:
        with pymongo.timeout(seconds):
            yield
        _answers.count += 1
    except PyMongoError as error:
        if is_outage(error):
            raise StoreUnavailable(
                f"The database did not answer {what} within {seconds:g} s: {in_short(error)}",
                hint="Is it running, and is HENRI_JOBS_URI right?",
            ) from error
        if isinstance(error, OperationFailure) and error.code in _NOT_ALLOWED:
            raise StoreUnavailable(
                f"The database does not allow {what}: {in_short(error)}",
                hint="Check the user and password in HENRI_JOBS_URI, and the user's roles.",
            ) from error
        raise


@contextlib.contextmanager
def bounded(what: str, seconds: float, session: Session | None = None) -> Iterator[None]:
    """Bound what is asked inside, as ``answering`` does.

    In a caller's transaction what the driver raises is left as it is: it tells
    ``with_transaction`` what is worth another try (X1).

    :raises StoreUnavailable: There is no session, and no answer in time.
    """
    with pymongo.timeout(seconds) if session is not None else answering(what, seconds):
        yield


def is_outage(error: PyMongoError) -> bool:
    """Whether an error says that the database is away or out of time, not that it refuses."""
    if isinstance(error, ConnectionFailure | WriteConcernError) or error.timeout:
        return True
    if isinstance(error, BulkWriteError):
        codes = {one["code"] for one in error.details["writeErrors"]}
        if error.details["writeConcernErrors"]:
            # What is there already is no refusal: it is the write concern that was not met.
            codes.discard(_DUPLICATE)
        return codes <= _NOT_NOW
    return isinstance(error, OperationFailure) and error.code in _NOT_NOW


def in_short(error: Exception) -> str:
    """Return what an error of the driver says, without what the driver adds for itself."""
    # A topology description of several lines follows the first sentence.
    return str(error).split(", Timeout:")[0].split(", full error")[0][:300]
