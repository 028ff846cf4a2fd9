"""What each process makes for itself."""

from __future__ import annotations

import os
import threading

from flask_henri_jobs.process_local import ProcessLocal


def test_made_once() -> None:
    """A value is made when it is first asked for, once, whoever asks."""
    made: list[object] = []
    at_once = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    local = ProcessLocal(make)
    got: list[object] = []

    def ask() -> None:
        at_once.wait(5)
        got.append(local.get())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert len(made) == 1
    assert got == made * 8


def test_forgotten() -> None:
    """A value that was forgotten is handed out for its end, and made anew."""
    local = ProcessLocal(object)
    first = local.get()

    assert local.forget() is first
    assert local.forget() is None
    assert local.get() is not first


def test_child_of_a_fork_makes_its_own() -> None:
    """A child of a fork has another value, also where its parent was making one just then."""
    local = ProcessLocal(os.getpid)
    local.get()
    child = os.fork()
    if child == 0:
        os._exit(0 if local.get() == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert local.get() == os.getpid()


def test_fork_while_the_lock_is_held() -> None:
    """A child whose parent held the lock when it forked does not wait for it for ever."""
    local = ProcessLocal(os.getpid)
    with local._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if local.get() == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
