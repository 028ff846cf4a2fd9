"""``flask jobs schedules``: what it shows, and what it does."""

from __future__ import annotations

import re
import typing as t
from datetime import UTC, datetime

import pytest

import shop
from flask_henri_jobs.clock import Clock, Reading

if t.TYPE_CHECKING:
    from flask import Flask
    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document

    from .conftest import Answer, Run

SPRING = datetime(2027, 3, 27, 12, tzinfo=UTC)
AUTUMN = datetime(2027, 10, 30, 12, tzinfo=UTC)

SCHEDULES = {
    "paris": {"task": "shop.discard", "cron": "30 2 * * *", "timezone": "Europe/Paris"},
    "hourly": {
        "task": "shop.add",
        "cron": "30 * * * *",
        "timezone": "Europe/Paris",
        "args": {"a": 1},
    },
}


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> t.Iterator[Flask]:
    app = shop.create_app(
        HENRI_JOBS_URI=mongo_uri,
        HENRI_JOBS_DATABASE=database_name,
        HENRI_JOBS_SCHEDULES=SCHEDULES,
        HENRI_JOBS_POLL_INTERVAL="50ms",
    )
    yield app
    shop.jobs.state_of(app).close()


@pytest.fixture
def it_is(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[datetime], None]:
    """Have the database server's clock stand at a moment."""

    def stand(moment: datetime) -> None:
        at = round(moment.timestamp() * 1000)
        monkeypatch.setattr(Clock, "renew", lambda _: Reading(server=at, at=0.0))
        monkeypatch.setattr(Clock, "now", lambda _: at)

    return stand


def test_table(run: Run) -> None:
    """X8: a schedule a line, those too that no runner has come to."""
    lines = run("schedules").stdout.splitlines()
    assert lines[0].split() == ["NAME", "TASK", "WHEN", "NEXT", "LAST", "ORIGIN", "NOTE"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["hourly", "shop.add"],
        ["paris", "shop.discard"],
    ]
    assert "30 2 * * * Europe/Paris" in lines[2]
    assert run("schedules", "list").stdout.splitlines()[0] == lines[0]


def test_next_moments_in_spring(run: Run, it_is: t.Callable[[datetime], None]) -> None:
    """S5: the moments are shown on the zone's clock, and a skipped hour is marked."""
    it_is(SPRING)
    assert run("schedules", "--next", "2").stdout.splitlines() == [
        "hourly: 30 * * * * Europe/Paris",
        "  Sat 2027-03-27 13:30:00 CET",
        "  Sat 2027-03-27 14:30:00 CET",
        "paris: 30 2 * * * Europe/Paris",
        "  Sun 2027-03-28 03:00:00 CEST  skipped hour",
        "  Mon 2027-03-29 02:30:00 CEST",
    ]


def test_next_moments_in_autumn(run: Run, it_is: t.Callable[[datetime], None]) -> None:
    """S5: a repeated hour is marked both times it is due, and for a fixed time once."""
    it_is(AUTUMN)
    marked = [
        line for line in run("schedules", "--next", "20").stdout.splitlines() if "hour" in line
    ]
    assert marked == [
        "hourly: 30 * * * * Europe/Paris",
        "  Sun 2027-10-31 02:30:00 CEST  repeated hour",
        "  Sun 2027-10-31 02:30:00 CET  repeated hour",
        "  Sun 2027-10-31 02:30:00 CEST  repeated hour",
    ]


def test_json(answer: Answer, it_is: t.Callable[[datetime], None]) -> None:
    """X8: for programs, the attributes by their names, and the moments with their offsets."""
    it_is(SPRING)
    hourly, paris = answer("schedules", "--next", "2")
    assert paris["next"] == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert (paris["name"], paris["task"], paris["origin"]) == ("paris", "shop.discard", "shop")
    assert (hourly["args"], hourly["paused"]) == ({"a": 1}, False)
    assert [len(entry["next"]) for entry in answer("schedules")] == [1, 1]


def test_life_of_a_schedule(run: Run, answer: Answer, rows: Collection[Document]) -> None:
    """X8: added, held, let go on, run and removed, by a command each."""
    definition = ["--every", "6h", "--task", "shop.add", "--args", '{"a": 7}', "--overlap", "skip"]
    added = answer("schedules", "add", "own", *definition)
    assert (added["spec"], added["args"], added["origin"]) == (
        "every:21600000",
        {"a": 7},
        "runtime",
    )
    assert answer("schedules", "pause", "own")["paused"]
    assert "paused" in run("schedules").stdout
    assert not answer("schedules", "resume", "own")["paused"]
    job = answer("schedules", "run-now", "own")
    assert (job["name"], job["args"], job["state"]) == ("shop.add", {"a": 7}, "pending")
    assert rows.count_documents({"_id": job["id"]}) == 1
    assert run("schedules", "remove", "own").stdout == "Removed own.\n"
    assert "own" not in run("schedules").stdout


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["pause", "nobody"], 1, "There is no schedule 'nobody'."),
        (["remove", "paris"], 1, "is declared by the app 'shop'"),
        (["add", "x", "--cron", "9-9 * * * *"], 1, "The schedule 'x'"),
        (["add", "x", "--every", "1m"], 1, "No task is named 'x'"),
        (["add", "x", "--every", "soon"], 2, "'soon' is no duration"),
        (["add", "x", "--every", "1m", "--args", "[1]"], 1, "args is [1]"),
        (["--next", "0"], 2, "--next"),
        (["--next", "2", "pause", "paris"], 2, "after the command"),
    ],
)
def test_refusals(run: Run, args: list[str], code: int, says: str) -> None:
    """X8: what cannot be done says so in a line, and the exit code tells why."""
    assert says in run("schedules", *args, code=code).output


def test_check(mongo_uri: str, database_name: str) -> None:
    """S4: the check names schedules that cannot be fired, and steps that do not come out even."""
    app = shop.create_app(
        HENRI_JOBS_URI=mongo_uri,
        HENRI_JOBS_DATABASE=database_name,
        HENRI_JOBS_SCHEDULES={
            "a": {"task": "shop.gone", "every": "1h"},
            "b": {"task": "shop.add", "every": "1h"},
            "c": {"task": "shop.discard", "cron": "*/45 * * * *"},
        },
    )
    result = app.test_cli_runner().invoke(args=["jobs", "check"])
    shop.jobs.state_of(app).close()
    found = re.findall(r"^schedules: (.*)$", result.output, re.MULTILINE)
    assert [text.split(":")[0] for text in found] == [f"The schedule {name!r}" for name in "abc"]
    assert "No task is named 'shop.gone'" in found[0]
    assert "does not take these arguments" in found[1]
    assert "it stands for 0, 45" in found[2]
    assert result.exit_code == 1
