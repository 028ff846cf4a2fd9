"""What one app has of the extension."""

from __future__ import annotations

import contextlib
import importlib
import typing as t
import warnings
from dataclasses import dataclass, field

from .checks import shown
from .closing import Closing
from .enqueueing import Enqueuer
from .errors import ConfigError
from .finishing import Finisher
from .process_local import ProcessLocal
from .registry import Registry
from .store import Store
from .store.connection import Connection
from .store.embedded import EmbeddedServer, share_server

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .settings import Settings
    from .store.connection import Client, OwnDatabase

EMBEDDED_FOLDER = "henri_jobs_db"


@dataclass(frozen=True, eq=False)
class AppState:
    """The settings and the store of one app. The store is made anew in each process.

    :param make_client: The application's own way to a client, or None.
    :param tasks: The tasks that are known here.
    """

    settings: Settings
    make_client: Callable[[], t.Any] | None = None
    tasks: Registry = field(default_factory=Registry)
    _opened: ProcessLocal[Opened] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_opened", ProcessLocal(self._open))

    @property
    def store(self) -> Store:
        """This process's store.

        :raises StoreUnavailable: The database is away, and it is not known to be installed.
        """
        return self._ready().store

    @property
    def store_as_it_is(self) -> Store:
        """This process's store, which may lack its indexes. Nothing is asked of the database."""
        return self._opened.get().store

    @property
    def enqueuer(self) -> Enqueuer:
        """What stores jobs with this app's settings."""
        return self._ready().enqueuer

    @property
    def finisher(self) -> Finisher:
        """What ends batches."""
        return self._ready().finisher

    @property
    def client(self) -> Client:
        """This process's client."""
        return self.store.connection.client

    @property
    def database(self) -> OwnDatabase:
        """The queue's database, with the client's own options and not the queue's stricter ones."""
        return self.client.get_database(self.store.connection.database.name)

    @contextlib.contextmanager
    def runner_store(self) -> Iterator[Store]:
        """Return a store for a runner of this process, until the end of the block.

        :raises StoreUnavailable: The database is away, and it is not known to be installed.
        """
        with self.store_apart() as store:
            self._see_to_install(store)
            yield store

    @contextlib.contextmanager
    def store_apart(self) -> Iterator[Store]:
        """Return a store until the end of the block, which may lack its indexes.

        Where the extension opens the client itself, it has one that no task sees: what a task does
        to ``jobs.client`` keeps no outcome and no heartbeat from being written (B10). And what is
        asked seldom leaves none open, whose threads wake up twice a second.
        """
        store = self.store_as_it_is
        with store.connection.apart() as connection:
            is_own = connection is not store.connection
            yield Store.open(self.settings, connection) if is_own else store

    def reach(self) -> None:
        """See that the database answers.

        :raises StoreUnavailable: It does not, in the time that an enqueue has.
        """
        self.store_as_it_is.connection.reach(self.settings.enqueue_timeout.total_seconds())

    def close(self) -> None:
        """Give up this process's client, and its share of an embedded database.

        A client that the application made is the application's to close.
        """
        if opened := self._opened.forget():
            if opened.closing is not None:
                opened.closing.close()
            if opened.server is not None:
                opened.server.leave()

    def import_tasks(self) -> None:
        """Import the modules that ``HENRI_JOBS_IMPORTS`` names.

        :raises ConfigError: There is no such module.
        """
        for name in self.settings.imports:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise
                raise ConfigError(
                    f"HENRI_JOBS_IMPORTS names {shown(name)}, and there is no such module.",
                    hint="Give the name that an import statement would have.",
                ) from None

    def _ready(self) -> Opened:
        opened = self._opened.get()
        self._see_to_install(opened.store)
        return opened

    def _see_to_install(self, store: Store) -> None:
        """Install what this process has not seen installed yet, by whichever client is at hand."""
        opened = self._opened.get()
        if self.settings.install and not opened.installed:
            # Not under a lock: with the database away the requests of a web process would wait
            # for one another's timeouts, one after the other (Q11).
            store.install(within=self.settings.enqueue_timeout)
            opened.installed = True

    def _open(self) -> Opened:
        settings = self.settings
        server = None
        uri = settings.uri or ""
        if self.make_client is None and settings.embedded:
            server = self._share_server()
            uri = server.uri
        store = Store.open(settings, Connection.open(settings, self.make_client, uri))
        # An app that is dropped, as tests do by the hundred, leaves no client behind.
        closing = Closing(self, store.connection.close) if self.make_client is None else None
        finisher = Finisher(settings, store, self.tasks)
        return Opened(store, Enqueuer(settings, store), finisher, server, closing)

    def _share_server(self) -> EmbeddedServer:
        folder = self.settings.instance_path / EMBEDDED_FOLDER
        if self.settings.uri is None:
            warnings.warn(
                f"HENRI_JOBS_URI is not set: jobs are kept by a MongoDB server of their own in"
                f" {folder}. Set it to your database, or to 'disk' to say that you mean this.",
                stacklevel=2,
            )
        return share_server(folder, str(self.settings.mongod) if self.settings.mongod else None)


@dataclass(slots=True)
class Opened:
    """What a process has open.

    :param closing: Closes the client; None for one that is the application's.
    :param installed: Whether this process has seen to the indexes.
    """

    store: Store
    enqueuer: Enqueuer
    finisher: Finisher
    server: EmbeddedServer | None
    closing: Closing | None
    installed: bool = False
