"""Runs a page of the documentation, block by block, as its reader would."""

from __future__ import annotations

import configparser
import contextlib
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import tomllib
import types
import typing as t
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from flask import Flask
from flask.cli import FlaskGroup

from background import Background
from flask_henri_jobs import HenriJobs
from mongod import wait_until
from pages import ROOT, Block, Command, blocks_of, commands_of, is_project, is_shown

if t.TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 30.0
"""Seconds within which a command has to show what the page shows."""

AN_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
LASTING = re.compile(r"flask (?:\S+ )*?(?:run\b|(?:[\w-]+ )worker\b(?!.* --(?:once|help)))")
LOOKING = re.compile(
    r"flask (?:\S+ )*?jobs (?:list|dead|show|status|batches|runners|limits|schedules)\b|curl .*ID"
)


class PageRunner:
    """Runs the blocks of one page, in order, in a folder and a database of their own.

    What the page does not make itself it is given: an ``app`` and its ``jobs``.
    """

    def __init__(self, page: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.page = page
        self.folder = folder
        self.blocks = blocks_of(page)
        self.background = Background(folder)
        self._made: list[tuple[HenriJobs, Flask]] = []
        self._last_id: str | None = None
        self._pause = threading.Event()
        self._is_project = is_project(self.blocks)
        self._remember_apps(patch)
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        self._put_modules_aside(patch)
        self.names = self._names(patch)

    def run(self) -> None:
        """Run every block. What is not so makes the test fail, with the line of the page."""
        try:
            for block in self.blocks:
                self._run(block)
            self.background.stop()
        finally:
            self.background.kill()
            self._close_apps()
            self._forget_modules()

    def _run(self, block: Block) -> None:
        if block.not_run is not None:
            return
        if block.file_name is not None:
            path = self.folder / block.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        try:
            run = _KINDS[block.kind]
        except KeyError:
            raise self._wrong(
                block.line,
                f"Nobody runs {block.kind or 'a block without a language'}: see CONTRIBUTING.md.",
            ) from None
        run(self, block)

    def python(self, block: Block) -> None:
        """Execute a block; a file is only compiled, and executed by what imports it."""
        # Blank lines before it, so that a traceback names the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, str(self.page), "exec")
        if block.file_name is None:
            with self._context():
                exec(code, self.names)

    def pycon(self, block: Block) -> None:
        """Execute what stands behind ``>>>``, and compare what it shows."""
        examples = doctest.DocTestParser().get_doctest(
            block.text, self.names, self.page.name, str(self.page), block.line
        )
        examples.globs = self.names
        said: list[str] = []
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        with self._context():
            runner = doctest.DocTestRunner(_Checker(), optionflags=options, verbose=False)
            runner.run(examples, out=said.append, clear_globs=False)
        if said:
            raise self._wrong(block.line, "".join(said))

    def console(self, block: Block) -> None:
        """Run each command, and compare what it shows."""
        for command in commands_of(block):
            text = self._with_id(command.text)
            program = shlex.split(text)[0]
            if LASTING.match(text) and self._is_project:
                self._start(command, text)
            elif program in _PROGRAMS:
                self._run_until_shown(command, lambda: _PROGRAMS[program](self, text))  # noqa: B023
            else:
                raise self._wrong(command.line, f"Nobody runs {program}: see CONTRIBUTING.md.")

    def output(self, block: Block) -> None:
        """Wait until what the page started has printed this."""
        self._await(block.line, block.text, lambda: self.background.said)

    def stop(self, _block: Block) -> None:
        """Stop what the page has started, as its reader is taken to have done."""
        self.background.stop()

    def flask(self, text: str) -> tuple[int, str]:
        """Run a ``flask`` command in this process, and return its exit code and what it said."""
        _, *arguments = shlex.split(text, comments=True)
        if LASTING.match(text):
            # There is no module that a process of its own could load.
            arguments.append("--once")
        self._forget_modules()
        loads = self._is_project or {"--app", "-A"} & set(arguments)
        app = None if loads else self.names["app"]
        group = FlaskGroup(create_app=(lambda: app) if app else None)
        made = len(self._made)
        result = CliRunner().invoke(group, arguments, prog_name="flask")
        self._close_apps(since=made)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    def curl(self, text: str) -> tuple[int, str]:
        """Ask what ``curl`` would, of the server that the page started."""
        *options, url = shlex.split(text, comments=True)[1:]
        url = url.replace(":5000/", f":{self.background.port}/")
        method = dict(zip(options[::2], options[1::2], strict=True)).get("-X", "GET")
        request = urllib.request.Request(url, method=method)
        wait_until(lambda: self.background.serves, "the web process")
        try:
            with urllib.request.urlopen(request) as response:
                return 0, response.read().decode()
        except urllib.error.HTTPError as error:
            return 0, error.read().decode()

    def as_it_stands(self, text: str) -> tuple[int, str]:
        """Run a program in a process of its own."""
        program, *arguments = shlex.split(text, comments=True)
        command = {
            "python": [sys.executable],
            "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        }.get(program, [program])
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.folder,
            env=self.background.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout

    def make(self, text: str) -> tuple[int, str]:
        """See that the target is there; what is behind it has tests of its own."""
        command = [*shlex.split(text, comments=True), "--dry-run"]
        planned = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
        return planned.returncode, ""

    def pip(self, text: str) -> tuple[int, str]:
        """See that ``pip`` finds all that an installation of this package asks for."""
        arguments = shlex.split(text, comments=True)
        # Without an index: what is needed was installed for these tests, in versions that fit.
        options = ["--dry-run", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
        planned = subprocess.run(
            [sys.executable, "-m", *arguments, *options],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if "does not provide the extra" in planned.stdout:
            return 1, planned.stdout
        return planned.returncode, "" if planned.returncode == 0 else planned.stdout

    def export(self, text: str) -> tuple[int, str]:
        """Set a variable for the commands that follow."""
        for setting in shlex.split(text, comments=True)[1:]:
            name, value = setting.split("=", 1)
            self.background.environment[name] = os.environ[name] = value
        return 0, ""

    def _start(self, command: Command, text: str) -> None:
        shows, stop, _ = command.shows.partition("^C\n")
        started = self.background.start(text)
        if shows.strip():
            self._await(command.line, shows, lambda: started.said)
        if stop:
            started.interrupt()

    def _run_until_shown(self, command: Command, run: t.Callable[[], tuple[int, str]]) -> None:
        ends_with = re.search(r"# ends with (\d+)$", command.text)
        expected = int(ends_with[1]) if ends_with else 0
        code, said = run()
        if LOOKING.match(command.text) and self.background.runs:
            until = time.monotonic() + PATIENCE
            while command.shows and not is_shown(command.shows, said):
                if time.monotonic() > until:
                    break
                self._pause.wait(0.02)
                code, said = run()
        if code != expected:
            raise self._wrong(command.line, f"'{command.text}' ended with {code}:\n{said}")
        if command.shows and not is_shown(command.shows, said):
            raise self._wrong(
                command.line, f"'{command.text}' said\n{said}\nand the page\n{command.shows}"
            )
        if ids := AN_ID.findall(said):
            self._last_id = ids[-1]

    def _await(self, line: int, shows: str, said: t.Callable[[], str]) -> None:
        until = time.monotonic() + PATIENCE
        while not is_shown(shows, said(), amidst=True):
            if time.monotonic() > until:
                raise self._wrong(line, f"It said\n{said()}\nand the page\n{shows}")
            self._pause.wait(0.02)

    def _with_id(self, text: str) -> str:
        if not re.search(r"\bID\b", text):
            return text
        chosen = self.names.get("ID", self._last_id)
        assert chosen, f"'{text}': no id was printed before, and no name ID is set."
        return re.sub(r"\bID\b", chosen, text)

    def _context(self) -> contextlib.AbstractContextManager[t.Any]:
        app = self.names.get("app")
        return app.app_context() if isinstance(app, Flask) else contextlib.nullcontext()

    def _names(self, patch: pytest.MonkeyPatch) -> dict[str, t.Any]:
        """Return the names of the page: those of a module ``app``, where it writes none."""
        module = types.ModuleType("page" if self._is_project else "app")
        patch.setitem(sys.modules, module.__name__, module)
        names = module.__dict__
        if not self._is_project:
            names["app"] = Flask("app", instance_path=str(self.folder / "instance"))
            names["jobs"] = HenriJobs(names["app"])
        return names

    def _remember_apps(self, patch: pytest.MonkeyPatch) -> None:
        init_app = HenriJobs.init_app

        def remembered(jobs: HenriJobs, app: Flask) -> None:
            init_app(jobs, app)
            self._made.append((jobs, app))

        patch.setattr(HenriJobs, "init_app", remembered)

    def _close_apps(self, since: int = 0) -> None:
        for jobs, app in self._made[since:]:
            jobs.state_of(app).close()
        del self._made[since:]

    def _put_modules_aside(self, patch: pytest.MonkeyPatch) -> None:
        """Have the page's files imported, and not what a test has imported by the same name."""
        names = [block.file_name or "" for block in self.blocks]
        written = {name.split("/")[0].removesuffix(".py") for name in names}
        for name in [name for name in sys.modules if name.split(".")[0] in written]:
            patch.delitem(sys.modules, name)

    def _forget_modules(self) -> None:
        """Have the page's files imported anew: they may have changed."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]

    def _wrong(self, line: int, what: str) -> AssertionError:
        return AssertionError(f"{self.page.relative_to(ROOT)}:{line}: {what}")


class _Checker(doctest.OutputChecker):
    """Compares as a command's output is compared."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got, optionflags) or is_shown(want, got)


def _parsed(parse: t.Callable[[str], t.Any]) -> t.Callable[[PageRunner, Block], None]:
    """Return what runs a block by reading it: it is for a program that is not there."""

    def run(runner: PageRunner, block: Block) -> None:
        try:
            parse(block.text)
        except ValueError as error:
            raise runner._wrong(block.line, f"This is no {block.kind}: {error}") from None

    return run


def _unit(text: str) -> None:
    try:
        # A unit of systemd names a key more than once.
        configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
    except configparser.Error as error:
        raise ValueError(error) from None


def _dockerfile(text: str) -> None:
    whole = re.sub(r"\\\n", "", text)
    for line in whole.splitlines():
        if not re.match(r"(FROM|RUN|COPY|WORKDIR|ENV|CMD|ENTRYPOINT|USER|ARG|EXPOSE) \S|#|$", line):
            raise ValueError(line)


def _yaml(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    try:
        yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def _shown(_runner: PageRunner, _block: Block) -> None:
    """Do nothing: a picture, or what a test of its own compares."""


_KINDS: dict[str, t.Callable[[PageRunner, Block], None]] = {
    "python": PageRunner.python,
    "pycon": PageRunner.pycon,
    "console": PageRunner.console,
    "output": PageRunner.output,
    "stop": PageRunner.stop,
    "ini": _parsed(_unit),
    "toml": _parsed(tomllib.loads),
    "json": _parsed(json.loads),
    "yaml": _parsed(_yaml),
    "dockerfile": _parsed(_dockerfile),
    "html": _shown,
    "mermaid": _shown,
    "text": _shown,
}

_PROGRAMS: dict[str, t.Callable[[PageRunner, str], tuple[int, str]]] = {
    "flask": PageRunner.flask,
    "curl": PageRunner.curl,
    "make": PageRunner.make,
    "pip": PageRunner.pip,
    "export": PageRunner.export,
    "mkdir": PageRunner.as_it_stands,
    "touch": PageRunner.as_it_stands,
    "rm": PageRunner.as_it_stands,
    "pytest": PageRunner.as_it_stands,
    "python": PageRunner.as_it_stands,
}
