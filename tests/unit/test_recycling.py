"""When a process has served its time."""

from __future__ import annotations

import importlib
import os
import typing as t

import pytest

from flask_henri_jobs.worker.recycling import Sources, Wear, resident_bytes

if t.TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("wear", "jobs", "worn"),
    [
        (Wear(), 10**9, False),
        (Wear(max_jobs=3), 2, False),
        (Wear(max_jobs=3), 3, True),
        (Wear(max_memory=100, memory=lambda: 99), 0, False),
        (Wear(max_memory=100, memory=lambda: 100), 0, True),
        (Wear(max_jobs=3, max_memory=100, memory=lambda: 99), 3, True),
    ],
)
def test_wear(wear: Wear, jobs: int, worn: bool) -> None:
    """W11: a process is worn by its number of jobs, or by its memory."""
    assert wear.is_worn(jobs) is worn


def test_resident_bytes() -> None:
    """The memory of this process is that of a Python with a few modules."""
    assert 10 * 1024**2 < resident_bytes() < 10 * 1024**3


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W11: a change in a module of the project is told once; what is installed is not watched."""
    module = tmp_path / "a_module_of_the_project.py"
    module.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(module.stem)
    sources = Sources()
    assert sources.changed() is None

    os.utime(module, ns=(1, 1))

    assert sources.changed() == str(module)
    assert sources.changed() is None


def test_what_is_installed_is_not_watched() -> None:
    """The standard library and installed packages are nobody's project."""
    watched = set(Sources()._seen)

    assert not {importlib.__file__, pytest.__file__} & watched
    assert __file__ in watched
