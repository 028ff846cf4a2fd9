"""``docs/explanation/seed.md`` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "explanation" / "seed.md"


def test_every_member_has_its_test() -> None:
    """Each of the store's 52 members has a counterpart, and a test that there is."""
    rows = re.findall(r"(?m)^\| `([^`]+)`[^|]*\| (.+?) \| `(\w+)` \|$", PAGE.read_text())
    written = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    tests = set(re.findall(r"(?m)^def (test_\w+)", written))

    assert len({member for member, _, _ in rows}) == 52
    assert [test for _, _, test in rows if test not in tests] == []
