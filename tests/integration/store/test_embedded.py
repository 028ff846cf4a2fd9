"""The embedded database (section 8): finding, starting, sharing, stopping."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from flask_henri_jobs.errors import ConfigError, StoreUnavailable
from flask_henri_jobs.store import embedded, watcher
from flask_henri_jobs.store.embedded import EmbeddedServer, file_system_of, share_server
from flask_henri_jobs.store.mongod import Mongod, find_mongod, free_port
from mongod import PATIENCE, Server, wait_until

LINGER = 0.3
NOBODY = 65534

USER = """
import sys
from pathlib import Path
from flask_henri_jobs.store.embedded import share_server

server = share_server(Path(sys.argv[1]), linger=float(sys.argv[2]))
print(server.uri, flush=True)
"""
WAITING = f"{USER}\nsys.stdin.read()\n"
LEAVING_ITS_CHILD = f"""{USER}
import os
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
"""
OUTLIVING_ITS_CHILD = f"""{USER}
import os
if (child := os.fork()) == 0:
    server.leave()
    os._exit(0)
os.waitpid(child, 0)
print("the child has left", flush=True)
sys.stdin.read()
"""

StartUser = t.Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(has_mongod: None, tmp_path: Path) -> t.Iterator[Path]:
    """A folder for an embedded database, whose processes are gone after the test."""
    folder = tmp_path / "embedded"
    yield folder
    if folder.exists():
        watcher.stop_mongod(folder)
        wait_until(lambda: not watcher.is_held(folder / watcher.WATCHING), "the watcher to go")


@pytest.fixture
def share(folder: Path) -> t.Iterator[t.Callable[..., EmbeddedServer]]:
    """Make this process a user, who has left after the test."""
    with contextlib.ExitStack() as undo:

        def share(**options: t.Any) -> EmbeddedServer:
            server = share_server(folder, **{"linger": LINGER, **options})
            undo.callback(server.leave)
            return server

        yield share


@pytest.fixture
def start_user(folder: Path) -> t.Iterator[StartUser]:
    """Start another process that uses the server until its input ends."""
    with contextlib.ExitStack() as undo:

        def start(script: str = WAITING, linger: float = LINGER) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(folder), str(linger)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            undo.enter_context(process)
            undo.callback(process.kill)
            return process

        yield start


def line_of(user: subprocess.Popen[str]) -> str:
    assert user.stdout is not None
    return user.stdout.readline().strip()


def let_go(user: subprocess.Popen[str]) -> None:
    assert user.stdin is not None
    user.stdin.close()
    user.wait(PATIENCE)


def client_of(server: EmbeddedServer) -> MongoClient[dict[str, t.Any]]:
    return MongoClient(server.uri, w="majority", serverSelectionTimeoutMS=5000)


def pid_of_mongod(folder: Path) -> int:
    return int((folder / "data" / "mongod.lock").read_text())


def pid_of_watcher(folder: Path) -> int:
    """Return the one process that runs the watcher's file on this very folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(watcher.__file__) in words and os.fsencode(folder) in words:
                return int(process.name)
    raise AssertionError("nobody watches")


def end_watcher_of(folder: Path) -> None:
    os.kill(pid_of_watcher(folder), signal.SIGKILL)
    wait_until(lambda: not watcher.is_held(folder / watcher.WATCHING), "the watcher to go")


def can_bind(endpoint: socket.socket, port: int) -> bool:
    try:
        endpoint.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def wait_until_stopped(folder: Path) -> None:
    wait_until(lambda: not Mongod(folder).runs(), "mongod to stop")
    wait_until(lambda: not watcher.is_held(folder / watcher.WATCHING), "the watcher to go")


@contextlib.contextmanager
def at_most(seconds: float) -> t.Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def test_transactions(share: t.Callable[..., EmbeddedServer]) -> None:
    """The server takes transactions as soon as it is shared."""
    with client_of(share()) as client, client.start_session() as session:
        with session.start_transaction():
            client.app.things.insert_one({"_id": 1}, session=session)
            client.app.others.insert_one({"_id": 2}, session=session)
        assert client.app.things.count_documents({}) == 1


