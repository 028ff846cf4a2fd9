"""The commands on jobs: list, dead, show, enqueue, perform, retry, delete, cancel, prune."""

from __future__ import annotations

import typing as t
from datetime import UTC, datetime, timedelta

import pytest

import shop
from flask_henri_jobs import signals

if t.TYPE_CHECKING:
    from flask import Flask
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document, Job

    from .conftest import Answer, Enqueue, Run

CLEAR_SCREEN = "\x1b[2J"


@pytest.fixture
def dead_letter(enqueue: Enqueue, run: Run) -> Job:
    """A job whose one attempt failed."""
    job = enqueue("shop.fail", {"message": f"no shelf {CLEAR_SCREEN}\nsecond line"})
    run("worker", "--once")
    return job


@pytest.fixture
def many(enqueue: Enqueue, rows: Collection[Document]) -> list[Job]:
    """Jobs that differ in everything that a filter asks for."""
    jobs = [
        enqueue("shop.add", {"a": 1}, queue="high"),
        enqueue("shop.add", {"a": 2}),
        enqueue("other.task", [3], queue="low"),
        enqueue("shop.fail"),
        enqueue("shop.discard"),
    ]
    fields: list[Document] = [
        {"tenant": "acme"},
        {"tags": ["order:1"], "state": "done", "finished_at": 1},
        {"batch_id": "b1", "state": "running", "claimed_by": "host:1:abc"},
        {"state": "dead", "dead_reason": "failed", "error_message": "ValueError: 1"},
        {"state": "dead", "dead_reason": "discarded"},
    ]
    for job, change in zip(jobs, fields, strict=True):
        rows.update_one({"_id": job.id}, {"$set": change})
    return jobs


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ((), {0, 1, 2, 3, 4}),
        (("--state", "pending"), {0}),
        (("--queue", "low"), {2}),
        (("--name", "shop.add"), {0, 1}),
        (("--tenant", "acme"), {0}),
        (("--batch", "b1"), {2}),
        (("--tag", "order:1"), {1}),
        (("--reason", "discarded"), {4}),
        (("--name", "shop.add", "--state", "done"), {1}),
        (("--queue", "nobody's"), set()),
    ],
)
def test_list_filters(
    many: list[Job], answer: Answer, filters: tuple[str, ...], found: set[int]
) -> None:
    """``list`` shows the jobs that fit every filter, and no other."""
    listed = {job["id"] for job in answer("list", *filters)}

    assert listed == {many[at].id for at in found}


def test_list_pages(many: list[Job], answer: Answer, run: Run) -> None:
    """``--limit`` and ``--offset`` go through the list, and a full page says how to go on."""
    whole = [job["id"] for job in answer("list")]
    pages = [
        job["id"]
        for offset in ("0", "2", "4")
        for job in answer("list", "--limit", "2", "--offset", offset)
    ]

    assert pages == whole
    assert run("list", "--limit", "2").stderr == "There may be more: --offset 2 goes on.\n"
    assert run("list", "--limit", "2", "--offset", "4").stderr == ""


def test_list_is_a_stable_table(many: list[Job], run: Run) -> None:
    """A list has one line a job under fixed titles, without colour, wrapping or what is empty."""
    titles, *lines = run("list").stdout.splitlines()

    assert titles.split() == [
        *["ID", "TASK", "QUEUE", "STATE", "ATTEMPTS", "PROGRESS", "CREATED", "DUE"]
    ]
    assert len(lines) == len(many)
    starts = [titles.index(title) for title in ("TASK", "QUEUE", "STATE")]
    for line in lines:
        assert all(line[start - 2 : start] == "  " and line[start] != " " for start in starts)
    assert "\x1b" not in run("list").output


def test_json_has_the_keys_of_a_job(many: list[Job], answer: Answer, app: Flask) -> None:
    """``--json`` shows a job as ``to_dict`` does, and whether it is paused."""
    with app.app_context():
        job = shop.jobs.get(many[1].id)
        assert job is not None
        assert answer("list", "--tag", "order:1") == [job.to_dict() | {"paused": False}]
        assert answer("show", many[1].id) == job.to_dict() | {"paused": False}


