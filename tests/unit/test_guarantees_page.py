"""``docs/explanation/guarantees.md`` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "guarantees.md"


def test_every_promise_has_its_test() -> None:
    """Each test that the page names is there, and each row of its table names one."""
    text = PAGE.read_text()
    written = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    tests = set(re.findall(r"(?m)^def (test_\w+)\(", written))
    rows = re.findall(r"(?m)^\| .+ \| (.+) \|$", text.partition("| --- |")[2])

    assert set(re.findall(r"`(test_\w+)`", text)) - tests == set()
    assert [row for row in rows if not re.fullmatch(r"`test_\w+`(, `test_\w+`)*", row)] == []
