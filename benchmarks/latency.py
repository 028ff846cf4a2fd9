"""From an enqueue to the first line of the task, where an idle worker waits for it."""

from __future__ import annotations

import random
import tempfile
import time
import typing as t
from pathlib import Path

from .app import NOTES, fresh, noted
from .processes import until, worker

ENQUEUED = 80
SHORTEST_PAUSE, LONGEST_PAUSE = 0.08, 0.12
"""Between two enqueues: longer than a runner goes on looking after it was woken."""


class Latencies(t.NamedTuple):
    """Milliseconds to the first line of the task, of each enqueue, in order."""

    since_call: list[float]
    """Since ``delay`` was called."""
    since_return: list[float]
    """Since it returned: the job was stored, durably."""


def latencies(uri: str) -> t.Generator[Latencies, None, None]:
    """Yield what was measured with one worker, and again."""
    with tempfile.TemporaryDirectory() as folder, fresh(uri) as database:
        notes = Path(folder) / "notes"
        notes.touch()
        with worker(uri, database, "--processes", "1", **{NOTES: str(notes)}):
            noted.delay(-1)
            until(lambda: -1 in read(notes), "the first job")
            time.sleep(1.0)
            done = 0
            while True:
                yield measured(notes, range(done, done + ENQUEUED))
                done += ENQUEUED


def measured(notes: Path, numbers: range) -> Latencies:
    """Enqueue jobs one by one, and return how long each took to begin."""
    called, returned = {}, {}
    for number in numbers:
        time.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
        called[number] = time.monotonic_ns()
        noted.delay(number)
        returned[number] = time.monotonic_ns()
    until(lambda: read(notes).keys() >= {*numbers}, "the last job")
    began = read(notes)
    return Latencies(
        [(began[number] - called[number]) / 1e6 for number in numbers],
        [(began[number] - returned[number]) / 1e6 for number in numbers],
    )


def read(notes: Path) -> dict[int, int]:
    """Return when each job began."""
    lines = notes.read_text().splitlines()
    return {int(number): int(began) for number, began in map(str.split, lines)}


def percentile(values: list[float], share: float) -> float:
    """Return the value that such a share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
