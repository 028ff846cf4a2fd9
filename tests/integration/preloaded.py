"""What gunicorn's ``--preload`` does: an app is used, then forked, then used by both processes.

Run as a script, with the URI, the database, and ``given`` where the app makes its own client.
Prints who enqueued, and how many jobs there are.
"""

from __future__ import annotations

import os
import sys
import threading
import typing as t

from flask import Flask
from pymongo import MongoClient

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.process_local import ProcessLocal

app = Flask("shop")
app.config.from_mapping(HENRI_JOBS_URI=sys.argv[1], HENRI_JOBS_DATABASE=sys.argv[2])
made: list[MongoClient[t.Any]] = []


def make_client() -> MongoClient[t.Any]:
    made.append(MongoClient(sys.argv[1]))
    return made[-1]


client_is_given = sys.argv[3:] == ["given"]
jobs = HenriJobs(app, client=make_client if client_is_given else None)
held, release = threading.Event(), threading.Event()


def hold() -> int:
    held.set()
    release.wait(30)
    return os.getpid()


held_by_another_thread = ProcessLocal(hold)


@jobs.task
def tell(who: str) -> None: ...


def enqueue(who: str) -> None:
    tell.delay(who)
    print(who, flush=True)


class Listener:
    """Hears whether a ring came."""

    def __init__(self) -> None:
        self.came = threading.Event()

    def heard(self, ring: dict[str, t.Any]) -> None:
        if ring.get("queue") == f"of-{os.getpid()}":
            self.came.set()

    def may_have_missed(self) -> None: ...


def hear_own_ring() -> None:
    listener = Listener()
    with jobs.state.store.tail.heard_by(listener):
        jobs.wake(f"of-{os.getpid()}")
        assert listener.came.wait(30)


def in_child(parents_client: int) -> None:
    enqueue("child")
    enqueue("child")
    hear_own_ring()
    assert id(jobs.client) != parents_client
    assert len(made) == (2 if client_is_given else 0), "the child made one client"
    release.set()
    # At the fork a thread of the parent held the lock of this one.
    assert held_by_another_thread.get() == os.getpid()
    jobs.client.close()


with app.app_context():
    enqueue("parent")
    hear_own_ring()
    client = id(jobs.client)
    thread = threading.Thread(target=held_by_another_thread.get)
    thread.start()
    held.wait(30)
    if (child := os.fork()) == 0:
        try:
            in_child(client)
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    release.set()
    thread.join()
    enqueue("parent")
    hear_own_ring()
    assert id(jobs.client) == client
    print(jobs.count())
    jobs.client.close()
