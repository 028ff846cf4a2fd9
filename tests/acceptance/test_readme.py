"""The README: each command and each block of code in it runs, and does what it says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from flask_henri_jobs.store.mongod import free_port
from mongod import wait_until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FINDS_THE_PACKAGE = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMANDS = [
    line.removeprefix("$ ")
    for kind, block in BLOCKS
    if kind == "console"
    for line in block.splitlines()
]
MAKE, PIP, FLASK, CURL = (
    [command for command in COMMANDS if command.startswith(f"{program} ")]
    for program in ("make", "pip", "flask", "curl")
)


def test_first_line_says_what_it_is() -> None:
    """Whoever reads one line knows what this is."""
    assert "background jobs for Flask on MongoDB" in README.splitlines()[0]


def test_nothing_is_left_untried() -> None:
    """Every command is one of those that the tests below run, and there is one program."""
    assert sorted(COMMANDS) == sorted(MAKE + PIP + FLASK + CURL)
    assert [kind for kind, _ in BLOCKS if kind != "console"] == ["python"]


@pytest.mark.parametrize("command", MAKE)
def test_make_targets_are_there(command: str) -> None:
    """Each target runs the project's own tools. The tests of the demo run what is behind them."""
    planned = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, text=True, capture_output=True, check=True
    )

    assert {"make demo": "-m example_app.demo", "make test": "pytest"}[command] in planned.stdout


@pytest.mark.parametrize("command", PIP)
def test_install_asks_for_what_there_is(command: str) -> None:
    """The package installs from the clone with its extra: pip finds all that it asks for."""
    assert command.startswith("pip install ")
    # Without an index: what is needed was installed for these tests, in versions that fit.
    options = ["--dry-run", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    planned = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *options],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )

    assert planned.returncode == 0, planned.stderr
    assert "Would install flask-henri-jobs" in planned.stdout
    assert "does not provide the extra" not in planned.stderr


def test_application_does_what_is_promised(has_mongod: None, tmp_path: Path) -> None:
    """The program and the commands as they stand: the job fails, waits, and is done."""
    [(_, program)] = [block for block in BLOCKS if block[0] == "python"]
    (tmp_path / "app.py").write_text(program)
    port = free_port()
    run, worker = FLASK
    enqueue, ask = CURL
    assert run.endswith(" run")

    with started(f"{run} --port {port}", tmp_path, "web"), started(worker, tmp_path, "worker"):
        wait_until(lambda: answers(port), "the web process")
        job_id = curl(enqueue, port)["id"]
        ask = ask.replace("ID", job_id)
        wait_until(lambda: curl(ask, port)["state"] == "done", "the job to be done")

        job = curl(ask, port)
        assert job["attempts"] == 2
        assert job["history"][0]["message"] == "ConnectionError: the mail server is busy"
        assert "Welcome, Ada!" in (tmp_path / "worker.log").read_text()


def test_links_lead_somewhere() -> None:
    """Each relative link names a file of the repository."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)

    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


@contextlib.contextmanager
def started(command: str, folder: Path, name: str) -> t.Iterator[None]:
    """Run a command in a folder, with its output in a log there, and end it afterwards."""
    line = [sys.executable, "-m", *shlex.split(command)]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(line, cwd=folder, env=FINDS_THE_PACKAGE, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(40)


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/").close()
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError:
        return False
    return True


def curl(command: str, port: int) -> dict[str, t.Any]:
    """Ask what ``curl`` would, of the server of this test."""
    _, url = shlex.split(command)
    with urllib.request.urlopen(url.replace(":5000/", f":{port}/")) as response:
        return t.cast(dict[str, t.Any], json.load(response))
