"""Stops the embedded database after its last user has gone.

The starter of a server leaves this file running as a script. It imports nothing but the standard
library, so that it costs a few megabytes and not an application.

Whoever uses the server holds a shared lock on ``users.lock`` for as long as it lives; the kernel
gives it up for a process that is killed. Starting, joining and stopping happen one at a time, under
``starting.lock``. All are ``flock`` locks: they belong to the open file and survive a fork in the
child, so a user's forked child is a user too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STARTING = "starting.lock"
USERS = "users.lock"
WATCHING = "watching.lock"
DATA = "data"
LOG = "mongod.log"
KEY = "password"
MOST_LOG_BYTES = 4 * 1024 * 1024
LOOKS = 10
"""How many looks in a row must find nobody. One look could fall between two users."""


def open_lock(path: Path) -> int:
    """Open a file to lock, which no program that is started from here inherits."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def has_locked(lock: int, how: int) -> bool:
    """Lock an open file at once, or return False where another open file's lock forbids it."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Return whether somebody holds an exclusive lock on a file. The file need not exist."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not has_locked(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


class Watcher:
    """Waits for the last user to go, and then stops the server.

    :param folder: The folder of the embedded database.
    :param linger: Seconds without any user before the server is stopped.
    """

    def __init__(self, folder: Path, linger: float) -> None:
        self._folder = folder
        self._seconds_between_looks = linger / LOOKS
        self._watching = open_lock(folder / WATCHING)
        self._users = open_lock(folder / USERS)
        self._starting = open_lock(folder / STARTING)

    def is_the_only_one(self) -> bool:
        """Return whether no other process watches this folder; from then on this one does."""
        return has_locked(self._watching, fcntl.LOCK_EX)

    def watch(self) -> None:
        """Return after the last user has gone and the server has stopped."""
        while True:
            self._wait_for_the_last_user()
            # Nobody can become a user while this lock is held, so what is seen now stays true.
            fcntl.flock(self._starting, fcntl.LOCK_EX)
            if self.nobody_is_left():
                break
            fcntl.flock(self._starting, fcntl.LOCK_UN)
        stop_mongod(self._folder)
        # In this order: who starts the next server must find that nobody watches.
        os.close(self._watching)
        os.close(self._starting)

    def nobody_is_left(self) -> bool:
        """Return whether no process uses the server at this moment."""
        alone = has_locked(self._users, fcntl.LOCK_EX)
        if alone:
            fcntl.flock(self._users, fcntl.LOCK_UN)
        return alone

    def _wait_for_the_last_user(self) -> None:
        looks = 0
        while looks < LOOKS:
            time.sleep(self._seconds_between_looks)
            looks = looks + 1 if self.nobody_is_left() else 0
            bound_log(self._folder / LOG)


def stop_mongod(folder: Path, patience: float = 8.0) -> None:
    """Stop the folder's server, if it runs, and return after it has gone.

    :param patience: Seconds it has for an orderly end; then it is killed, and its journal has
        to mend at the next start what it had not written.
    """
    lock = folder / DATA / "mongod.lock"
    for sign in (signal.SIGTERM, signal.SIGKILL):
        # The lock is asked before the number in it is believed: only a living server holds it.
        if not is_held(lock) or not (pid := _our_server(lock, folder)):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
        end = time.monotonic() + patience
        while is_held(lock) and time.monotonic() < end:
            time.sleep(0.05)


def _our_server(lock: Path, folder: Path) -> int | None:
    # A server that was started by hand on the same data is not ours to stop; nor is what has the
    # number here, where the folder is shared with the container that the server runs in.
    pid = lock.read_text().strip()
    return int(pid) if pid and str(folder / KEY) in _command_of(pid) else None


def _command_of(pid: str) -> str:
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(FileNotFoundError):
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
        return ""
    asked = ["ps", "-ww", "-o", "command=", "-p", pid]
    return subprocess.run(asked, capture_output=True, check=False, text=True).stdout  # noqa: S603


def bound_log(log: Path) -> None:
    """Set a log aside that has grown large. The server appends, so it goes on with an empty one."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > MOST_LOG_BYTES:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


def main(folder: Path, linger: float) -> None:
    """Watch in a session of its own, and return to the caller at once."""
    watcher = Watcher(folder, linger)
    if not watcher.is_the_only_one() or os.fork():
        return
    # Ctrl-C in the starter's terminal, and its closing, are not for this process.
    os.setsid()
    os.chdir("/")
    with contextlib.suppress(FileNotFoundError):  # the folder was deleted, and so is the server
        watcher.watch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