def test_dead_letters(many: list[Job], answer: Answer, run: Run) -> None:
    """``dead`` shows what somebody should look at, and with ``--reason`` what was meant to die."""
    assert [job["id"] for job in answer("dead")] == [many[3].id]
    assert [job["id"] for job in answer("dead", "--reason", "discarded")] == [many[4].id]
    assert "failed  0/1       -     ValueError: 1" in run("dead").stdout


def test_show_everything(dead_letter: Job, run: Run) -> None:
    """``show`` has the fields, the arguments, the history and the stack."""
    shown = run("show", dead_letter.id).stdout

    for text in [
        f"id              {dead_letter.id}\n",
        "task            shop.fail\n",
        "state           dead\n",
        "dead because    failed\n",
        "attempts        1 of 1\n",
        '\nArguments\n  {\n    "message": "no shelf \\u001b[2J\\nsecond line"\n  }\n',
        "\nAttempts that failed\n  1. ",
        "    raise NoSuchShelf(message)\n",
    ]:
        assert text in shown


def test_progress(many: list[Job], run: Run, answer: Answer, rows: Collection[Document]) -> None:
    """X3: ``list`` and ``show`` say how far a job is."""
    far = {"done": 1234567, "total": 2000000, "message": "row 1234567", "at": 1_800_000_000_000}
    rows.update_one({"_id": many[0].id}, {"$set": {"progress": far}})
    rows.update_one({"_id": many[1].id}, {"$set": {"progress": {"done": 0.5, "at": 1}}})

    listed = {line.split()[0]: line for line in run("list").stdout.splitlines()}
    assert " 61%  " in listed[many[0].id]
    assert " 0.5  " in listed[many[1].id]
    shown = run("show", many[0].id).stdout
    assert "1,234,567 of 2,000,000 (61%), " in shown
    assert shown.count(": row 1234567\n") == 1
    assert answer("show", many[0].id)["progress"] == {**far, "at": "2027-01-15T08:00:00+00:00"}
    assert answer("show", many[1].id)["progress"]["total"] is None


def test_logs(many: list[Job], run: Run, answer: Answer, rows: Collection[Document]) -> None:
    """X3: ``show`` has the log lines that a job kept, and says how many it did not."""
    line = {"at": 1_800_000_000_000, "attempt": 2, "level": "INFO", "logger": "shop"}
    kept = {"lines": [{**line, "message": "first\nmore\x1b[2J"}], "dropped": 7}
    rows.update_one({"_id": many[0].id}, {"$set": {"logs": kept}})

    shown = run("show", many[0].id).stdout

    assert "\nLog\n  ... 7 older lines were not kept\n  2. " in shown
    assert " INFO shop: first\n  more\\x1b[2J\n" in shown
    assert answer("show", many[0].id)["logs"][0]["at"] == "2027-01-15T08:00:00+00:00"
    assert "\nLog\n" not in run("show", many[1].id).stdout


def test_nothing_steers_the_terminal(dead_letter: Job, run: Run) -> None:
    """What stands in a job's error and arguments cannot clear the screen of who reads it."""
    for args in (["show", dead_letter.id], ["dead"], ["list"], ["show", dead_letter.id, "--json"]):
        assert "\x1b" not in run(*args).output
    assert r"NoSuchShelf: no shelf \x1b[2J" in run("dead").stdout


def test_show_of_an_unknown_task(many: list[Job], run: Run) -> None:
    """``show`` says that the application does not know a job's task."""
    assert "other.task (not known to this application)" in run("show", many[2].id).stdout


def test_explain(enqueue: Enqueue, run: Run, answer: Answer) -> None:
    """X8: every reason with its remedy, on the lines of its own; or that there is none."""
    job = enqueue("shop.add", {"a": 1}, queue="low")
    run("pause", "-q", "low")

    first, remedy, second, _ = run("explain", job.id).stdout.splitlines()
    assert first.startswith("The queue low is paused since ")
    assert remedy == "  Resume it: 'flask jobs resume --queue NAME'."
    assert second == "No runner takes from the queue low: none lives at all."
    told = answer("explain", job.id)
    assert [one["code"] for one in told] == ["queue_paused", "no_runner"]
    assert (told[0]["text"], told[0]["name"]) == (first, "low")
    run("resume", "-q", "low")
    [other] = answer("explain", job.id)
    assert other["code"] == "no_runner"


