"""A database of our own: whoever comes first starts it, and it stops after the last has gone.

One folder holds everything: ``data``; ``password``, which is also the server's key file; ``port``,
the port of the last start; ``mongod.log``; and the three files that processes lock to agree with
one another, which :mod:`.watcher` describes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from pymongo.errors import OperationFailure, PyMongoError

from ..errors import ConfigError, StoreUnavailable
from . import watcher
from .mongod import NO_ROOM, Mongod, find_mongod, free_port
from .own_set import AUTHENTICATION_FAILED, looks, move, uri_once_writable

PATIENCE = 12.0
"""Seconds in which a server is started or joined, or an error says why not."""

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs"}


class EmbeddedServer:
    """One process's share of the server. A fork of the process has a share of its own.

    :ivar uri: How to connect: directly, and with the password in it.
    """

    def __init__(self, folder: Path, uri: str, share: int) -> None:
        self.folder = folder
        self.uri = uri
        self._share: int | None = share

    def __repr__(self) -> str:
        return f"<EmbeddedServer in {str(self.folder)!r}>"

    def leave(self) -> None:
        """Give up this process's share. It also goes with the process, however that ends."""
        share, self._share = self._share, None
        if share is not None:
            # Closed and not unlocked: unlocking would take the lock from a forked child as well.
            os.close(share)


def share_server(folder: Path, mongod: str | None = None, linger: float = 5.0) -> EmbeddedServer:
    """Join the server of a folder, or start it, and return once it can be written to.

    :param folder: Where it keeps everything; made where it is missing.
    :param mongod: The program, where it is not to be looked for.
    :param linger: Seconds that the server goes on after its last user has gone. Whoever starts
        it decides.
    :raises ConfigError: The folder or a file in it cannot be used, or there is no ``mongod``.
    :raises StoreUnavailable: The server cannot be reached or started.
    """
    folder = Path(folder).absolute()
    try:
        _prepare(folder)
        deadline = time.monotonic() + PATIENCE
        with contextlib.ExitStack() as undo, _one_at_a_time(folder, deadline):
            share = watcher.open_lock(folder / watcher.USERS)
            undo.callback(os.close, share)
            fcntl.flock(share, fcntl.LOCK_SH)
            uri = _uri_of_the_server(folder, mongod, linger, deadline)
            undo.pop_all()
        return EmbeddedServer(folder, uri, share)
    except OSError as error:
        raise _about(error, folder) from error


def _prepare(folder: Path) -> None:
    kind = file_system_of(folder, _mounts())
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigError(
            f"{folder} is on a network file system ({kind}), where locks and data are not safe.",
            hint="Set HENRI_JOBS_URI, or give the app an instance_path on a local disk.",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / watcher.DATA).mkdir(mode=0o700, exist_ok=True)


def _mounts() -> str:
    table = Path("/proc/self/mounts")
    return table.read_text() if table.exists() else ""


def file_system_of(folder: Path, mounts: str) -> str:
    """Return the kind of file system that holds a folder, or ``""``.

    :param mounts: The lines of ``/proc/self/mounts``.
    """
    kinds = {}
    for line in mounts.splitlines():
        _, place, kind = line.split(" ")[:3]
        kinds[Path(place.replace("\\040", " "))] = kind
    folder = folder.resolve()
    return next((kinds[place] for place in (folder, *folder.parents) if place in kinds), "")


@contextlib.contextmanager
def _one_at_a_time(folder: Path, deadline: float) -> t.Iterator[None]:
    path = folder / watcher.STARTING
    lock = watcher.open_lock(path)
    try:
        for _ in looks(deadline):
            if watcher.has_locked(lock, fcntl.LOCK_EX):
                break
        else:
            raise StoreUnavailable(
                f"Another process has held {path} for {PATIENCE:.0f} s.",
                hint=f"fuser {path} names it: end it, or wait for it.",
            )
        yield
    finally:
        # Unlocked and not only closed: a child that was forked meanwhile has the file open too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _uri_of_the_server(folder: Path, mongod: str | None, linger: float, deadline: float) -> str:
    key = _key(folder / watcher.KEY)
    server = Mongod(folder)
    if server.runs():
        uri = _join(server, key, deadline)
        _see_that_it_is_watched(folder, linger)
        return uri
    program = find_mongod(mongod)
    # Before the server, so that there is never one that nobody would stop.
    _see_that_it_is_watched(folder, linger)
    return _start(server, program, key, deadline)


def _key(path: Path) -> str:
    """Return the password, which is made where there is none, and is its owner's alone."""
    if not path.exists():
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600, exist_ok=False)
        fresh.write_text(secrets.token_hex(32))
        fresh.replace(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)  # mongod refuses a key file that others may read
    key = path.read_text(errors="replace").strip()
    if not (key.isascii() and key.isalnum() and len(key) >= 32):
        raise ConfigError(
            f"{path} does not hold the embedded database's password.",
            hint="Delete the file while the server is stopped: the next start makes another.",
        )
    return key


def _see_that_it_is_watched(folder: Path, linger: float) -> None:
    if not watcher.is_held(folder / watcher.WATCHING):
        command = [sys.executable, "-I", "-S", watcher.__file__, str(folder), str(linger)]
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(  # noqa: S603 - this very Python
                command, stdin=quiet, stdout=quiet, stderr=quiet, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise StoreUnavailable(
                f"{sys.executable!r} cannot run {watcher.__file__}.",
                hint="Set HENRI_JOBS_URI, or run the application with an ordinary python.",
            ) from error


def _join(server: Mongod, key: str, deadline: float) -> str:
    port = server.last_port()
    for _ in looks(deadline):
        if port is None:
            break
        try:
            return uri_once_writable(port, key, deadline)
        except OperationFailure as error:
            if error.code == AUTHENTICATION_FAILED:
                break
        except PyMongoError:
            # Its starter was killed before the server listened, or it mends its data still.
            continue
    raise server.held_by_another()


def _start(server: Mongod, program: Path, key: str, deadline: float) -> str:
    last = server.last_port()
    try:
        if last is not None and server.listens(program, last, deadline):
            port = last
        else:
            port = _elsewhere(server, program, key, deadline, moves=last is not None)
        return uri_once_writable(port, key, deadline)
    except PyMongoError as error:
        raise server.reason(error) from error


def _elsewhere(server: Mongod, program: Path, key: str, deadline: float, *, moves: bool) -> int:
    """Start the server on a free port, which is not that of its last start."""
    for port in [free_port() for _ in range(5)]:
        if not server.listens(program, port, deadline, alone=moves):
            continue
        if moves:
            # A member that starts looks for itself under its old address first, and whoever
            # listens there now may keep it waiting for 30 s (measured). So it is told before.
            move(port, key)
            while server.runs() and time.monotonic() < deadline:
                time.sleep(0.02)
            if not server.listens(program, port, deadline):
                continue
        return port
    raise server.reason()


def _about(error: OSError, folder: Path) -> ConfigError | StoreUnavailable:
    """Return the error that says which file cannot be used, and what to do."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreUnavailable(f"The disk that holds {folder} is full.", hint=NO_ROOM)
    return ConfigError(
        f"The embedded database cannot use {error.filename or folder} ({error.strerror}).",
        hint="Let this user own it, or set HENRI_JOBS_URI or another instance_path.",
    )
