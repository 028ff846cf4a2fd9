"""Which jobs a process has begun: a memory-mapped file that outlives it (W6)."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import typing as t
from collections import deque
from enum import IntEnum

MOST_BEGUN = 1024
"""Jobs that a process can have begun: more than it may have threads, and outcomes to be written."""

_ID_BYTES = 2048
"""The longest id: 512 characters."""

_LENGTH = struct.Struct("H")
_SLOT = 1 + _LENGTH.size + _ID_BYTES
_STAGE, _HURRY, _SUSPECTS, _RUNNER = 0, 1, 2, 8
_FIRST = _RUNNER + _SLOT
_PERFORMING, _PERFORMED, _COMMITTING = 1, 2, 3
SIZE = _FIRST + MOST_BEGUN * _SLOT


class Stage(IntEnum):
    """How far a runner process has come."""

    STARTING = 0
    AT_WORK = 1
    WORN = 2
    """It is at work, and asks for a successor."""
    ENDED = 3
    """It stopped in order: it holds nothing."""


class Marks:
    """What a runner process and its supervisor tell each other, without a write to the database.

    The process writes before and after each job, which costs it nothing; its supervisor reads when
    it has died, however it went. A file without a name: nothing of it is left behind.

    :param descriptor: The file; None where there is no supervisor to read it.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(-1 if descriptor is None else descriptor, SIZE)
        # The one that was free last is used first: few of the pages are ever touched.
        self._free = deque(reversed(range(MOST_BEGUN)))

    @property
    def stage(self) -> Stage:
        """How far the process has come."""
        return Stage(self._map[_STAGE])

    @stage.setter
    def stage(self, stage: Stage) -> None:
        self._map[_STAGE] = stage

    @property
    def hurry(self) -> bool:
        """Whether the supervisor has ended the grace."""
        return bool(self._map[_HURRY])

    @hurry.setter
    def hurry(self, hurry: bool) -> None:
        self._map[_HURRY] = hurry

    @property
    def suspects_wait(self) -> bool:
        """Whether the process has seen suspects that wait for one of their own."""
        return bool(self._map[_SUSPECTS])

    @suspects_wait.setter
    def suspects_wait(self, wait: bool) -> None:
        self._map[_SUSPECTS] = wait

    @property
    def runner(self) -> str | None:
        """The runner's id; None where it has none yet, and so no jobs."""
        return self._read(_RUNNER)

    @runner.setter
    def runner(self, runner: str) -> None:
        self._write(_RUNNER, runner)

    def begin(self, job_id: str) -> int:
        """Note that a job begins. Return the mark, for :meth:`returned` and :meth:`end`."""
        mark = self._free.pop()
        self._write(_FIRST + mark * _SLOT, job_id)
        return mark

    def returned(self, mark: int) -> None:
        """Note that a job has returned, and its outcome is to be stored."""
        self._map[_FIRST + mark * _SLOT] = _PERFORMED

    def commits(self, mark: int, *, so: bool = True) -> None:
        """Note whether a job is about to end in its transaction, which locks its document (X2)."""
        self._map[_FIRST + mark * _SLOT] = _COMMITTING if so else _PERFORMING

    def end(self, mark: int) -> None:
        """Note that nothing is left to do for a job."""
        self._map[_FIRST + mark * _SLOT] = False
        self._free.append(mark)

    def begun(self) -> list[str]:
        """Return the ids of the jobs that have begun and not returned."""
        return self._marked(_PERFORMING)

    def performed(self) -> list[str]:
        """Return the ids of the jobs that have returned, and whose outcome may not be stored."""
        return self._marked(_PERFORMED)

    def committing(self) -> list[str]:
        """Return the ids of the jobs that were about to end in their transactions."""
        return self._marked(_COMMITTING)

    def _marked(self, how: int) -> list[str]:
        places = [_FIRST + mark * _SLOT for mark in range(MOST_BEGUN)]
        found = [self._read(place) for place in places if self._map[place] == how]
        return [job_id for job_id in found if job_id is not None]

    def close(self) -> None:
        """Give the file up."""
        self._map.close()
        if self.descriptor is not None:
            os.close(self.descriptor)

    def _write(self, at: int, text: str) -> None:
        data = text.encode()
        self._map[at + 1 : at + 1 + _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
        # Last: a process that dies in between has not begun it.
        self._map[at] = _PERFORMING

    def _read(self, at: int) -> str | None:
        if not self._map[at]:
            return None
        start = at + 1 + _LENGTH.size
        (length,) = t.cast("tuple[int]", _LENGTH.unpack_from(self._map, at + 1))
        return self._map[start : start + length].decode()


def new_marks() -> Marks:
    """Return the marks of a process that is about to be started."""
    if hasattr(os, "memfd_create"):
        # On no disk: writing to a page that a full one has no room for ends the process.
        descriptor = os.memfd_create("henri-jobs")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, SIZE)
    return Marks(descriptor)
