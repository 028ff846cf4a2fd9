"""What is distributed: the wheel holds the package alone, the sdist everything to work on it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "flask_henri_jobs"


def built(what: str, folder: Path) -> Path:
    """Build a distribution of the working tree, and return the file."""
    build = f"import sys; from flit_core.buildapi import {what}; print({what}(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(folder)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in the wheel."""
    with zipfile.ZipFile(built("build_wheel", tmp_path_factory.mktemp("wheel"))) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in the source distribution, without its folder's."""
    with tarfile.open(built("build_sdist", tmp_path_factory.mktemp("sdist"))) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def package_files() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_holds_the_package_and_nothing_else(wheel: list[str]) -> None:
    """Every file of the package is in the wheel, ``py.typed`` among them, and no other."""
    information = {name for name in wheel if ".dist-info/" in name}

    assert "flask_henri_jobs/py.typed" in wheel
    assert set(wheel) - information == package_files()
    assert any(name.endswith("licenses/LICENSE") for name in information)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CHANGES.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "pyproject.toml",
        "benchmarks/__main__.py",
        "benchmarks/soak/__main__.py",
        "docs/reference/configuration.md",
        "example_app/__init__.py",
        "example_app/broken.csv",
        "example_app/templates/layout.html",
        "flask_henri_jobs/py.typed",
        "tests/conftest.py",
        "tests/acceptance/test_package.py",
    ],
)
def test_sdist_holds_what_a_packager_needs(sdist: list[str], name: str) -> None:
    """Tests, documentation and example come with the source."""
    assert name in sdist


def test_sdist_holds_nothing_that_was_made(sdist: list[str]) -> None:
    """No cache, no data of a run, no built page is distributed."""
    made = ("__pycache__", "instance/", "docs/_build", ".pyc", ".venv", "_cache/")

    assert [name for name in sdist if any(part in name for part in made)] == []
