"""How the soak tells what a process holds, and whether it has grown."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from benchmarks.soak.probe import Probe, Sample, sample_of

STEADY = Sample(memory=50.0, threads=20, sockets=9, handles=6)


def grown(samples: list[Sample]) -> list[str]:
    probe = Probe({"runner": 1}, {"runner": samples})
    return [growth.figure for growth in probe.growths() if not growth.is_kept]


def test_steady() -> None:
    """A process that now and then holds more for a while, and lets it go again, has not grown."""
    busy = STEADY._replace(memory=54.0, threads=22, sockets=12, handles=9)

    assert grown([*[STEADY, busy] * 20, *[STEADY, busy, busy, busy] * 10]) == []


@pytest.mark.parametrize("figure", Sample._fields)
def test_growing(figure: str) -> None:
    """One that holds on to a little more each time has."""
    samples = [STEADY._replace(**{figure: getattr(STEADY, figure) + n / 8}) for n in range(120)]

    assert grown(samples) == [figure]


def test_what_is_counted() -> None:
    """A thread, a socket and an open file are each counted once, as what they are."""
    before, ended = sample_of(os.getpid()), threading.Event()
    thread = threading.Thread(target=ended.wait)
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(os.devnull).open() as _:
        thread.start()
        now = sample_of(os.getpid())
    ended.set()
    thread.join()

    assert now[1:] == (before.threads + 1, before.sockets + 2, before.handles + 1)
    assert 1 < now.memory < 10_000
    with pytest.raises(OSError, match="No such file"):
        sample_of(2**22 + 1)
