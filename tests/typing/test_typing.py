"""The types of the public names, as mypy and pyright see them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ACCEPTED = HERE / "public_api.py"
REJECTED = HERE / "rejected.py"

Errors: t.TypeAlias = set[tuple[str, int]]
"""The files and lines that a checker complains about."""


def mypy_errors(folder: Path) -> Errors:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    found = output_of([*command, str(ACCEPTED), str(REJECTED)])
    return {
        (Path(path).name, int(line))
        for path, line in re.findall(r"^(.+?):(\d+): error: ", found, re.MULTILINE)
    }


def pyright_errors(folder: Path) -> Errors:
    # In a project of their own, since this one's configuration leaves out what is to be refused.
    for path in (ACCEPTED, REJECTED):
        shutil.copy(path, folder)
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(output_of([*command, "--project", str(folder)]))
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in found["generalDiagnostics"]
        if one["severity"] == "error"
    }


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def marked_lines() -> Errors:
    lines = REJECTED.read_text().splitlines()
    return {(REJECTED.name, n) for n, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("errors_of", [mypy_errors, pyright_errors])
def test_public_types(errors_of: t.Callable[[Path], Errors], tmp_path: Path) -> None:
    """A checker accepts all of ``public_api.py``, and refuses what ``rejected.py`` marks."""
    assert errors_of(tmp_path) == marked_lines()
