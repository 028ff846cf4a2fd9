"""Closing what belonged to an owner that was dropped."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import typing as t

import pytest

from flask_henri_jobs.closing import Closing, close_dropped


class Owner:
    """Something that has something open, in a circle that only a collection opens."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.itself = self
        self.closing = Closing(self, lambda: closed.append(name))


@pytest.fixture
def closed() -> list[str]:
    """What was closed, in order."""
    return []


def test_not_in_a_collection(closed: list[str]) -> None:
    """What a dropped owner had is closed when the next is opened: the collector, which runs in the
    middle of anything, closes nothing."""
    first = Owner("first", closed)
    del first
    gc.collect()
    assert closed == []

    second = Owner("second", closed)
    wait_until_closed(1, closed)
    close_dropped()
    assert closed == ["first"]
    del second
    gc.collect()
    close_dropped()
    assert closed == ["first", "second"]


def test_who_opens_does_not_wait() -> None:
    """Q11: what takes long to close, as its server is gone, is in nobody's way."""
    goes_on, is_closed = threading.Event(), threading.Event()

    def close() -> None:
        assert goes_on.wait(20)
        is_closed.set()

    owner: t.Any = type("Owner", (), {})()
    Closing(owner, close)
    del owner
    following = Owner("following", [])
    goes_on.set()
    assert is_closed.wait(20)
    following.closing.close()


def test_closed_once(closed: list[str]) -> None:
    """What its owner has closed is not closed again."""
    owner = Owner("first", closed)
    owner.closing.close()
    del owner
    gc.collect()
    close_dropped()
    assert closed == ["first"]


def test_child_of_a_fork_closes_nothing(closed: list[str]) -> None:
    """What a parent has open is the parent's, dropped or not."""
    owner = Owner("first", closed)
    child = os.fork()
    if child == 0:
        del owner
        gc.collect()
        close_dropped()
        os._exit(len(closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    owner.closing.close()


def test_end_of_the_process() -> None:
    """A process that ends closes what it has open, of living owners too."""
    said = said_by(
        """
        living, dropped = Owner(), Owner()
        kept = closing.Closing(living, lambda: print("living"))
        closing.Closing(dropped, lambda: print("dropped"))
        del dropped
        print("end")
        """
    )
    assert said[0] == "end"
    assert sorted(said[1:]) == ["dropped", "living"]


def test_end_of_a_process_whose_servers_are_gone() -> None:
    """However many there are to close, a process ends within seconds."""
    said = said_by(
        """
        closing.ENDING_SECONDS = 0.0
        owners = [Owner() for _ in range(3)]
        for owner in owners:
            closing.Closing(owner, lambda: print("closed"))
        """
    )
    assert said == []


def said_by(code: str) -> list[str]:
    """Return the words that a process prints until it has ended."""
    code = "from flask_henri_jobs import closing\nclass Owner: ...\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def wait_until_closed(count: int, closed: list[str]) -> None:
    for thread in threading.enumerate():
        if thread.name == "henri-jobs-closing":
            thread.join(20)
    assert len(closed) == count
