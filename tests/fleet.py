"""``flask jobs worker`` as it is run: its processes, and what they leave in the database."""

from __future__ import annotations

import typing as t
from pathlib import Path

from mongod import wait_until

if t.TYPE_CHECKING:
    import subprocess

    from pymongo.database import Database

Document: t.TypeAlias = dict[str, t.Any]


class Worker:
    """A process of ``flask jobs worker``, its runners, and what it printed."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, runners: t.Any) -> None:
        self.process = process
        self._output = output
        self._runners = runners

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self._output.read_text()

    def runners(self, role: str = "jobs") -> list[int]:
        """Return the processes that are at work."""
        rows = self._runners.find({"role": role}, sort=[("started_at", 1)])
        return [row["pid"] for row in rows if is_alive(row["pid"])]

    def wait_for_runners(self, count: int = 1) -> list[int]:
        """Return the processes as soon as there are so many."""
        wait_until(lambda: len(self.runners()) == count, f"{count} runners; {self.said}")
        return self.runners()

    def ended(self, seconds: float = 20) -> int:
        """Return its exit code once it has ended."""
        return self.process.wait(seconds)


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Start(t.Protocol):
    def __call__(
        self, *args: str, wrapped: str | None = None, folder: Path | None = None, **env: str
    ) -> Worker: ...


def stored(database: Database[Document], job_id: str) -> Document:
    row = database["henri_jobs"].find_one({"_id": job_id})
    assert row is not None
    return row


def wait_for_state(database: Database[Document], job_id: str, state: str) -> Document:
    wait_until(lambda: stored(database, job_id)["state"] == state, f"{job_id} to be {state}")
    return stored(database, job_id)


def wait_for_start(database: Database[Document], count: int = 1) -> list[Document]:
    """Wait until so many slow jobs have begun, and return who performs them."""
    begun = {"started": True}
    wait_until(lambda: database["notes"].count_documents(begun) >= count, "slow jobs to begin")
    return list(database["notes"].find(begun))
