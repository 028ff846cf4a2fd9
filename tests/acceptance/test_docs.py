"""The documentation: each block of code in it runs, and does what the page says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from flask import Flask
from werkzeug.datastructures import ImmutableDict

from page_runner import PageRunner
from pages import ROOT, blocks_of, is_project

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
#: Pages that start many processes.
SLOW = {"docs/how-to/workers.md", "docs/tutorial.md"}
SLOWLY = [pytest.mark.faults, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=SLOWLY if name in SLOW else [])
        for page, name in zip(PAGES, NAMES, strict=True)
    ],
)
def test_page_does_what_it_says(
    page: Path, mongo_uri: str, database_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of the page runs, from the first to the last, in a folder of its own."""
    where = {"HENRI_JOBS_URI": mongo_uri, "HENRI_JOBS_DATABASE": database_name}
    if not is_project(blocks_of(page)):
        config = ImmutableDict({**Flask.default_config, **where})
        monkeypatch.setattr(Flask, "default_config", config)
    for name, value in where.items():
        monkeypatch.setenv(f"FLASK_{name}", value)
    monkeypatch.setenv("FLASK_RUN_FROM_CLI", "true")

    PageRunner(page, tmp_path, monkeypatch).run()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file of the repository."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_what_is_not_run_has_a_reason() -> None:
    """A block that is not run says why, and such blocks are few."""
    not_run = {
        f"{page.name}:{block.line}": block.not_run
        for page in PAGES
        for block in blocks_of(page)
        if block.not_run is not None
    }

    assert [where for where, reason in not_run.items() if len(reason.split()) < 4] == []
    assert len(not_run) <= 12


def test_readme_begins_with_what_it_is() -> None:
    """Whoever reads one line knows what this is."""
    assert "background jobs for Flask on MongoDB" in (ROOT / "README.md").read_text().split("\n")[0]
