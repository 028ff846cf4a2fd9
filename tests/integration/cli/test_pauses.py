"""``flask jobs pause``, ``resume`` and ``pauses``, and where else a pause is shown."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from flask import Flask

    from .conftest import Answer, Enqueue, Run


def test_pause_and_resume(run: Run, answer: Answer) -> None:
    """X4: What is paused is shown until it is resumed."""
    assert run("pauses").stdout == "Nothing is paused.\n"
    assert run("pause", "-q", "mail").stdout.startswith("The queue mail is paused, since ")
    paused = answer("pause", "--name", "shop.add")
    assert answer("pause", "--tenant", "acme")["kind"] == "tenant"

    assert paused["paused_at"].endswith("+00:00")
    assert [(one["kind"], one["name"]) for one in answer("pauses")] == [
        ("queue", "mail"),
        ("task", "shop.add"),
        ("tenant", "acme"),
    ]
    lines = [line.split()[:2] for line in run("pauses").stdout.splitlines()]
    assert lines == [
        ["PAUSED", "NAME"],
        ["queue", "mail"],
        ["task", "shop.add"],
        ["tenant", "acme"],
    ]
    assert run("resume", "-q", "mail").stdout == "The queue mail goes on.\n"
    assert answer("resume", "-n", "shop.add") == paused
    assert run("resume", "-q", "mail", code=1).stdout == ""
    assert [one["name"] for one in answer("pauses")] == ["acme"]


def test_status_shows_pauses(enqueue: Enqueue, run: Run, answer: Answer) -> None:
    """X4: The queue that is paused, and what else is."""
    enqueue("shop.add", {"a": 1}, queue="low")
    enqueue("shop.add", {"a": 1}, queue="high")
    run("pause", "-q", "low")
    run("pause", "-n", "shop.fail")

    lines = [line.split() for line in run("status").stdout.splitlines()]

    assert (lines[1][0], lines[1][-1]) == ("high", "-")
    assert (lines[2][0], lines[2][-1]) == ("low", "yes")
    assert ["queue", "low"] in [line[:2] for line in lines]
    assert ["task", "shop.fail"] in [line[:2] for line in lines]
    status = answer("status")
    assert [queue["paused"] for queue in status["queues"]] == [False, True]
    assert [pause["name"] for pause in status["pauses"]] == ["low", "shop.fail"]


def test_list_and_show_mark_paused_jobs(enqueue: Enqueue, run: Run, answer: Answer) -> None:
    """X4: A waiting job says that it is held back, and by what; another does not."""
    held = enqueue("shop.add", {"a": 1}, queue="low")
    free = enqueue("shop.add", {"a": 1}, queue="high")
    run("pause", "-q", "low")

    due = {line.split()[0]: line.split()[-1] for line in run("list").stdout.splitlines()}
    assert due[held.id] == "paused"
    assert due[free.id] == "now"
    assert {one["id"]: one["paused"] for one in answer("list")} == {held.id: True, free.id: False}
    assert "\npaused    queue low since " in run("show", held.id).stdout
    assert "paused" not in run("show", free.id).stdout
    assert answer("show", held.id)["paused"] is True
    assert answer("show", free.id)["paused"] is False


def test_runners_show_their_paused_queues(app: Flask, run: Run, answer: Answer) -> None:
    """X4: A runner says which of its queues are paused, and not which of others'."""
    store = app.extensions["henri_jobs"].state_of(app).store
    for name, queues in (("all", "*"), ("mail", "mail:4,sms:1")):
        store.runners.write(
            f"host:1:{name}",
            app="shop",
            host="host",
            pid=1,
            role="jobs",
            queues=queues,
            threads=5,
            tasks=["shop.add"],
        )
    run("pause", "-q", "low")
    run("pause", "-q", "sms")

    assert {one["id"]: one["paused"] for one in answer("runners")} == {
        "host:1:all": ["low", "sms"],
        "host:1:mail": ["sms"],
    }
    shown = run("runners").stdout
    assert "* (paused: low, sms)" in shown
    assert "mail:4,sms:1 (paused: sms)" in shown
