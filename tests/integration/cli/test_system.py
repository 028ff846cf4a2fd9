"""The commands on the queue as a whole: worker, status, install, uninstall, check."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask

import shop
from flask_henri_jobs import HenriJobs

if t.TYPE_CHECKING:
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document

    from .conftest import Answer, Enqueue, Run, RunProcess

KNOWN = "Tasks known here: shop.add, shop.discard, shop.fail, shop.flaky\n"


RUNNER = "host:7:0a1b2c3d"


class Alive(t.Protocol):
    def __call__(self, *tasks: str) -> None: ...


@pytest.fixture
def alive(app: Flask) -> Alive:
    """Have a runner that knows some tasks be alive."""

    def write(*tasks: str) -> None:
        with app.app_context():
            shop.jobs.state.store.runners.write(
                RUNNER,
                app="shop",
                host="host",
                pid=7,
                role="jobs",
                queues="*",
                threads=5,
                tasks=list(tasks),
            )

    return write


def test_worker_once(enqueue: Enqueue, run: Run, answer: Answer) -> None:
    """``worker --once`` performs what is due, says what it knows, and counts the endings."""
    for name in ("shop.fail", "shop.flaky", "shop.discard"):
        enqueue(name)
    enqueue("shop.add", {"a": 1})
    enqueue("shop.add", {"a": 1}, queue="other")

    worked = run("worker", "--once", "--queues", "default")

    assert worked.stdout == "Performed: 1 done, 1 retried, 2 dead.\n"
    assert KNOWN in worked.stderr
    counts = answer("worker", "--once")
    assert counts == {"done": 1, "retried": 0, "snoozed": 0, "dead": 0, "lost": 0}
    assert run("worker", "--once").stdout == "Performed: nothing was due.\n"


def test_worker_that_knows_no_task(mongo_uri: str, database_name: str) -> None:
    """A worker without tasks says where those are named that it has not seen."""
    app = Flask("empty")
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    jobs = HenriJobs(app)

    ended = app.test_cli_runner().invoke(args=["jobs", "worker", "--once"])

    assert ended.exit_code == 0
    assert "none. Name the modules that declare them in HENRI_JOBS_IMPORTS." in ended.stderr
    jobs.state_of(app).close()


def test_status(enqueue: Enqueue, run: Run, rows: Collection[Document], alive: Alive) -> None:
    """``status`` shows the states of each queue, how long jobs wait, and who knows their tasks."""
    alive("other.task")
    enqueue("shop.add", {"a": 1}, queue="high")
    waiting = enqueue("other.task")
    rows.update_one({"_id": waiting.id}, {"$inc": {"run_at": -3 * 3600 * 1000}})
    rows.update_one({"_id": enqueue("shop.fail").id}, {"$set": {"state": "dead"}})

    lines = [line.split() for line in run("status").stdout.splitlines()]

    assert lines[0] == ["QUEUE", "PENDING", "RUNNING", "DONE", "DEAD", "OLDEST", "DUE", "PAUSED"]
    assert lines[1] == ["default", "1", "0", "0", "1", "3h", "-"]
    assert lines[2][:5] == ["high", "1", "0", "0", "0"]
    assert lines[4] == ["TASK", "WAITING", "KNOWN", "TO", "A", "WORKER"]
    assert sorted(lines[5:]) == [["other.task", "1", "yes"], ["shop.add", "1", "no"]]


def test_status_for_programs(enqueue: Enqueue, answer: Answer, alive: Alive) -> None:
    """``status --json`` names the waiting tasks that no live runner knows."""
    enqueue("shop.add", {"a": 1})
    enqueue("other.task")
    assert answer("status")["runners"] == 0
    alive("other.task")

    status = answer("status")

    assert [queue["queue"] for queue in status["queues"]] == ["default"]
    assert isinstance(status["queues"][0]["oldest_ms"], int)
    assert status["waiting_tasks"] == {"shop.add": 1, "other.task": 1}
    assert (status["runners"], status["unknown_tasks"]) == (1, ["shop.add"])


def test_runners(
    app: Flask, enqueue: Enqueue, run: Run, answer: Answer, rows: Collection[Document], alive: Alive
) -> None:
    """``runners`` shows who lives, since when, and which jobs each has in hand."""
    assert answer("runners") == []
    alive("shop.add", "shop.fail")
    busy = enqueue("shop.add", {"a": 1})
    in_hand = {"state": "running", "claimed_by": RUNNER, "started_at": busy.row["created_at"]}
    rows.update_one({"_id": busy.id}, {"$set": in_hand})

    (runner,) = answer("runners")
    lines = [line.split() for line in run("runners").stdout.splitlines()]

    assert (runner["id"], runner["tasks"]) == (RUNNER, ["shop.add", "shop.fail"])
    assert runner["started_at"].endswith("+00:00")
    assert [(job["id"], job["name"]) for job in runner["doing"]] == [(busy.id, "shop.add")]
    assert lines[0] == ["RUNNER", "SINCE", "SEEN", "QUEUES", "THREADS", "TASKS", "DOING"]
    assert lines[1] == [RUNNER, "now", "now", "*", "5", "2", "shop.add"]


def test_runners_that_went_silent(
    app: Flask, answer: Answer, alive: Alive, rows: Collection[Document]
) -> None:
    """A runner that was not heard of for ``stuck_after`` is not shown as alive."""
    alive("shop.add")
    rows.database["henri_jobs_runners"].update_one({}, {"$inc": {"heartbeat_at": -301_000}})

    assert answer("runners") == []


def test_install_and_uninstall(run: Run, answer: Answer, rows: Collection[Document]) -> None:
    """``install`` makes what is missing and may be repeated; ``uninstall`` leaves nothing."""
    made = answer("install")["made"]

    assert set(made) >= {"fhj_claim", "fhj_recent", "henri_jobs_unique"}
    assert answer("install") == {"made": []}
    assert set(made) >= set(rows.index_information()) - {"_id_"}
    assert "henri_jobs" in answer("uninstall", "--yes")["dropped"]
    assert rows.database.list_collection_names() == []
    assert run("uninstall", "--yes").stdout == "Dropped nothing: there was none.\n"


def test_check_of_a_sound_queue(run: Run, answer: Answer) -> None:
    """``check`` ends with 0 where it finds nothing."""
    run("install")

    assert run("check").stdout == "Nothing found.\n"
    assert answer("check") == []


def test_check_finds_missing_indexes(run: Run, rows: Collection[Document]) -> None:
    """Q13: ``check`` names an index that is not there, or is another one."""
    run("install")
    rows.drop_index("fhj_claim")
    rows.drop_index("fhj_recent")
    rows.create_index("updated_at", name="fhj_recent")

    found = run("check", code=1)

    assert "indexes: henri_jobs has no index fhj_claim" in found.stdout
    assert "indexes: The index fhj_recent of henri_jobs is not" in found.stdout
    assert found.stderr == "Error: 2 to be mended.\n"


def test_check_finds_what_is_wrong_with_settings_and_tasks(run_process: RunProcess) -> None:
    """``check`` finds queues that nobody takes, and schedules of tasks that nobody knows."""
    run_process("install")

    found = run_process(
        "check",
        code=1,
        FLASK_HENRI_JOBS_QUEUES='["high"]',
        FLASK_HENRI_JOBS_SCHEDULES='{"nightly": {"cron": "@daily"}}',
    )

    first, *others = found.stdout.splitlines()
    assert first.startswith("schedules: The schedule 'nightly': No task is named 'nightly'.")
    assert len(others) == 4
    assert all("goes to the queue 'default', which is not in" in line for line in others)


def test_commands_of_a_second_queue(
    run: Run, mongo_uri: str, database_name: str, rows: Collection[Document]
) -> None:
    """A second queue in an app has the same commands under the name of its collection."""
    app = shop.create_app(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name)
    second = HenriJobs(app, collection="other_jobs")

    added = app.test_cli_runner().invoke(args=["other-jobs", "enqueue", "some.task"])

    assert added.exit_code == 0
    assert rows.database["other_jobs"].count_documents({}) == 1
    assert rows.count_documents({}) == 0
    second.state_of(app).close()


@pytest.mark.parametrize("command", ["list", "status", "perform"])
def test_commands_import_the_tasks(
    mongo_uri: str, database_name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module in ``HENRI_JOBS_IMPORTS`` that is not there ends any command with its name."""
    app = shop.create_app(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_IMPORTS="shop.nowhere")
    args = ["jobs", command, *(["shop.add"] if command == "perform" else [])]

    ended = app.test_cli_runner().invoke(args=args)

    assert ended.exit_code == 1
    assert ended.stderr.startswith("Error: HENRI_JOBS_IMPORTS names 'shop.nowhere'")


def test_limits(app: Flask, run: Run, answer: Answer) -> None:
    """L3: limits tells what is declared, and who holds a permit for which job."""
    with app.app_context():
        permits = shop.jobs.state.store.permits
        permits.take([("elsewhere:7", 0, "a job")], runner="host:1:r", token="a token")

    (elsewhere,) = [one for one in answer("limits") if one["group"] == "elsewhere"]

    assert (elsewhere["limit"], elsewhere["tasks"]) == (None, [])
    (held,) = elsewhere["held"]
    assert (held["key"], held["slot"], held["job_id"]) == ("elsewhere:7", 0, "a job")
    assert "host:1:r" in run("limits").output
