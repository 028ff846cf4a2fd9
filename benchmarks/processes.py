"""Starting the processes that are measured, and seeing to their end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from .app import jobs

PATIENCE = 300.0
"""Seconds after which a process, or what is waited for, is given up on."""

FOLDER = Path(__file__).parents[1]


@contextlib.contextmanager
def running(command: list[str], **environment: str) -> t.Iterator[subprocess.Popen[str]]:
    """Run a command, and see that it has ended afterwards, however that comes."""
    quiet, kept = subprocess.DEVNULL, subprocess.PIPE
    env = {**os.environ, **environment}
    with subprocess.Popen(
        command, text=True, stdout=quiet, stderr=kept, env=env, cwd=FOLDER
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for the end of a process, which has to be a good one."""
    _, told = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, process.args))} failed:\n{told}")  # type: ignore[arg-type]


def worker_command(uri: str, database: str, *options: str) -> list[str]:
    """Return the command of a worker of the measured application."""
    app = f"benchmarks.app:create_app({uri!r}, {database!r})"
    return [sys.executable, "-m", "flask", "--app", app, "jobs", "worker", *options]


@contextlib.contextmanager
def worker(
    uri: str, database: str, *options: str, **environment: str
) -> t.Iterator[subprocess.Popen[str]]:
    """Have a worker at work within the block; it is stopped in order after it."""
    with running(worker_command(uri, database, *options), **environment) as process:
        until(lambda: runner_pids() != [], "a runner", process)
        yield process
        process.send_signal(signal.SIGTERM)
        finish(process)


def runner_pids() -> list[int]:
    """Return the ids of the runner processes that say they live."""
    return [row["pid"] for row in jobs.database["henri_jobs_runners"].find({}, ["pid"])]


def until(
    condition: t.Callable[[], bool], what: str, process: subprocess.Popen[str] | None = None
) -> None:
    """Ask every 20 ms until the answer is yes.

    :param process: Which must not end meanwhile.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            finish(process)
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE} s for {what}.")
        time.sleep(0.02)


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """Return how much processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
