"""The wake-up collection: made and mended, rung, and heard, whatever becomes of it (W3, B7)."""

from __future__ import annotations

import gc
import threading
import typing as t
import weakref

import pytest
from pymongo import MongoClient
from pymongo.errors import InvalidOperation

from faults import CLOSED, failing, faulty_client
from flask_henri_jobs.store.connection import Connection
from flask_henri_jobs.store.tail import Tail
from flask_henri_jobs.store.wakeups import (
    BURST_SECONDS,
    CHECK_SECONDS,
    MOST_RINGS,
    SILENT_SECONDS,
    Wakeups,
)
from mongod import Server, temporary_folder, wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo.collection import Collection
    from pymongo.database import Database

    from flask_henri_jobs.job import Document
    from rows import Now

PATIENCE = 10.0
LONGEST_PAUSE = 0.2


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Listener:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.rings: list[Document] = []
        self.openings = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def heard(self, ring: Document) -> None:
        self.may_go_on.wait(PATIENCE)
        self.rings.append(ring)

    def may_have_missed(self) -> None:
        self.openings += 1

    def has_opened(self, times: int = 1) -> None:
        wait_until(lambda: self.openings >= times, f"{times} openings")

    def has_heard(self, queue: str) -> bool:
        return any(ring.get("queue") == queue for ring in self.rings)

    def hears(self, queue: str) -> None:
        wait_until(lambda: self.has_heard(queue), f"a ring for {queue}")


@pytest.fixture
def rings(database: Database[Document]) -> Collection[Document]:
    return database["henri_jobs_wakeups"]


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def wakeups(rings: Collection[Document], now: Now, seconds: Seconds) -> Wakeups:
    return Wakeups(rings, now, steady=seconds)


@pytest.fixture
def tail(wakeups: Wakeups, mongo_uri: str, database: Database[Document]) -> Iterator[Tail]:
    connection = Connection(MongoClient(mongo_uri), database.name, "henri_jobs", mongo_uri)
    yield Tail(connection, wakeups, LONGEST_PAUSE, await_ms=100)
    connection.close()


@pytest.fixture
def listener() -> Listener:
    return Listener()


def is_capped(rings: Collection[Document]) -> bool:
    return bool(rings.options().get("capped", False))


def missing(rings: Collection[Document]) -> None:
    rings.drop()


def ordinary(rings: Collection[Document]) -> None:
    rings.drop()
    rings.insert_one({"queue": "default", "run_at": 0})


def empty(rings: Collection[Document]) -> None:
    rings.drop()
    rings.database.create_collection(rings.name, capped=True, size=4096)


@pytest.mark.parametrize("spoil", [missing, ordinary, empty])
def test_install_makes_and_mends(
    wakeups: Wakeups,
    rings: Collection[Document],
    spoil: Callable[[Collection[Document]], None],
) -> None:
    """W3: after an install it is there, is capped, and has one document at least."""
    spoil(rings)

    wakeups.install()

    assert is_capped(rings)
    assert rings.count_documents({}) == 1
    assert wakeups.install() == []
    assert rings.count_documents({}) == 1


def test_install_by_several_at_once(rings: Collection[Document], now: Now) -> None:
    """W3: processes that start together make one capped collection."""
    start = threading.Barrier(8)

    def install() -> None:
        start.wait(PATIENCE)
        Wakeups(rings, now).install()

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert is_capped(rings)
    assert rings.count_documents({}) >= 1


def queues_rung(rings: Collection[Document]) -> list[str]:
    return [ring["queue"] for ring in rings.find({"queue": {"$exists": True}})]


def test_a_burst_rings_once_a_queue(
    wakeups: Wakeups, rings: Collection[Document], seconds: Seconds
) -> None:
    """B7: a process rings once in 20 ms for a queue, and for each queue."""
    for _ in range(50):
        wakeups.ring("mail")
        wakeups.ring("other")
    seconds.now += 2 * BURST_SECONDS
    wakeups.ring("mail")

    wait_until(lambda: len(queues_rung(rings)) == 3, "three rings")
    assert queues_rung(rings) == ["mail", "other", "mail"]


