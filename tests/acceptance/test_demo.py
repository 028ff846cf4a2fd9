"""``make demo``: the account is right, a difference is seen, and nothing is left running."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from mongod import wait_until

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("has_mongod")

ACCOUNT = """
airports.csv: 3376 rows
  enqueued      14 jobs
  performed     14 jobs, 3376 places stored
  retried        3 jobs
             rows from 1751: GeocoderBusy: The geocoder was too busy for I69.
             rows from 2251: GeocoderBusy: The geocoder was too busy for MIT.
             rows from 2751: GeocoderBusy: The geocoder was too busy for SLQ.
  buried         0 jobs
  rejected       0 rows
  report        14 jobs ended, 0 of them dead

broken.csv: 12 rows
  enqueued       3 jobs
  performed      2 jobs, 3 places stored
  retried        1 jobs
             rows from 9: GeocoderBusy: The geocoder was too busy for QX4B.
  buried         1 jobs
             rows from 5 (discarded): Row 6 has 8 cells instead of 7.
  rejected       5 rows
             row 2: latitude is 91.0, beyond 90 degrees
             row 3: name is empty
             row 10: latitude is 'ten', which is not a number
             row 11: iata is empty
             row 12: longitude is nan, beyond 180 degrees
  report         3 jobs ended, 1 of them dead

All of it is as the files say.
"""


def test_demo_accounts_for_every_row(tmp_path: Path) -> None:
    """The demo tells what was enqueued, performed, retried and buried, and ends with exit 0."""
    ended = demo(tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert ACCOUNT in ended.stdout
    assert ended.stderr == ""
    wait_until(lambda: not processes_of(tmp_path), "the database to stop after its last user")


def test_demo_notices_a_flipped_bit(tmp_path: Path) -> None:
    """A row that was changed on its way is named, and the demo ends with exit 1."""
    ended = demo(tmp_path, "--tamper", "125")

    assert ended.returncode == 1
    assert "stored is ['00R', 'Livingston Municiqal'" in ended.stderr
    assert "in the file is ['00R', 'Livingston Municipal'" in ended.stderr
    assert "All of it" not in ended.stdout


def test_demo_says_why_it_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a database the demo ends with exit 1 and the end of the log, and leaves nothing."""
    monkeypatch.setenv("FLASK_HENRI_JOBS_MONGOD", str(tmp_path / "no-mongod"))

    ended = demo(tmp_path)

    assert ended.returncode == 1
    assert "no-mongod', and no program is there." in ended.stderr
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_demo_that_serves_ends_what_it_started(tmp_path: Path, stop: signal.Signals) -> None:
    """``--serve`` goes on until it is stopped, and then ends the web process and the worker."""
    with started(tmp_path, "--serve") as process:
        assert process.stdout is not None
        lines = list(until(lambda line: line.startswith("Serving on http://"), process.stdout))
        assert "Serving on http://" in "".join(lines)
        assert {"run", "worker"} <= set(" ".join(processes_of(tmp_path)).split())

        process.send_signal(stop)

        assert process.wait(40) == 0
    assert [line for line in processes_of(tmp_path) if "-m flask" in line] == []


def demo(instance: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(instance, *options), cwd=ROOT, text=True, capture_output=True, check=False
    )


@contextlib.contextmanager
def started(instance: Path, *options: str) -> t.Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(instance, *options),
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def until(found: t.Callable[[str], bool], lines: t.Iterable[str]) -> t.Iterator[str]:
    """Yield the lines up to the one that is looked for."""
    for line in lines:
        yield line
        if found(line):
            return


def command(instance: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "example_app.demo", "--instance", str(instance), *options]


def processes_of(instance: Path) -> list[str]:
    """Return the command lines of the processes that were started on a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_text().replace("\0", " "))
    return [line for line in lines if str(instance) in line and "example_app.demo" not in line]
