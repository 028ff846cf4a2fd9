"""Commands about a queue with a job that some other program spoilt."""

from __future__ import annotations

import math
import typing as t

import pytest

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from integration.cli.conftest import Enqueue, Run

Document: t.TypeAlias = dict[str, t.Any]
MISSING = object()
FIELDS = (
    "name queue priority run_at attempts max_attempts args created_at started_at finished_at"
    " duration_ms timeout_ms tags history progress result headers tenant"
).split()
ODD = {"a list": [1], "text": "x", "NaN": math.nan, "a document": {"a": 1}, "missing": MISSING}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
@pytest.mark.parametrize("state", ["pending", "running", "dead"])
def test_every_command_shows_the_rest(
    rows: Collection[Document], enqueue: Enqueue, run: Run, state: str, odd: object
) -> None:
    """X8: whatever field is spoilt, each command ends with what it has to say, and no traceback."""
    row = {**enqueue("shop.add", {"a": 1, "b": 2}).row, "_id": "spoilt", "state": state}
    if state != "pending":
        row |= dict.fromkeys(("claimed_at", "heartbeat_at", "started_at"), row["created_at"])
        row |= {"attempts": 1, "claim_token": "theirs", "claimed_by": "host:1:runner"}
    for field in FIELDS:
        spoilt = {**row, field: odd}
        if odd is MISSING:
            del spoilt[field]
        rows.replace_one({"_id": "spoilt"}, spoilt, upsert=True)
        assert "spoilt" in run("list").output
        assert "spoilt" in run("list", "--json").output
        assert "spoilt" in run("show", "spoilt").output
        run("status")
        run("explain", "spoilt")
