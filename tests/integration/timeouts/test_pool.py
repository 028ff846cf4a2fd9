"""What lands inside the driver breaks none of its connections (B10)."""

from __future__ import annotations

import sys
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymongo import MongoClient

from flask_henri_jobs.errors import JobCancelled, JobTimeout
from flask_henri_jobs.worker.frame import Frame

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

Document = dict[str, t.Any]

POOL = 3


@pytest.fixture
def collection(mongo_uri: str, database_name: str) -> Iterator[Collection[Document]]:
    """A collection, through a client that has a connection for each thread here, and none more."""
    with MongoClient[Document](mongo_uri, maxPoolSize=POOL, waitQueueTimeoutMS=4000) as client:
        yield client[database_name]["numbers"]


class Asking:
    """A thread that asks the database again and again, and is thrown out of it.

    :ivar thrown_out: How often it was.
    :ivar wrong: The answers that were another's.
    """

    def __init__(self, collection: Collection[Document], number: int) -> None:
        self.frame = Frame()
        self.thrown_out = 0
        self.wrong: list[t.Any] = []
        self._collection = collection
        self._number = number
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._over:
            frame = self.frame = Frame()
            try:
                with frame:
                    self._ask()
            except (JobTimeout, JobCancelled):
                frame.leave()
                self.thrown_out += 1

    def _ask(self) -> None:
        mine = {"number": self._number}
        while not self._over:
            self._collection.update_one(mine, {"$inc": {"count": 1}})
            found = [row["number"] for row in self._collection.find(mine, batch_size=1)]
            if set(found) != {self._number}:
                self.wrong.append(found)


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("thrown", [JobTimeout("late"), JobCancelled("no more")])
def test_connections(
    collection: Collection[Document],
    monkeypatch: pytest.MonkeyPatch,
    thrown: JobTimeout | JobCancelled,
) -> None:
    """W7, W8: Hundreds of exceptions into threads that ask the database: each answer is the right
    one, and every connection is there afterwards."""
    # A socket that was being made when it landed is closed with its object, and Python says so:
    # to pytest, into which the next exception may land.
    monkeypatch.setattr(sys, "unraisablehook", lambda _unraisable: None)
    collection.insert_many([{"number": number} for number in range(POOL)])
    asking = [Asking(collection, number) for number in range(POOL)]
    deadline = time.monotonic() + 15
    while min(one.thrown_out for one in asking) < 40 and time.monotonic() < deadline:
        for one in asking:
            one.frame.throw(thrown)
        time.sleep(0.002)
    for one in asking:
        one.stop()

    assert min(one.thrown_out for one in asking) >= 40
    assert [one.wrong for one in asking] == [[]] * POOL
    with ThreadPoolExecutor(POOL) as threads:
        together = threading.Barrier(POOL)

        def sleep(_number: int) -> int:
            together.wait(5)
            return len(list(collection.find({"$where": "sleep(50) || true"})))

        assert list(threads.map(sleep, range(POOL))) == [POOL] * POOL
