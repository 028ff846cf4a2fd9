"""Hearing the rings of the wake-up collection as they come (W3)."""

from __future__ import annotations

import contextlib
import threading
import typing as t

import pymongo
from pymongo import CursorType
from pymongo.errors import InvalidOperation, OperationFailure, PyMongoError

from ..errors import ConfigError
from ..log import logger
from .connection import OPERATION_SECONDS, is_outage
from .wakeups import NotCapped

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from ..job import Document
    from .connection import Connection
    from .wakeups import Wakeups

AWAIT_MS = 10_000
"""How long the server holds a question for rings before it answers that there were none."""

SHORTEST_PAUSE = 0.1
"""Seconds before a cursor that died is opened again; twice as long each time it dies at once."""

NO_CONNECTION_TO_SPARE = (
    "The application's MongoDB client has maxPoolSize=1, and none to spare for listening:"
    " jobs are found by polling, every HENRI_JOBS_POLL_INTERVAL."
)

_NOT_CAPPED = 2


class Listener(t.Protocol):
    """Who wants to hear the rings. It is called in the tail's thread, and returns at once."""

    def heard(self, ring: Document) -> None:
        """Take notice of a ring."""
        ...

    def may_have_missed(self) -> None:
        """Take notice that rings may have come that were not heard."""
        ...


class Tail:
    """Follows the collection in a thread of its own, as long as anybody listens.

    A stop does not wait for the thread: a question that the server holds cannot be ended from
    here (measured), and a daemon thread need not be.

    :param longest_pause: Seconds between two tries while it does not work: the poll interval.
    """

    def __init__(
        self,
        connection: Connection,
        wakeups: Wakeups,
        longest_pause: float,
        *,
        await_ms: int = AWAIT_MS,
    ) -> None:
        self._connection = connection
        self._wakeups = wakeups
        self._longest_pause = longest_pause
        self._await_ms = await_ms
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._nudge = threading.Event()
        self.is_open = False
        """Whether rings are heard at present."""

    @contextlib.contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """Have somebody hear the rings within the block."""
        self.add(listener)
        try:
            yield
        finally:
            self.remove(listener)

    def add(self, listener: Listener) -> None:
        """Have somebody hear the rings from now on."""
        with self._lock:
            self._listeners += (listener,)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="henri-jobs-wakeups", daemon=True
                )
                self._thread.start()

    def remove(self, listener: Listener) -> None:
        """Let somebody go who listened."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one is not listener)
            self._nudge.set()

    def _run(self) -> None:
        try:
            with self._connection.listening_client() as client:
                if client is None:
                    logger.warning(NO_CONNECTION_TO_SPARE)
                else:
                    database = self._wakeups.rings.database.name
                    self._follow_while_wanted(client[database][self._wakeups.rings.name])
        except ConfigError as error:
            # The name of a mongodb+srv address is asked for anew for each client.
            self._wakeups.tell_once(error)
        with self._lock:
            if self._thread is threading.current_thread():
                self._thread = None

    def _follow_while_wanted(self, rings: Collection[Document]) -> None:
        pause = SHORTEST_PAUSE
        while self._is_wanted():
            lasted = self._follow(rings)
            self.is_open = False
            self._nudge.clear()
            pause = SHORTEST_PAUSE if lasted else min(2 * pause, self._longest_pause)
            self._nudge.wait(pause)

    def _is_wanted(self) -> bool:
        with self._lock:
            if not self._listeners:
                self._thread = None
            return self._thread is not None

    def _follow(self, rings: Collection[Document]) -> bool:
        """Tell the rings until the cursor dies. Return whether it lived for a while."""
        heard = 0
        try:
            with rings.find(cursor_type=CursorType.TAILABLE_AWAIT) as cursor:
                cursor.max_await_time_ms(self._await_ms)
                while cursor.alive and self._listeners:
                    for ring in cursor:
                        heard += 1
                        if heard == 1:
                            self._has_opened()
                        for listener in self._listeners:
                            listener.heard(ring)
            if not heard:
                self._mend()
        except InvalidOperation:
            # The client was closed: this process is done with the database.
            self._listeners = ()
        except PyMongoError as error:
            if not is_outage(error):
                self._mend(error)
        return heard > 0

    def _has_opened(self) -> None:
        # Rings may have come while none was heard: after a drop, or where the cursor had fallen
        # behind by all that the collection holds, which kills it without an error (measured).
        self.is_open = True
        for listener in self._listeners:
            listener.may_have_missed()

    def _mend(self, error: PyMongoError | None = None) -> None:
        """Make the collection what it is to be, or say what is wrong with it."""
        is_known = error is None or (
            isinstance(error, OperationFailure) and error.code == _NOT_CAPPED
        )
        if error is not None and not is_known:
            self._wakeups.tell_once(error)
        elif self._wakeups.may_make:
            with contextlib.suppress(PyMongoError), pymongo.timeout(OPERATION_SECONDS):
                self._wakeups.install()
        else:
            self._wakeups.tell_once(NotCapped())
