"""What a page of the documentation starts and leaves running: a web process, a worker."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from flask_henri_jobs.store.mongod import free_port
from mongod import wait_until
from pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

READY = {"worker": "Tasks known here:", "run": "Running on http"}


class Started:
    """A process with its output in a file."""

    def __init__(self, command: list[str], log: Path, folder: Path, env: dict[str, str]) -> None:
        self.kind = "run" if "run" in command else "worker"
        self._log = log
        self._command = command
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def interrupt(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it in order, as Ctrl-C does; it has to be ready for that, and to end well."""
        wait_until(self._is_ready, f"{shlex.join(self._command)} to be ready:\n{self.said}")
        # As a terminal does: what the process has started is told, too.
        os.killpg(self.process.pid, how)
        code = self.process.wait(30)
        well = {0} if self.kind == "worker" else {0, 1, -how}
        assert code in well, f"{shlex.join(self._command)} ended with {code}:\n{self.said}"

    def _is_ready(self) -> bool:
        code = self.process.poll()
        assert code is None, f"{shlex.join(self._command)} ended with {code}:\n{self.said}"
        return READY[self.kind] in self.said


class Background:
    """The processes of one page, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
        }
        self._folder = folder
        self._all: list[Started] = []

    def start(self, text: str) -> Started:
        """Start a lasting ``flask`` command; a web process on the port of this page."""
        command = [sys.executable, "-m", *shlex.split(text, comments=True)]
        if re.search(r"\brun\b", text):
            command += ["--port", str(self.port)]
        log = self._folder / f".{len(self._all)}.log"
        self._all.append(Started(command, log, self._folder, self.environment))
        return self._all[-1]

    @property
    def said(self) -> str:
        """What all of them have printed so far."""
        return "".join(started.said for started in self._all)

    @property
    def runs(self) -> bool:
        """Whether something runs that may change what a command shows."""
        return any(started.process.poll() is None for started in self._all)

    @property
    def serves(self) -> bool:
        """Whether the web process answers."""
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/").close()
        except urllib.error.HTTPError:
            return True
        except urllib.error.URLError:
            return False
        return True

    def stop(self) -> None:
        """End those that run still, in order: none may have failed."""
        running = [started for started in self._all if started.process.poll() is None]
        for started in running:
            started.interrupt(signal.SIGTERM)

    def kill(self) -> None:
        """End those that a failure of the page has left."""
        for started in self._all:
            if started.process.poll() is None:
                os.killpg(started.process.pid, signal.SIGTERM)
        for started in self._all:
            started.process.wait(30)
