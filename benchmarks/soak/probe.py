"""What a process holds, by the second, and by how much that has grown."""

from __future__ import annotations

import csv
import statistics
import threading
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")


class Sample(t.NamedTuple):
    """What a process holds at one moment.

    :param memory: What is resident of it, in megabytes.
    :param handles: Its open files that are no sockets.
    """

    memory: float
    threads: int
    sockets: int
    handles: int


BOUNDS = Sample(memory=5.0, threads=0, sockets=0, handles=2)
"""By how much each may grow from the second quarter to the last."""


class Growth(t.NamedTuple):
    """One figure of one process.

    Of memory that is the median of a quarter; of what is counted, the fewest: what comes and goes,
    such as the event loop of a coroutine, is not kept, and what is kept is among the fewest.

    :param second: What it was in the second quarter, and ``last`` in the last.
    """

    process: str
    figure: str
    second: float
    last: float
    lowest: float
    highest: float
    bound: float

    @property
    def by(self) -> float:
        """By how much it has grown."""
        return self.last - self.second

    @property
    def is_kept(self) -> bool:
        """Whether it has grown by no more than it may."""
        # Of memory less than the bound is promised, of what is counted no more than it.
        return self.by < self.bound if self.figure == "memory" else self.by <= self.bound


@dataclass(slots=True)
class Probe:
    """Looks at some processes each second until told to stop, and survives none of them.

    :param pids: The processes, by what they are called.
    """

    pids: dict[str, int]
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> t.Self:
        self.samples = {name: [] for name in self.pids}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join()

    def growths(self) -> list[Growth]:
        """Return by how much each figure of each process has grown."""
        return [
            _growth(name, at, samples)
            for name, samples in self.samples.items()
            if len(samples) >= 4
            for at in range(len(Sample._fields))
        ]

    def write(self, path: Path) -> None:
        """Keep each second's figures."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["process", "second", *Sample._fields])
            for name, samples in self.samples.items():
                writer.writerows([name, second, *one] for second, one in enumerate(samples))

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += 1.0
            for name, pid in self.pids.items():
                if name not in self.lost:
                    self._look_at(name, pid)

    def _look_at(self, name: str, pid: int) -> None:
        try:
            self.samples[name].append(sample_of(pid))
        except OSError:
            # It was to live to the end.
            self.lost.append(name)


def sample_of(pid: int) -> Sample:
    """Return what a process holds now.

    :raises OSError: There is no such process.
    """
    folder = PROC / str(pid)
    lines = (folder / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in status:
        raise ProcessLookupError(f"{pid} is dead.")
    kinds = [_kind_of(handle) for handle in (folder / "fd").iterdir()]
    sockets = sum(kind.startswith("socket:") for kind in kinds)
    return Sample(
        memory=int(status["VmRSS"].split()[0]) / 1024,
        threads=int(status["Threads"]),
        sockets=sockets,
        handles=len([kind for kind in kinds if kind]) - sockets,
    )


def _kind_of(handle: Path) -> str:
    try:
        return str(handle.readlink())
    except OSError:
        # It was closed meanwhile.
        return ""


def _growth(name: str, at: int, samples: list[Sample]) -> Growth:
    figure = Sample._fields[at]
    of_quarter = statistics.median if figure == "memory" else min
    values = [sample[at] for sample in samples]
    quarter = len(values) // 4
    return Growth(
        process=name,
        figure=figure,
        second=of_quarter(values[quarter : 2 * quarter]),
        last=of_quarter(values[-quarter:]),
        lowest=min(values),
        highest=max(values),
        bound=BOUNDS[at],
    )