def test_explain_where_nothing_is_wrong(app: Flask, enqueue: Enqueue, run: Run) -> None:
    """X8: It says so, and that the job will be taken; of one that failed it says that."""
    job = enqueue("shop.fail", {"message": f"no shelf {CLEAR_SCREEN}"})
    facts = {"host": "host", "pid": 1, "role": "jobs", "tasks": ["shop.fail"], "app": "shop"}
    shop.jobs.state_of(app).store.runners.write("host:1:a", queues="*", threads=1, **facts)

    said = "Nothing holds it back. A runner will take it in a moment.\n"
    assert run("explain", job.id).stdout == said
    run("worker", "--once")
    ended = run("explain", job.id).stdout
    assert ended.startswith("It is dead (failed) since ")
    assert ": NoSuchShelf: no shelf \\x1b[2J.\n  'flask jobs show' tells" in ended


def test_enqueue_prints_the_id(run: Run, rows: Collection[Document]) -> None:
    """``enqueue`` stores a job with the options that are given, and prints its id alone."""
    out = run(
        *["enqueue", "shop.add", '{"a": 1}', "--queue", "low", "--priority", "7"],
        *["--max-attempts", "2", "--unique", "one", "--id", "mine"],
    ).stdout

    row = rows.find_one()
    assert row is not None
    assert out == "mine\n"
    assert (row["_id"], row["queue"], row["priority"]) == ("mine", "low", 7)
    assert (row["max_attempts"], row["unique_key"], row["args"]) == (2, "one", '{"a":1}')


def test_enqueue_of_the_same_again(run: Run, answer: Answer) -> None:
    """Q7: an enqueue that is handed a job which was there says so."""
    first = answer("enqueue", "shop.add", '{"a": 1}', "--unique", "one")
    again = run("enqueue", "shop.add", '{"a": 1}', "--unique", "one")

    assert again.stdout == f"{first['id']}\n"
    assert again.stderr == "It was there already, and is pending.\n"


def test_enqueue_with_tags(answer: Answer) -> None:
    """``--tag`` may be given several times, and the job is listed under each."""
    job = answer("enqueue", "shop.add", '{"a": 1}', "--tag", "order:42", "--tag", "refund")

    assert job["tags"] == ["order:42", "refund"]
    assert [listed["id"] for listed in answer("list", "--tag", "refund")] == [job["id"]]
    assert answer("delete", "--tag", "order:42", "--yes") == {"deleted": 1}


def test_enqueue_for_later(answer: Answer) -> None:
    """``--wait`` takes a duration, and ``--at`` a moment with its offset."""
    waiting = answer("enqueue", "shop.add", '{"a": 1}', "--wait", "90")
    at = answer("enqueue", "shop.add", '{"a": 1}', "--at", "2030-01-31T09:00+02:00")

    due, created = (datetime.fromisoformat(waiting[key]) for key in ("run_at", "created_at"))
    assert due - created == timedelta(seconds=90)
    assert datetime.fromisoformat(at["run_at"]) == datetime(2030, 1, 31, 7, tzinfo=UTC)


def test_arguments_from_the_standard_input(run: Run, rows: Collection[Document]) -> None:
    """``-`` has the arguments read from the standard input."""
    run("enqueue", "shop.add", "-", stdin='{"a": 5}')

    assert [row["args"] for row in rows.find()] == ['{"a":5}']


def test_perform(run: Run, answer: Answer, rows: Collection[Document]) -> None:
    """``perform`` prints what the task returns, and stores nothing."""
    assert run("perform", "shop.add", '{"a": 1, "b": 2}').stdout == "3\n"
    assert answer("perform", "shop.add", '{"a": 1, "b": 2}') == 3
    assert rows.count_documents({}) == 0


def test_perform_tells_what_the_task_raised(run: Run) -> None:
    """A task that raises ends ``perform`` with 1, its own frames, and one line that says so."""
    ended = run("perform", "shop.fail", code=1)

    assert ended.stdout == ""
    assert ended.stderr.endswith("Error: The task shop.fail raised NoSuchShelf: no such shelf\n")
    assert "raise NoSuchShelf(message)" in ended.stderr
    assert "flask_henri_jobs" not in ended.stderr


