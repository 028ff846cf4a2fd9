"""``docs/explanation/layout.md`` has a place for every file."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "layout.md"
PACKAGE = ROOT / "flask_henri_jobs"


def test_every_file_has_its_place() -> None:
    """Each file of the package stands in one row of the table, and each name there is a file."""
    rows = re.findall(r"(?m)^\|[^|]*\| (`[^|]+`) \|", PAGE.read_text())
    shown = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    files = [
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
    ]

    assert sorted(shown) == sorted(files)
