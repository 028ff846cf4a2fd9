"""Private servers for the tests: no password, free loopback ports, data in a temporary folder."""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import typing as t
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from flask_henri_jobs.store.mongod import find_mongod, free_port
from proxy import Proxy, proxies

PATIENCE = 30.0
"""Seconds that a server has to become ready."""

SET_NAME = "tests"

REAPER = """
import os, signal, sys
running = set()
for line in sys.stdin:
    what, pid = line.split()
    (running.add if what == "started" else running.discard)(int(pid))
for pid in running:
    os.kill(pid, signal.SIGKILL)
"""


class Server:
    """One ``mongod``, which can be stopped and started again with its port and its data."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers. It may not be writable yet."""
        self.launch()
        self.wait_until_it_answers()

    def launch(self) -> None:
        """Start the server, and return before it answers."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        with (self.folder / "mongod.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        reaper_is_told("started", self._process.pid)

    def wait_until_it_answers(self) -> None:
        """Return once the server takes commands; raise where it has ended instead."""
        wait_until(self._answers, f"mongod on {self.address}; see {self.folder / 'mongod.log'}")

    def stop(self) -> None:
        """Shut the server down in order. Does nothing where it does not run."""
        if self._process is not None:
            self._process.terminate()
            self._forget()

    def kill(self) -> None:
        """End the server as ``kill -9`` does. Does nothing where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def hello(self) -> dict[str, t.Any]:
        """Return what the server says of itself."""
        return self.command("hello")

    def command(self, *command: t.Any, **options: t.Any) -> dict[str, t.Any]:
        """Run a command on this very server's ``admin`` database."""
        uri = f"mongodb://{self.address}/?directConnection=true&serverSelectionTimeoutMS=1000"
        with MongoClient[dict[str, t.Any]](uri) as client:
            return client.admin.command(*command, **options)

    def _command(self) -> list[str]:
        return [
            *[str(find_mongod()), "--dbpath", str(self.folder / "data")],
            *["--port", str(self.port), "--bind_ip", "127.0.0.1", "--nounixsocket", "--quiet"],
            *["--wiredTigerCacheSizeGB", "1"],
            *["--setParameter", "diagnosticDataCollectionEnabled=false"],
            # For fail points, by which a test loses the reply to one command of one client.
            *["--setParameter", "enableTestCommands=1"],
            *["--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"],
            *self._options,
        ]

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self.folder / "mongod.log").read_text(errors="replace")
            raise RuntimeError(f"mongod ended with {self._process.returncode}: {log[-2000:]}")
        # A driver that is refused looks again after half a second; a socket says so at once.
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0 and bool(self.hello()["ok"])

    def _forget(self) -> None:
        assert self._process is not None
        self._process.wait(PATIENCE)
        reaper_is_told("ended", self._process.pid)
        self._process = None


class Deployment:
    """What a test connects to: one server, or the members of a replica set."""

    def __init__(self, members: list[Server], uri: str) -> None:
        self.members = members
        self.uri = uri

    @property
    def primary(self) -> Server:
        """The member that takes writes now."""
        return next(member for member in self.members if member.hello()["isWritablePrimary"])

    def start(self) -> None:
        """Start every member, and wait until there is a writable primary."""
        self.launch()
        self.wait_until_writable()

    def launch(self) -> None:
        """Start every member at once, and return when each answers."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_it_answers()

    def stop(self) -> None:
        """Shut every member down in order."""
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        """End every member as ``kill -9`` does."""
        for member in self.members:
            member.kill()

    def wait_until_writable(self) -> None:
        """Return once a member takes writes, and every other that runs follows it."""
        wait_until(self._is_writable, f"{self.uri} to be writable")

    def _is_writable(self) -> bool:
        answers = [member.hello() for member in self.members]
        return any(answer["isWritablePrimary"] for answer in answers) and all(
            answer["isWritablePrimary"] or answer.get("secondary") for answer in answers
        )


@contextlib.contextmanager
def standalone() -> t.Iterator[Deployment]:
    """Run a server that is in no replica set: it has no transactions."""
    with temporary_folder() as folder:
        server = Server(folder)
        yield from running(Deployment([server], f"mongodb://{server.address}/"))


@contextlib.contextmanager
def replica_set() -> t.Iterator[Deployment]:
    """Run a replica set of one."""
    with temporary_folder() as folder:
        yield from running(replica_set_of(1, folder))


@contextlib.contextmanager
def three_members() -> t.Iterator[Deployment]:
    """Run a replica set of three, whose elections take about a second."""
    with temporary_folder() as folder:
        yield from running(replica_set_of(3, folder))


@contextlib.contextmanager
def wired_members() -> t.Iterator[tuple[Deployment, list[Proxy]]]:
    """Run a replica set of three whose members are found, by each other too, behind proxies."""
    with temporary_folder() as folder:
        deployment = replica_set_of(3, folder)
        with proxies([member.port for member in deployment.members]) as wires:
            hosts = [wire.address for wire in wires]
            deployment.uri = f"mongodb://{','.join(hosts)}/?replicaSet={SET_NAME}"
            for started in running(deployment, hosts):
                yield started, wires


def replica_set_of(size: int, folder: Path) -> Deployment:
    options = ("--replSet", SET_NAME, "--oplogSize", "64")
    members = [Server(folder / str(number), *options) for number in range(size)]
    hosts = ",".join(member.address for member in members)
    return Deployment(members, f"mongodb://{hosts}/?replicaSet={SET_NAME}")


def running(deployment: Deployment, hosts: list[str] | None = None) -> t.Iterator[Deployment]:
    try:
        deployment.launch()
        if "replicaSet" in deployment.uri:
            initiate(deployment, hosts or [member.address for member in deployment.members])
        deployment.wait_until_writable()
        yield deployment
    finally:
        deployment.kill()


def initiate(deployment: Deployment, hosts: list[str]) -> None:
    members = [{"_id": n, "host": host} for n, host in enumerate(hosts)]
    settings = {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 200}
    config = {"_id": SET_NAME, "members": members, "settings": settings}
    deployment.members[0].command("replSetInitiate", config)


@contextlib.contextmanager
def temporary_folder() -> t.Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="henri-mongod-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition: t.Callable[[], bool], what: str, *, patience: float = PATIENCE) -> None:
    """Ask every 20 ms until the answer is yes. An unreachable server's answer is no."""
    pause = threading.Event()
    for _ in range(int(patience / 0.02)):
        with contextlib.suppress(PyMongoError):
            if condition():
                return
        pause.wait(0.02)
    raise TimeoutError(f"Waited {patience} s for {what}.")


def reaper_is_told(what: str, pid: int) -> None:
    """Tell the reaper what runs: it ends that once this process is gone, however it went.

    pytest-timeout leaves by ``os._exit``, which runs no fixture's end.
    """
    pipe = reaper().stdin
    assert pipe is not None
    pipe.write(f"{what} {pid}\n")
    pipe.flush()


@functools.cache
def reaper() -> subprocess.Popen[str]:
    # In a session of its own, so that Ctrl-C does not end it before its time.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", REAPER],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