def test_other_moments_are_rung_for(
    wakeups: Wakeups, rings: Collection[Document], now: Now
) -> None:
    """W3: a ring carries when the job is due, and an earlier or much later moment is news."""
    wakeups.ring("mail", now() + 60_000)
    wakeups.ring("mail", now() + 60_010)
    wakeups.ring("mail", now() + 30_000)
    wakeups.ring("mail", now() - 5_000)

    wait_until(lambda: len(queues_rung(rings)) == 3, "three rings")
    due = [ring["run_at"] - now() for ring in rings.find({"queue": "mail"})]
    assert due == [60_000, 30_000, 0]


def test_many_jobs_ring_for_the_first_of_each_queue(
    wakeups: Wakeups, rings: Collection[Document], now: Now
) -> None:
    """W3: storing many jobs in one go rings once a queue."""
    rows = [{"queue": f"q{n % 2}", "run_at": now() + 1000 - n} for n in range(100)]

    wakeups.ring_for(rows)

    wait_until(lambda: len(queues_rung(rings)) == 2, "two rings")
    due = {ring["queue"]: ring["run_at"] - now() for ring in rings.find({"queue": {"$gt": ""}})}
    assert due == {"q0": 902, "q1": 901}


def test_a_ring_ahead_of_its_job(
    wakeups: Wakeups, rings: Collection[Document], now: Now, seconds: Seconds
) -> None:
    """W3: Runners are woken for a job while it is stored: not where that would wait for an answer,
    nor for one that is not due or whose key may be held. The ring after it is left out, unless it
    took longer to store than those who were woken look for."""
    due = {"queue": "mail", "run_at": now()}
    wakeups.ring_ahead(due)
    assert queues_rung(rings) == []
    wakeups.ring("other")

    wakeups.ring_ahead(due | {"run_at": now() + 1})
    wakeups.ring_ahead(due | {"unique_key": "a"})
    wakeups.ring_ahead(due)
    wakeups.ring_for([due])
    seconds.now += 2 * BURST_SECONDS
    wakeups.ring_for([due])

    wait_until(lambda: len(queues_rung(rings)) == 3, "three rings")
    assert queues_rung(rings) == ["other", "mail", "mail"]


def test_one_ring_a_minute_is_acknowledged(
    wakeups: Wakeups, rings: Collection[Document], seconds: Seconds
) -> None:
    """B7: the first ring of a process is acknowledged, and one a minute, which looks whether the
    collection is capped still."""
    wakeups.ring("mail")
    assert is_capped(rings)

    ordinary(rings)
    seconds.now += 1
    wakeups.ring("mail")
    wait_until(lambda: rings.count_documents({}) == 2, "a ring into an ordinary collection")

    seconds.now += CHECK_SECONDS
    for _ in range(10):
        seconds.now += 1
        wakeups.ring("mail")
    assert rings.count_documents({}) == 2