def test_private(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """Only who may read the owner's file has the password, and there is no other way in."""
    server = share()
    port = server.uri.partition("@127.0.0.1:")[2].partition("/")[0]

    assert (folder / "password").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not Path(f"/tmp/mongodb-{port}.sock").exists()
    assert (folder / "password").read_text() not in repr(server)
    with (
        MongoClient[dict[str, t.Any]](server.uri.replace("@", "x@")) as stranger,
        pytest.raises(OperationFailure, match="Authentication failed"),
    ):
        stranger.app.things.find_one()
    with (
        MongoClient[dict[str, t.Any]](f"mongodb://127.0.0.1:{port}") as stranger,
        pytest.raises(OperationFailure, match="authentication"),
    ):
        stranger.admin.command("createUser", "me", pwd="x", roles=["root"])


def test_data_survives(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """The next server has the data of the last, and its port."""
    first = share()
    with client_of(first) as client:
        client.app.things.insert_one({"_id": 1})
    first.leave()
    wait_until_stopped(folder)

    second = share()
    assert second.uri == first.uri
    with client_of(second) as client:
        assert client.app.things.count_documents({}) == 1


def test_port_taken(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A port that is taken before the server has it costs another port, and no data."""
    first = share()
    with client_of(first) as client:
        client.app.things.insert_one({"_id": 1})
        _, port = client.address or ("", 0)
    first.leave()
    wait_until_stopped(folder)

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A server that ends gives up its lock a moment before its port.
        wait_until(lambda: can_bind(other, port), "the port to be free")
        other.listen()
        with at_most(15):
            second = share()
        assert second.uri != first.uri
        with client_of(second) as client:
            client.app.things.insert_one({"_id": 2})
            assert client.app.things.count_documents({}) == 2


def test_same_instant(folder: Path, start_user: StartUser) -> None:
    """Processes that start at the same instant share one server."""
    users = [start_user() for _ in range(4)]
    uris = {line_of(user) for user in users}

    assert len(uris) == 1
    assert all(uri.startswith("mongodb://") for uri in uris)
    assert Mongod(folder).runs()


def test_stops_after_the_last(folder: Path, start_user: StartUser) -> None:
    """The server stops once its last user has gone, and not while there is one."""
    first, last = start_user(), start_user()
    line_of(first), line_of(last)
    look = watcher.Watcher(folder, LINGER)

    let_go(first)
    assert not look.nobody_is_left()
    let_go(last)
    assert look.nobody_is_left()
    wait_until_stopped(folder)


def test_stops_after_a_killed_user(folder: Path, start_user: StartUser) -> None:
    """A user that is killed has gone."""
    user = start_user()
    line_of(user)
    user.kill()
    wait_until_stopped(folder)


def test_user_of_a_moment(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """Leaving twice is leaving once."""
    server = share()
    server.leave()
    server.leave()
    wait_until_stopped(folder)


def test_forked_child_outlives_its_parent(folder: Path, start_user: StartUser) -> None:
    """A forked child is a user too: the server goes on without the parent, and stops after it."""
    parent = start_user(LEAVING_ITS_CHILD)
    assert line_of(parent)
    assert line_of(parent) == "forked"
    parent.wait(PATIENCE)

    assert not watcher.Watcher(folder, LINGER).nobody_is_left()
    let_go(parent)
    wait_until_stopped(folder)


def test_forked_child_leaves(folder: Path, start_user: StartUser) -> None:
    """A forked child that leaves takes nothing from its parent."""
    parent = start_user(OUTLIVING_ITS_CHILD)
    assert line_of(parent)
    assert line_of(parent) == "the child has left"

    assert not watcher.Watcher(folder, LINGER).nobody_is_left()


def test_interrupt(folder: Path, start_user: StartUser) -> None:
    """Ctrl-C ends the user who started the server, and neither the server nor its watcher."""
    starter = start_user(linger=60)
    line_of(starter)
    pids = pid_of_mongod(folder), pid_of_watcher(folder)

    os.killpg(starter.pid, signal.SIGINT)
    starter.wait(PATIENCE)
    assert line_of(start_user()).startswith("mongodb://")
    assert (pid_of_mongod(folder), pid_of_watcher(folder)) == pids
    end_watcher_of(folder)


def test_watcher_killed(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A server whose watcher was killed is watched again from the next user on."""
    first = share()
    end_watcher_of(folder)

    share().leave()
    first.leave()
    wait_until_stopped(folder)


def test_unclean_shutdown(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """What a killed server had acknowledged is there after the next start, which is no longer."""
    first = share()
    with client_of(first) as client:
        client.app.things.insert_many([{"_id": n} for n in range(100)])
    os.kill(pid_of_mongod(folder), signal.SIGKILL)
    wait_until(lambda: not Mongod(folder).runs(), "mongod to be gone")

    with at_most(15):
        second = share()
    assert second.uri == first.uri
    with client_of(second) as client:
        client.app.things.insert_one({"_id": 100})
        assert client.app.things.count_documents({}) == 101


def test_half_started(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A server whose starter was killed before it was a replica set is made one by who joins."""
    embedded._prepare(folder)
    embedded._key(folder / "password")
    Mongod(folder).listens(find_mongod(), free_port(), time.monotonic() + PATIENCE)

    with client_of(share()) as client:
        client.app.things.insert_one({"_id": 1})


def test_half_moved(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A server whose starter was killed before it knew its new port is told by who comes next."""
    first = share()
    with client_of(first) as client:
        client.app.things.insert_one({"_id": 1})
    first.leave()
    wait_until_stopped(folder)
    (folder / "port").write_text(str(free_port()))

    second = share()
    assert second.uri != first.uri
    with client_of(second) as client:
        client.app.things.insert_one({"_id": 2})
        assert client.app.things.count_documents({}) == 2


def test_new_password(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A password file that was deleted is made again, and opens the old data."""
    first = share()
    with client_of(first) as client:
        client.app.things.insert_one({"_id": 1})
    first.leave()
    wait_until_stopped(folder)
    (folder / "password").unlink()

    second = share()
    assert second.uri != first.uri
    with client_of(second) as client:
        assert client.app.things.count_documents({}) == 1


def test_stale_lock(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A lock file's process number is not believed, not even that of a living process."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "mongod.lock").write_text(f"{os.getpid()}\n")
    (folder / "port").write_text("nonsense")

    with at_most(15), client_of(share()) as client:
        client.app.things.insert_one({"_id": 1})


@pytest.mark.parametrize("known", [True, False], ids=["its port kept", "no port kept"])
def test_foreign_server(folder: Path, share: t.Callable[..., EmbeddedServer], known: bool) -> None:
    """Data that another server holds is refused in one line, and that server is left alone."""
    foreign = Server(folder)
    foreign.start()
    try:
        if known:
            (folder / "port").write_text(str(foreign.port))
        with at_most(15), pytest.raises(StoreUnavailable) as caught:
            share()
        assert str(folder / "data" / "mongod.lock") in str(caught.value)
        assert "HENRI_JOBS_URI" in caught.value.hint
        assert "\n" not in str(caught.value)
        watcher.stop_mongod(folder)
        assert foreign.hello()["ok"]
    finally:
        foreign.kill()


def test_silent_server(
    folder: Path, share: t.Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of ours that hangs is an error in time, not a hang of every user."""
    share()
    pid = pid_of_mongod(folder)
    monkeypatch.setattr(embedded, "PATIENCE", 1.0)
    os.kill(pid, signal.SIGSTOP)
    try:
        with at_most(15), pytest.raises(StoreUnavailable, match="does not answer"):
            share()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_full_disk(has_mongod: None, tmp_path: Path) -> None:
    """A full disk is an error that names it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        with at_most(15), pytest.raises(StoreUnavailable, match="full") as caught:
            share_server(disk / "embedded", linger=LINGER)
        assert str(disk / "embedded") in caught.value.message
        assert "\n" not in str(caught.value)
        wait_until_stopped(disk / "embedded")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def as_nobody() -> t.Iterator[Path]:
    """A folder of another, unprivileged user, who this process is for as long as the test runs."""
    if os.geteuid() != 0:
        pytest.skip("only root may become somebody else")
    folder = Path(tempfile.mkdtemp(prefix="henri-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)


def test_unreadable_password(has_mongod: None, as_nobody: Path) -> None:
    """A password file that may not be read is an error that names it."""
    password = as_nobody / "password"
    password.write_text("x" * 64)
    password.chmod(0)

    with at_most(15), pytest.raises(ConfigError) as caught:
        share_server(as_nobody)
    assert f"cannot use {password} (Permission denied)" in str(caught.value)
    assert caught.value.hint


def test_folder_of_another_user(has_mongod: None, as_nobody: Path) -> None:
    """A folder that may not be written to is an error that names the file."""
    (as_nobody / "data").mkdir()
    as_nobody.chmod(0o500)

    with pytest.raises(ConfigError, match=r"starting\.lock \(Permission denied\)"):
        share_server(as_nobody)


@pytest.mark.parametrize("content", ["", "short", "with spaces" * 10, "\xff" * 40])
def test_spoilt_password(
    folder: Path, share: t.Callable[..., EmbeddedServer], content: str
) -> None:
    """A password file with something else in it is an error that names it."""
    folder.mkdir()
    (folder / "password").write_text(content)

    with pytest.raises(ConfigError, match="Delete the file") as caught:
        share()
    assert str(folder / "password") in caught.value.message


def test_start_taken(
    folder: Path, share: t.Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that another process does not finish is an error that names the lock."""
    folder.mkdir()
    monkeypatch.setattr(embedded, "PATIENCE", 0.1)
    lock = watcher.open_lock(folder / watcher.STARTING)
    assert watcher.has_locked(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(StoreUnavailable, match="fuser") as caught:
            share()
        assert str(folder / watcher.STARTING) in caught.value.message
    finally:
        os.close(lock)


def test_broken_program(folder: Path, share: t.Callable[..., EmbeddedServer]) -> None:
    """A program that is no mongod is an error in one line, and leaves nobody watching."""
    with at_most(15), pytest.raises(StoreUnavailable, match="HENRI_JOBS_MONGOD") as caught:
        share(mongod="false")
    assert "\n" not in str(caught.value)
    wait_until_stopped(folder)


def test_program_for_another_machine(
    folder: Path, share: t.Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    """A program that this machine cannot execute is an error that names it."""
    program = tmp_path / "mongod"
    program.write_bytes(b"\x00no program")
    program.chmod(0o755)

    with pytest.raises(ConfigError, match="cannot be executed") as caught:
        share(mongod=str(program))
    assert str(program) in caught.value.message


def test_no_mongod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is no mongod, the error names what to install and what to set."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(ConfigError, match=r'pip install "flask-henri-jobs\[disk\]"') as caught:
        share_server(tmp_path / "embedded")
    assert "HENRI_JOBS_MONGOD" in caught.value.hint
    assert not watcher.is_held(tmp_path / "embedded" / watcher.WATCHING)
    with pytest.raises(ConfigError, match="HENRI_JOBS_MONGOD is '/no/mongod'"):
        find_mongod("/no/mongod")


def test_order_of_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The configured program is taken before that on PATH, and that before the wheel's."""
    programs = [tmp_path / name / "mongod" for name in ("configured", "path", "fiftyone/db/bin")]
    for program in programs:
        program.parent.mkdir(parents=True)
        program.touch(mode=0o644)
    # Whoever imports it finds out; and an installer leaves the program without its right.
    (tmp_path / "fiftyone" / "__init__.py").write_text("raise RuntimeError('imported')")
    configured, on_path, in_wheel = programs
    configured.chmod(0o755)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_mongod() == in_wheel
    assert os.access(in_wheel, os.X_OK)
    on_path.chmod(0o755)
    assert find_mongod() == on_path
    assert find_mongod(str(configured)) == configured


MOUNTS = """\
overlay / overlay rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sda1 /home/me/my\\040disk ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/app", "overlay"),
        ("/home/me/app/instance", "nfs4"),
        ("/home/me/my disk/app", "ext4"),
        ("/homework", "overlay"),
    ],
)
def test_file_system(folder: str, kind: str) -> None:
    """The innermost mount says which kind of file system holds a folder."""
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_network_file_system(
    folder: Path, share: t.Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder on NFS is refused before anything is written into it."""
    monkeypatch.setattr(embedded, "_mounts", lambda: f"server:/x {folder.parent} nfs rw 0 0\n")

    with pytest.raises(ConfigError, match="nfs") as caught:
        share()
    assert str(folder) in caught.value.message
    assert not folder.exists()


def test_log_is_bounded(
    folder: Path, share: t.Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that has grown large is set aside while the server goes on writing to it."""
    server = share()
    log = folder / watcher.LOG
    monkeypatch.setattr(watcher, "MOST_LOG_BYTES", 1000)
    watcher.bound_log(log)

    with client_of(server) as client:
        client.admin.command("setParameter", 1, logLevel=1)
        client.admin.command("setParameter", 1, logLevel=0)
    wait_until(lambda: log.stat().st_size > 0, "the server to log")
    assert log.read_bytes().startswith(b'{"t"')
    assert (folder / "mongod.log.1").stat().st_size > 1000