def test_perform_tells_of_a_verdict(run: Run) -> None:
    """A task that asks for a retry is not performed again by ``perform``."""
    ended = run("perform", "shop.flaky", code=1)

    assert ended.stderr == "Error: The task shop.flaky raised Retry(not yet).\n"


def test_retry_by_id(dead_letter: Job, run: Run, rows: Collection[Document]) -> None:
    """Q10: a job that is retried by its id waits again, with all its attempts."""
    assert run("retry", dead_letter.id).stdout == f"{dead_letter.id} retried\n"

    row = rows.find_one()
    assert row is not None
    assert (row["state"], row["attempts"]) == ("pending", 0)


def test_each_id_is_tried(dead_letter: Job, run: Run, rows: Collection[Document]) -> None:
    """An id that is refused does not keep the others from being done, and the exit code is 1."""
    ended = run("retry", "nope", dead_letter.id, "nor this", code=1)

    assert ended.stdout == f"{dead_letter.id} retried\n"
    assert ended.stderr.count("Error: There is no job") == 2
    assert rows.distinct("state") == ["pending"]


def test_cancel(enqueue: Enqueue, run: Run, answer: Answer, rows: Collection[Document]) -> None:
    """W8: ``cancel`` says of each job what becomes of it, and ``--json`` what it is then."""
    waiting, running, done = (enqueue("shop.add", {"a": n}).id for n in range(3))
    rows.update_one({"_id": running}, {"$set": {"state": "running", "claim_token": "t"}})
    rows.update_one({"_id": done}, {"$set": {"state": "done"}})

    said = run("cancel", waiting, running, done).stdout.splitlines()

    assert said == [
        f"{waiting} cancelled",
        f"{running} is told to end",
        f"{done} had ended already, and stays done",
    ]
    assert {row["_id"]: row["state"] for row in rows.find()} == {
        waiting: "dead",
        running: "running",
        done: "done",
    }
    [job] = answer("cancel", running)
    assert (job["state"], job["cancel_requested"] is not None) == ("running", True)
    assert "cancel requested" in run("show", running).stdout


def test_bulk_retry(many: list[Job], answer: Answer, rows: Collection[Document]) -> None:
    """Q5: ``retry --all`` takes the alarming dead letters; what was discarded takes its reason."""
    assert answer("retry", "--all", "--yes") == {"retried": 1}
    assert answer("retry", "--reason", "discarded", "--yes") == {"retried": 1}
    assert rows.count_documents({"state": "dead"}) == 0


def test_bulk_delete(
    many: list[Job], answer: Answer, app: Flask, rows: Collection[Document]
) -> None:
    """``delete`` with filters deletes what fits, tells of each, and leaves what runs."""
    told: list[str] = []

    def hear(_app: Flask, job: Job) -> None:
        told.append(job.id)

    with signals.job_deleted.connected_to(hear, sender=app):
        assert answer("delete", "--name", "shop.add", "--yes") == {"deleted": 2}
    assert sorted(told) == sorted(job.id for job in many[:2])
    assert answer("delete", "--batch", "b1", "--yes") == {"deleted": 0}
    assert rows.count_documents({}) == 3


@pytest.mark.parametrize(
    "args",
    [
        ("delete", "--state", "dead"),
        ("retry", "--all"),
        ("uninstall",),
        ("prune", "--keep-dead", "0"),
    ],
)
def test_what_destroys_asks_first(
    many: list[Job], run: Run, rows: Collection[Document], args: tuple[str, ...]
) -> None:
    """Without ``--yes`` and without a terminal, what destroys is refused with 2."""
    before = list(rows.find())

    assert "Say --yes." in run(*args, code=2).stderr
    assert list(rows.find()) == before


def test_prune(many: list[Job], answer: Answer, rows: Collection[Document]) -> None:
    """Q12: ``prune`` goes by the settings, and by other times where they are given."""
    rows.update_many({"state": "done"}, {"$set": {"updated_at": 1}})

    assert answer("prune") == {"done": 1, "dead": 0}
    assert answer("prune", "--keep-dead", "0", "--yes") == {"done": 0, "dead": 2}
    assert sorted(rows.distinct("state")) == ["pending", "running"]
