"""The words for why a job does not run, and the page that lists them (X8)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flask_henri_jobs import reason
from flask_henri_jobs.job import Job
from flask_henri_jobs.reason import REASONS, Holder

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "explain-a-job.md"
MOMENT = datetime(2030, 1, 31, 9, 0, 12, tzinfo=UTC)


def as_code(hint: str) -> str:
    """Return a hint as a page has it."""
    return re.sub(r"'(flask [^']+)'", r"`\1`", hint)


def table() -> list[str]:
    """Return the rows that the page has of the reasons."""
    return [
        f"| `{code}` | {kind.when}. | {' '.join(f'`{fact}`' for fact in kind.facts)}"
        f" | {as_code(kind.hint)} |"
        for code, kind in REASONS.items()
    ]


def test_the_page_has_every_reason() -> None:
    """The table of the page is what the code says, row for row."""
    rows = re.findall(r"(?m)^\| .+ \|$", PAGE.read_text())

    assert rows == ["| Code | When | Facts | What to do |", "| --- | --- | --- | --- |", *table()]


def test_facts_do_not_hide_one_another() -> None:
    """No fact has the name of what stands beside it."""
    assert not {"code", "text", "hint"} & {fact for kind in REASONS.values() for fact in kind.facts}


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (1, "1 of 3 are held: by r0 for job j0 since 2030-01-31 09:00:12 UTC."),
        (5, "by r2 for job j2 since 2030-01-31 09:00:12 UTC and 2 more."),
    ],
)
def test_few_holders_are_named(held: int, said: str) -> None:
    """A text names three, and says how many more there are; the facts have them all."""
    holders = [Holder(job=f"j{n}", runner=f"r{n}", since=MOMENT) for n in range(held)]

    full = reason.key_full("mail:7", 3, held, holders)

    assert full.text.endswith(said)
    assert len(full.to_dict()["holders"]) == held
    assert full.to_dict()["holders"][0]["since"] == MOMENT.isoformat()


def test_json_can_be_written() -> None:
    """Whatever is missing in a row, a reason is plain values."""
    row = {"_id": "a", "name": "mail", "state": "dead", "error_message": "first\nsecond"}
    for one in (reason.ended(Job(row)), reason.running(Job(row)), reason.not_due(Job(row))):
        assert json.loads(json.dumps(one.to_dict()))["code"] == one.code
    assert reason.ended(Job(row)).text == "It is dead (failed) since an unknown time: first."
