"""``flask jobs batches``."""

from __future__ import annotations

import typing as t

import pytest

import shop

if t.TYPE_CHECKING:
    from flask import Flask

    from flask_henri_jobs.building import OpenBatch
    from integration.cli.conftest import Answer, Run


@pytest.fixture
def opened(app: Flask) -> OpenBatch:
    """A batch with two jobs that nobody has sealed."""
    with app.app_context():
        batch = shop.jobs.batch(name="import", on_failure="alarm")
        batch.add_many(shop.add, [{"a": 1}, {"a": 2}])
        return batch


def test_list(run: Run, answer: Answer, opened: OpenBatch) -> None:
    """Batches are listed, with or without saying so; one that nobody sealed shows as open."""
    for words in (("batches",), ("batches", "list"), ("batches", "--state", "open")):
        assert opened.id in run(*words).output
        assert [batch["state"] for batch in answer(*words)] == ["open"]
    assert answer("batches", "--state", "finished") == []
    assert answer("batches", "--tenant", "acme") == []


def test_help(run: Run) -> None:
    """The group says what it has, and what an open batch is."""
    said = " ".join(run("batches", "--help").output.split())
    assert "died before it had sealed it" in said
    for name in ("cancel", "delete", "list", "show"):
        assert name in said


def test_show(run: Run, answer: Answer, opened: OpenBatch) -> None:
    """A batch is shown with what there is to say of it."""
    said = run("batches", "show", opened.id).output
    assert "import" in said
    assert "alarm" in said
    assert "sealed" not in said
    assert answer("batches", "show", opened.id)["name"] == "import"


def test_cancel(run: Run, answer: Answer, opened: OpenBatch) -> None:
    """A batch that was left is ended by hand, and may be so twice."""
    assert "Say --yes" in run("batches", "cancel", opened.id, code=2).stderr

    assert run("batches", "cancel", opened.id, "--yes").output == "Cancelled.\n"

    ended = answer("batches", "cancel", opened.id, "--yes")
    assert (ended["state"], ended["total"], ended["failed"]) == ("finished", 2, 2)


def test_cancel_too_late(app: Flask, run: Run, answer: Answer) -> None:
    """A batch that has finished is left as it is, and the command says so."""
    with app.app_context(), shop.jobs.batch() as batch:
        pass

    assert "had finished already" in run("batches", "cancel", batch.id, "--yes").stderr
    assert answer("batches", "show", batch.id)["cancelled_at"] is None


def test_delete(run: Run, answer: Answer, opened: OpenBatch) -> None:
    """A batch that was left is deleted with its jobs."""
    assert "Say --yes" in run("batches", "delete", opened.id, code=2).stderr
    assert run("batches", "delete", opened.id, "--yes").output == "Deleted.\n"
    assert answer("batches") == answer("list") == []


@pytest.mark.parametrize("command", [("show",), ("cancel", "--yes"), ("delete", "--yes")])
def test_unknown(run: Run, command: tuple[str, ...]) -> None:
    """The answer to an unknown id is no."""
    name, *options = command
    assert "no batch nothing" in run("batches", name, "nothing", *options, code=1).output
