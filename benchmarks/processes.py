"""Starting the processes that are measured, and seeing to their end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from .app import jobs

PATIENCE = 120.0
"""Seconds after which a process, or what is waited for, is given up on."""

FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started, and what it says on its standard error."""

    popen: subprocess.Popen[bytes]
    said: t.IO[bytes]

    def finish(self) -> None:
        """Wait for its end, which has to be a good one."""
        if self.popen.wait(PATIENCE) != 0:
            self.said.seek(0)
            command = shlex.join(map(str, t.cast("list[str]", self.popen.args)))
            raise RuntimeError(f"{command} failed:\n{self.said.read().decode()[-4000:]}")

    def stop(self) -> None:
        """Ask for its end, and wait for it."""
        self.popen.send_signal(signal.SIGTERM)
        self.finish()


@contextlib.contextmanager
def running(command: list[str], **environment: str) -> t.Iterator[Process]:
    """Run a command, and see that it has ended afterwards, however that comes."""
    env = {**os.environ, **environment}
    # A file and no pipe: a worker tells of each job that dies, and would wait for a reader.
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=said, env=env, cwd=FOLDER
        ) as popen,
    ):
        try:
            yield Process(popen, said)
        finally:
            popen.kill()


def worker_command(uri: str, database: str, *options: str) -> list[str]:
    """Return the command of a worker of the measured application."""
    app = f"benchmarks.app:create_app({uri!r}, {database!r})"
    return [sys.executable, "-m", "flask", "--app", app, "jobs", "worker", *options]


@contextlib.contextmanager
def worker(uri: str, database: str, *options: str, **environment: str) -> t.Iterator[Process]:
    """Have a worker at work within the block; it is stopped in order after it."""
    with running(worker_command(uri, database, *options), **environment) as process:
        until(lambda: runner_pids() != [], "a runner", process)
        yield process
        process.stop()


def runner_pids() -> list[int]:
    """Return the ids of the runner processes that say they live."""
    return [row["pid"] for row in jobs.database["henri_jobs_runners"].find({}, ["pid"])]


def until(
    condition: t.Callable[[], bool],
    what: str,
    process: Process | None = None,
    every: float = 0.02,
) -> None:
    """Ask every so many seconds until the answer is yes.

    :param process: Which must not end meanwhile.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.popen.poll() is not None:
            process.finish()
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE} s for {what}.")
        time.sleep(every)


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """Return how much processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
