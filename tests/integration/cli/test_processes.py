"""The commands as a shell runs them: exit codes, terminals, and a database that is away."""

from __future__ import annotations

import os
import pty
import subprocess
import typing as t

import pytest

from flask_henri_jobs.store.mongod import free_port

if t.TYPE_CHECKING:
    from flask_henri_jobs.job import Job

    from .conftest import Enqueue, RunProcess

COLOUR = "\x1b["


class OnTerminal(t.Protocol):
    def __call__(self, *args: str, typed: str = "", **environment: str) -> tuple[int, str]: ...


@pytest.fixture
def on_terminal(command: list[str], environment: dict[str, str]) -> OnTerminal:
    """Run ``flask jobs ...`` on a terminal. Return the exit code and what the terminal showed."""

    def start(*args: str, typed: str = "", **more: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*command, *args], env=environment | more, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        return process.wait(60), shown.decode()

    return start


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # How Linux says that the last process has left the terminal.
        return b""


@pytest.fixture
def dead_letters(enqueue: Enqueue, run_process: RunProcess) -> list[Job]:
    jobs = [enqueue("shop.fail") for _ in range(3)]
    run_process("worker", "--once")
    return jobs


def test_exit_codes(run_process: RunProcess) -> None:
    """A process ends with 0 when it is done, 1 when the answer is no, 2 when it was misused."""
    run_process("list")
    assert run_process("show", "nope", code=1).stderr.startswith("Error: There is no job nope.")
    run_process("list", "--limit", "none", code=2)
    run_process("delete", "--state", "dead", code=2)


@pytest.mark.parametrize(
    ("args", "installs"),
    [
        (["list"], "true"),
        (["list"], "false"),
        (["status"], "true"),
        (["enqueue", "shop.add", '{"a": 1}'], "true"),
        (["uninstall", "--yes"], "true"),
        (["check"], "true"),
    ],
)
def test_database_out_of_reach(run_process: RunProcess, args: list[str], installs: str) -> None:
    """Q11: with nobody at the address a command says so in one line, and ends with 3."""
    port = free_port()

    ended = run_process(
        *args,
        code=3,
        FLASK_HENRI_JOBS_URI=f"mongodb://ann:hunter2@127.0.0.1:{port}/shop",
        FLASK_HENRI_JOBS_ENQUEUE_TIMEOUT="300ms",
        FLASK_HENRI_JOBS_INSTALL=installs,
    )

    assert ended.stderr.startswith("Error: The database did not answer a ping within 0.3 s: ")
    assert ended.stderr.endswith(" Is it running, and is HENRI_JOBS_URI right?\n")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""
    assert "hunter2" not in ended.stderr + ended.stdout


def test_password_that_is_wrong(run_process: RunProcess, mongo_uri: str) -> None:
    """A database that does not let us in is out of reach, and no password is shown."""
    ended = run_process(
        *["list"], code=3, FLASK_HENRI_JOBS_URI=mongo_uri.replace("//", "//ann:hunter2@")
    )

    assert ended.stderr.startswith("Error: The database does not allow a ping: ")
    assert "hunter2" not in ended.stderr


def test_bad_settings(run_process: RunProcess) -> None:
    """A factory that refuses a setting ends a command with its message and no traceback."""
    ended = run_process("list", code=1, FLASK_HENRI_JOBS_THREADS="0")

    assert ended.stderr == "Error: HENRI_JOBS_THREADS is 0. Give a whole number, 1 to 256.\n"


def test_check_of_an_embedded_database(run_process: RunProcess, tmp_path: t.Any) -> None:
    """``check`` finds a database of this host's own, also where no other could be had."""
    ended = run_process(
        "check", code=1, FLASK_HENRI_JOBS_URI="disk", FLASK_HENRI_JOBS_MONGOD=str(tmp_path)
    )

    assert ended.stdout.startswith("settings: HENRI_JOBS_URI is 'disk': jobs go to ")


def test_colours_on_a_terminal(dead_letters: list[Job], on_terminal: OnTerminal) -> None:
    """States are coloured on a terminal, and lines end where it ends."""
    code, shown = on_terminal("list", COLUMNS="70")

    assert code == 0
    assert shown.count(f"{COLOUR}31mdead") == 3
    assert max(len(_plain(line)) for line in shown.splitlines()) == 70


def test_no_color(dead_letters: list[Job], on_terminal: OnTerminal) -> None:
    """``NO_COLOR`` takes the colours away."""
    code, shown = on_terminal("list", NO_COLOR="1")

    assert code == 0
    assert "dead" in shown
    assert COLOUR not in shown


def test_piped_is_plain_and_whole(dead_letters: list[Job], run_process: RunProcess) -> None:
    """What is piped has neither colours nor cut lines, whatever the terminal."""
    piped = run_process("list", COLUMNS="20", FORCE_COLOR="1").stdout

    assert COLOUR not in piped
    assert all(job.id in piped for job in dead_letters)
    assert piped.splitlines()[1].endswith(" -")


def test_terminal_without_the_characters(enqueue: Enqueue, run_process: RunProcess) -> None:
    """What an output's encoding does not have is spelt out, and ends no command."""
    job = enqueue("shop.add", {"a": 1}, queue="Käse")

    listed = run_process("list", PYTHONIOENCODING="ascii").stdout
    assert r"shop.add  K\xe4se  pending" in listed
    assert r"K\xe4se" in run_process("show", job.id, PYTHONIOENCODING="ascii").stdout


def test_terminal_is_asked(dead_letters: list[Job], on_terminal: OnTerminal) -> None:
    """On a terminal what destroys asks: no changes nothing, yes does it and shows its progress."""
    code, shown = on_terminal("delete", "--state", "dead", typed="n\n")
    assert (code, "Delete 3 jobs? [y/N]" in shown) == (1, True)
    assert "Aborted!" in shown

    code, shown = on_terminal("retry", "--all", typed="y\n")
    assert (code, "Retry 3 jobs? [y/N]" in shown) == (0, True)
    assert "Retried  [####################################]  100%" in shown
    assert "3 jobs retried" in shown


def test_worker_shows_its_progress(enqueue: Enqueue, on_terminal: OnTerminal) -> None:
    """On a terminal ``worker --once`` counts as it goes."""
    enqueue("shop.add", {"a": 1})

    code, shown = on_terminal("worker", "--once")

    assert code == 0
    assert "\rWorking: 1 done" in shown
    assert "Performed: 1 done." in shown


def _plain(line: str) -> str:
    return "".join(
        part.partition("m")[2] if at else part for at, part in enumerate(line.split("\x1b"))
    )
