"""Every bad command line is refused, in the words that ``tests/bad_inputs.py`` lists."""

from __future__ import annotations

import typing as t

import pytest

from bad_inputs import BAD_COMMANDS

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document

    from .conftest import Enqueue, Run


@pytest.mark.parametrize(("args", "message", "code"), BAD_COMMANDS)
def test_bad_commands(
    run: Run,
    enqueue: Enqueue,
    rows: Collection[Document],
    args: list[str],
    message: str,
    code: int,
) -> None:
    """A bad command line changes nothing, and ends with one message and its exit code."""
    enqueue("shop.add", {"a": 1}, id="running-1", unique="taken")
    enqueue("shop.fail", id="dead-1")
    for state in ("running", "dead"):
        rows.update_one({"_id": f"{state}-1"}, {"$set": {"state": state}})
    before = list(rows.find())

    ended = run(*args, code=code)

    assert "Traceback" not in ended.output
    assert ended.stderr.partition("Error: ")[2] == f"{message}\n"
    assert list(rows.find()) == before