def test_no_rings_into_an_ordinary_collection(
    wakeups: Wakeups,
    rings: Collection[Document],
    seconds: Seconds,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B7: it would grow for ever; that is said once, and rings go on once it is mended."""
    ordinary(rings)

    for _ in range(5):
        seconds.now += 1
        wakeups.ring("mail")

    assert rings.count_documents({}) == 1
    assert caplog.text.count("Jobs are found by polling") == 1

    wakeups.install()
    seconds.now += SILENT_SECONDS
    wakeups.ring("mail")
    assert queues_rung(rings) == ["mail"]


def test_what_may_not_be_made_is_not_rung(
    rings: Collection[Document], now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    """W3: without HENRI_JOBS_INSTALL no ring makes the collection, which would be an ordinary
    one."""
    wakeups = Wakeups(rings, now, may_make=False)

    wakeups.ring("mail")
    wakeups.ring("other")

    assert rings.name not in rings.database.list_collection_names()
    assert caplog.text.count("'flask jobs install' makes it") == 1


def test_forbidden_rings_are_given_up(
    mongo_uri: str,
    database_name: str,
    now: Now,
    seconds: Seconds,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B7: where the user may not write, that is found by the acknowledged ring, and said once."""
    with faulty_client(mongo_uri) as client:
        wakeups = Wakeups(client[database_name]["henri_jobs_wakeups"], now, steady=seconds)
        wakeups.install()
        with failing(client, "insert", times=1, errorCode=13):
            for _ in range(5):
                seconds.now += 1
                wakeups.ring("mail")
        assert queues_rung(wakeups.rings) == []
        seconds.now += SILENT_SECONDS
        wakeups.ring("mail")

        assert queues_rung(wakeups.rings) == ["mail"]
    assert caplog.text.count("the database user may not use it") == 1


def test_a_ring_fails_nobody(unreachable: MongoClient[Document], now: Now) -> None:
    """W3: the job is stored by then; with the database away the ring is left out, in silence."""
    Wakeups(unreachable["any"]["henri_jobs_wakeups"], now).ring("mail")


def test_rings_are_heard(
    wakeups: Wakeups, tail: Tail, listener: Listener, seconds: Seconds
) -> None:
    """W3: whoever listens hears rings as they come, and none after the end."""
    wakeups.install()

    with tail.heard_by(listener):
        listener.has_opened()
        wakeups.ring("mail")
        listener.hears("mail")
        assert tail.is_open
    with tail.heard_by(again := Listener()):
        wakeups.ring("late")
        again.hears("late")

    assert not listener.has_heard("late")


@pytest.mark.parametrize("spoil", [missing, ordinary, empty])
def test_the_tail_mends_what_it_cannot_follow(
    wakeups: Wakeups,
    rings: Collection[Document],
    tail: Tail,
    listener: Listener,
    seconds: Seconds,
    spoil: Callable[[Collection[Document]], None],
) -> None:
    """W3: a collection that is spoilt, before or while it is followed, is made anew; then rings
    are heard again, after a look for those that were missed."""
    spoil(rings)
    with tail.heard_by(listener):
        listener.has_opened()
        spoil(rings)
        listener.has_opened(times=2)
        seconds.now += SILENT_SECONDS
        wakeups.ring("mail")
        listener.hears("mail")

    assert is_capped(rings)


def test_falls_behind_by_a_whole_round(
    wakeups: Wakeups, rings: Collection[Document], tail: Tail, listener: Listener, now: Now
) -> None:
    """B7: the cursor dies without an error; it is opened again, and a look made."""
    wakeups.install()
    with tail.heard_by(listener):
        listener.has_opened()
        listener.may_go_on.clear()
        for _ in range(3):
            rings.insert_many([{"queue": "many", "run_at": now()} for _ in range(MOST_RINGS)])
        listener.may_go_on.set()
        listener.has_opened(times=2)
        wakeups.ring("mail")
        listener.hears("mail")


def test_a_lost_connection(
    wakeups: Wakeups, rings: Collection[Document], tail: Tail, listener: Listener
) -> None:
    """W10: a tail that lost its connection follows again, and says nothing of its own."""
    wakeups.install()
    client = rings.database.client
    refused = failing(client, "find", times=2, appName="flask_henri_jobs", **CLOSED)
    with refused, tail.heard_by(listener):
        wakeups.ring("mail")
        listener.hears("mail")


def test_reading_is_forbidden(
    wakeups: Wakeups,
    rings: Collection[Document],
    tail: Tail,
    listener: Listener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W3: it is said once, tried again at the pace of polling, and heard once it is allowed."""
    wakeups.install()
    client = rings.database.client
    refused = failing(client, "find", times=3, appName="flask_henri_jobs", errorCode=13)
    with refused, tail.heard_by(listener):
        wakeups.ring("mail")
        listener.hears("mail")

    assert caplog.text.count("the database user may not use it") == 1


def test_does_not_make_what_it_may_not(
    rings: Collection[Document],
    tail: Tail,
    listener: Listener,
    wakeups: Wakeups,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W3: without HENRI_JOBS_INSTALL a missing collection is said once, and followed when made."""
    wakeups.may_make = False
    with tail.heard_by(listener):
        wait_until(lambda: "'flask jobs install' makes it" in caplog.text, "a warning")
        assert rings.name not in rings.database.list_collection_names()
        wakeups.install()
        listener.has_opened()

    assert caplog.text.count("'flask jobs install' makes it") == 1


def test_an_applications_client_with_one_connection(
    mongo_uri: str,
    database_name: str,
    wakeups: Wakeups,
    listener: Listener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B7: a cursor that is waited on would hold it for seconds; everything is found by polling."""
    with MongoClient[t.Any](mongo_uri, maxPoolSize=1) as client:
        tail = Tail(Connection(client, database_name, "henri_jobs"), wakeups, LONGEST_PAUSE)
        with tail.heard_by(listener):
            wait_until(lambda: "maxPoolSize=1" in caplog.text, "a warning")

    assert listener.openings == 0


def test_an_applications_client(
    mongo_uri: str, database_name: str, wakeups: Wakeups, listener: Listener
) -> None:
    """A client that the application made is listened with as it is, and left open."""
    wakeups.install()
    with MongoClient[t.Any](mongo_uri) as client:
        tail = Tail(Connection(client, database_name, "henri_jobs"), wakeups, LONGEST_PAUSE)
        with tail.heard_by(listener):
            wakeups.ring("mail")
            listener.hears("mail")
        assert client.admin.command("ping")["ok"]


@pytest.fixture
def guarded() -> Iterator[tuple[str, str]]:
    """A server that asks for passwords: the strings of its owner, and of a user of jobs only."""
    with temporary_folder() as folder:
        server = Server(folder, "--auth")
        try:
            server.start()
            users: t.Any = MongoClient(f"mongodb://{server.address}/")
            users.admin.command("createUser", "owner", pwd="a", roles=["root"])
            owner = f"mongodb://owner:a@{server.address}/?authSource=admin"
            with MongoClient[t.Any](owner) as client:
                only = {"db": "queue", "collection": "henri_jobs"}
                actions = ["find", "insert", "update", "remove", "createIndex", "listIndexes"]
                privileges = [{"resource": only, "actions": actions}]
                client.admin.command("createRole", "jobs", privileges=privileges, roles=[])
                client.admin.command("createUser", "user", pwd="b", roles=["jobs"])
            users.close()
            yield owner, f"mongodb://user:b@{server.address}/?authSource=admin"
        finally:
            server.kill()


@pytest.mark.faults
def test_a_user_who_may_use_nothing_but_jobs(
    guarded: tuple[str, str], now: Now, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """W3: install, ring and tail fail nobody where the user has no right to the collection."""
    owner, user = guarded
    with MongoClient[t.Any](user) as client, MongoClient[t.Any](owner) as mender:
        wakeups = Wakeups(client["queue"]["henri_jobs_wakeups"], now)
        tail = Tail(Connection(client, "queue", "henri_jobs", user), wakeups, LONGEST_PAUSE)
        assert wakeups.install() == []
        wakeups.ring("mail")
        with tail.heard_by(listener):
            Wakeups(mender["queue"]["henri_jobs_wakeups"], now).install()
            roles = [{"role": "readWrite", "db": "queue"}]
            mender.admin.command("grantRolesToUser", "user", roles=roles)
            listener.has_opened()

    assert caplog.text.count("the database user may not use it") == 1


def test_clients_that_have_listened(mongo_uri: str, database_name: str) -> None:
    """A process that listens now and then holds on to no client that it has done with."""
    connection = Connection(MongoClient(mongo_uri), database_name, "henri_jobs", mongo_uri)
    kept = []
    for _ in range(3):
        with connection.listening_client() as client:
            assert client is not None
            client.admin.command("ping")
            kept.append(weakref.ref(client))
        del client
    connection.close()

    gc.collect()
    assert [client() for client in kept] == [None, None, None]


def test_closed_while_it_listens(mongo_uri: str, database_name: str) -> None:
    """A process may be done with the database while a cursor of its listening thread is open."""
    connection = Connection(MongoClient(mongo_uri), database_name, "henri_jobs", mongo_uri)
    with connection.listening_client() as client:
        assert client is not None
        collection = client[database_name]["numbers"]
        collection.insert_many({"number": number} for number in range(5))
        cursor = collection.find(batch_size=2)
        next(cursor)
        connection.close()
        # What its end leaves to do, the client does when it is closed.
        del cursor

    with pytest.raises(InvalidOperation):
        collection.find_one()
