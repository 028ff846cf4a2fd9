"""The workers that are soaked, and what kills them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import typing as t
from collections import Counter
from pathlib import Path

from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
PATHS = (ROOT, ROOT / "tests")
"""Where processes find this, and the servers of the tests."""

PROCESSES = 2
PATIENCE = 60.0
"""Seconds that an orderly stop may take."""


class Worker:
    """``flask jobs worker -p 2``, which can be killed whole and started again."""

    def __init__(self, environment: dict[str, str], output: Path) -> None:
        self._environment = environment
        self._output = output
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, in a group of its own; what it says goes behind what it has said."""
        flask = ["-m", "flask", "--app", "benchmarks.soak.app"]
        work = ["jobs", "worker", "-p", str(PROCESSES)]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *flask, *work],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self.process

    def runners(self) -> list[int]:
        """Return the processes that the supervisor has started, the oldest first."""
        pid = self.process.pid
        try:
            return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        except OSError:
            return []

    def wait_for_runners(self) -> list[int]:
        """Return its runners once they are all there."""
        wait_until(lambda: len(self.runners()) >= PROCESSES, "the runners")
        return self.runners()[:PROCESSES]

    def kill_runner(self) -> None:
        """End one of its runners as ``kill -9`` does."""
        if runners := self.runners():
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(runners), signal.SIGKILL)

    def kill_whole(self) -> None:
        """End all its processes at once, and start it again."""
        self.end()
        self.start()

    def restart(self) -> None:
        """Stop it in order, as a deploy does, and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Stop it in order. One that has no runners yet may not hear signals yet."""
        self.wait_for_runners()
        self.process.terminate()
        if (code := self.process.wait(PATIENCE)) != 0:
            raise RuntimeError(f"A worker ended with {code}; see {self._output}")

    def end(self) -> None:
        """End all its processes, if they run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Killer:
    """Kills every few seconds, until told to stop.

    :param struck: Has its runners killed, and never its supervisor.
    :param mortal: Is killed whole as well, and started again.
    """

    SECONDS = (2.0, 6.0)

    def __init__(self, struck: Worker, mortal: Worker) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []
        self.has_failed = threading.Event()
        self._struck, self._mortal = struck, mortal
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        ways: dict[str, tuple[float, Callable[[], None]]] = {
            "runner killed": (0.5, self._struck.kill_runner),
            "runner of a mortal worker killed": (0.2, self._mortal.kill_runner),
            "worker killed whole": (0.2, self._mortal.kill_whole),
            "worker stopped and started": (0.1, self._mortal.restart),
        }
        while not self._ended.wait(random.uniform(*self.SECONDS)):
            [way] = random.choices([*ways], [weight for weight, _ in ways.values()])
            try:
                ways[way][1]()
            except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
                self.failed.append(f"{way}: {error}")
                self.has_failed.set()
                return
            self.counts[way] += 1


@contextlib.contextmanager
def workers(environment: dict[str, str], folder: Path, *names: str) -> Iterator[list[Worker]]:
    """Run some workers, and end whatever is left of them."""
    started = [Worker(environment, folder / f"{name}.log") for name in names]
    try:
        yield started
    finally:
        for worker in started:
            worker.end()


@contextlib.contextmanager
def enqueuing(
    environment: dict[str, str], folder: Path, ledger: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Have an application process enqueue within the block."""
    command = [sys.executable, "-m", "benchmarks.soak.load", str(ledger)]
    with (folder / "load.log").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
