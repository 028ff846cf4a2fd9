"""``jobs.schedules``: adding, holding, running and removing at run time."""

from __future__ import annotations

import typing as t
from datetime import UTC, datetime, timedelta

import pytest

from flask_henri_jobs import signals
from flask_henri_jobs.errors import (
    ConfigError,
    InvalidArguments,
    InvalidFilter,
    ScheduleTaken,
    UnknownSchedule,
    UnknownTask,
)

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from flask_henri_jobs import Job
    from flask_henri_jobs.job import Document
    from flask_henri_jobs.scheduling import Schedules

    from .conftest import Process, Start, World

Slots: t.TypeAlias = "Callable[..., list[float]]"

START = 1_800_000_000_000


@pytest.fixture
def process(start: Start) -> t.Iterator[Process]:
    process = start({"tick": {"every": "1m"}})
    with process.app.app_context():
        yield process


@pytest.fixture
def schedules(process: Process) -> Schedules:
    return process.schedules


def test_add(
    process: Process, schedules: Schedules, world: World, rows: Collection[Document], slots: Slots
) -> None:
    """S1: what was added is fired with all of its definition, by a process that declares none."""
    entry = schedules.add(
        "nightly",
        task="tock",
        cron="30 10 * * *",
        timezone="Europe/Paris",
        args={"day": datetime(2027, 1, 1, tzinfo=UTC)},
        queue="low",
        priority=7,
    )
    assert (entry.origin, entry.paused, entry.timezone) == ("runtime", False, "Europe/Paris")
    assert entry.next_run_at == datetime(2027, 1, 15, 9, 30, tzinfo=UTC)
    world.advance(90 * 60)
    process.round()
    assert slots("nightly") == [90 * 60]
    row = t.cast("Document", rows.find_one({"unique_key": {"$regex": "nightly"}}))
    assert (row["name"], row["queue"], row["priority"]) == ("tock", "low", 7)
    assert "2027-01-01" in row["args"]


def test_add_survives_a_deploy(start: Start, world: World, schedules: Schedules) -> None:
    """S3: what was added at run time is fired after a deploy that knows nothing of it."""
    schedules.add("added", task="tick", every="1h")
    new = start()
    for _ in range(60):
        world.advance(60)
        new.round()
    entry = schedules.get("added")
    assert entry is not None
    assert entry.last_run_at == datetime(2027, 1, 15, 9, tzinfo=UTC)


def test_a_process_that_does_not_know_the_task(
    start: Start, world: World, schedules: Schedules, slots: Slots
) -> None:
    """S3: it leaves the schedule to those that do, and does not ask for it again and again."""
    other = start(app="other", extra={})
    other.schedules.add("added", task="extra", every="1m")
    ours = start()
    ours.round()
    world.advance(120)
    assert ours.round() == 2.0
    assert slots("added") == []
    other.round()
    assert len(slots("added")) == 1


def test_add_again(schedules: Schedules, entries: Collection[Document], world: World) -> None:
    """S3: adding again replaces the definition, and moves the schedule only if its moments do."""
    schedules.add("added", task="tick", every="1h", args={"day": 1}, overlap="skip")
    schedules.pause("added")
    world.advance(600)
    schedules.add("added", task="tock", every="1h", misfire="skip")
    [entry] = entries.find({"_id": "added"})
    assert entry["next_run_at"] == START + 3_600_000
    assert (entry["job"], entry["misfire"], entry["paused"]) == ("tock", "skip", True)
    assert not {"args", "overlap"} & entry.keys()
    schedules.add("added", task="tock", every="5m")
    [entry] = entries.find({"_id": "added"})
    assert entry["next_run_at"] == START + 900_000


@pytest.mark.parametrize(
    ("definition", "error", "message"),
    [
        ({"every": "0.5s"}, ConfigError, "The schedule 'x': every is"),
        ({"cron": "9-9 * * * *"}, ConfigError, "The schedule 'x':"),
        ({}, ConfigError, "neither of 'cron' and 'every'"),
        ({"every": "1m", "task": "tack"}, UnknownTask, "No task is named 'tack'"),
        ({"every": "1m", "args": {"dya": 1}}, InvalidArguments, "does not take"),
        ({"every": "1m", "args": {"day": object()}}, InvalidArguments, "args.day"),
    ],
)
def test_bad_definitions(
    schedules: Schedules,
    entries: Collection[Document],
    definition: dict[str, t.Any],
    error: type[Exception],
    message: str,
) -> None:
    """S4: a bad definition is refused where it is given, and nothing is stored."""
    with pytest.raises(error, match=message):
        schedules.add("x", **{"task": "tick", **definition})
    assert entries.count_documents({}) == 0


def test_names_that_are_taken(start: Start, schedules: Schedules) -> None:
    """S3: what an app declares is neither redefined nor removed at run time."""
    other = start({"theirs": {"task": "tick", "every": "1m"}}, app="other")
    other.round()
    for name in ("tick", "theirs"):
        with pytest.raises(ScheduleTaken, match=r"is declared by the app '(shop|other)'"):
            schedules.add(name, task="tick", every="1h")
        with pytest.raises(ScheduleTaken):
            schedules.remove(name)


def test_remove(start: Start, schedules: Schedules, world: World) -> None:
    """S3: what was added goes at once; what an app declared, when none has for three minutes."""
    schedules.add("added", task="tick", every="1h")
    assert schedules.remove("added").name == "added"
    assert schedules.get("added") is None
    start({"theirs": {"task": "tick", "every": "1m"}}, app="renamed").round()
    world.advance(181)
    schedules.remove("theirs")
    assert schedules.get("theirs") is None


@pytest.mark.parametrize("what", ["pause", "resume", "run_now", "remove"])
def test_unknown_names(schedules: Schedules, what: str) -> None:
    """Q9: an unknown name is an error of its own, and what is no name is refused."""
    with pytest.raises(UnknownSchedule, match="no schedule 'nobody'"):
        getattr(schedules, what)("nobody")
    with pytest.raises(InvalidFilter):
        getattr(schedules, what)({"$ne": ""})


def test_pause_and_resume(
    process: Process, schedules: Schedules, world: World, slots: Slots
) -> None:
    """S2: a paused schedule fires nothing, and goes on from its next moment when resumed."""
    assert schedules.pause("tick").paused
    for _ in range(10):
        world.advance(30)
        process.round()
    assert slots() == []
    world.advance(10)
    entry = schedules.resume("tick")
    assert (entry.paused, entry.next_run_at) == (False, datetime(2027, 1, 15, 8, 6, tzinfo=UTC))
    process.round()
    assert slots() == []
    world.advance(60)
    process.round()
    assert slots() == [360]


def test_resume_what_was_not_paused(
    process: Process, schedules: Schedules, world: World, slots: Slots
) -> None:
    """S2: resuming a schedule that was not paused loses none of its slots."""
    process.round()
    world.advance(90)
    schedules.resume("tick")
    process.round()
    assert slots() == [60]


def test_run_now(process: Process, schedules: Schedules, world: World, slots: Slots) -> None:
    """S1: a run by hand is a job of its own, and the slots come as they would have."""
    process.round()
    world.advance(30)
    heard: list[str] = []

    def hear(app: object, job: Job) -> None:
        heard.append(job.id)

    with signals.job_enqueued.connected_to(hear):
        job = schedules.run_now("tick")
    assert heard == [job.id]
    assert (job.name, job.unique_key) == ("tick", f"recurring:tick:{START + 30_000}")
    world.advance(30)
    process.round()
    assert slots() == [30, 60]


def test_run_now_in_a_tenant(
    process: Process, schedules: Schedules, rows: Collection[Document]
) -> None:
    """T1: a recurring job has no tenant, whoever runs it by hand."""
    process.round()
    with process.jobs.tenant("acme"):
        job = schedules.run_now("tick")
        assert job.tenant is None
    row = rows.find_one({"_id": job.id})
    assert row is not None
    assert "tenant" not in row


def test_list(start: Start, schedules: Schedules, world: World) -> None:
    """S3: the list has what is stored, and what is declared here though no runner came to it."""
    start({"theirs": {"task": "tick", "every": "1m"}}, app="other").round()
    schedules.add("added", task="tick", cron="@daily")
    found = {entry.name: entry for entry in schedules.list()}
    assert list(found) == ["added", "theirs", "tick"]
    assert [entry.origin for entry in found.values()] == ["runtime", "other", "shop"]
    assert found["tick"].next_run_at == datetime(2027, 1, 15, 8, 1, tzinfo=UTC)
    assert found["added"].schedule.moments(START, 1) == [(START + 16 * 3_600_000, "")]
    shown = found["tick"].to_dict([found["tick"].next_run_at + timedelta(minutes=1)])
    assert shown == {
        "name": "tick",
        "task": "tick",
        "spec": "every:60000",
        "timezone": None,
        "origin": "shop",
        "paused": False,
        "next_run_at": "2027-01-15T08:01:00+00:00",
        "last_run_at": None,
        "problem": None,
        "args": {},
        "queue": None,
        "priority": None,
        "overlap": "allow",
        "misfire": "one",
        "next": ["2027-01-15T08:02:00+00:00"],
    }


def test_list_what_cannot_be_read(schedules: Schedules, entries: Collection[Document]) -> None:
    """S6: an entry that cannot be read is listed with the reason."""
    entries.insert_one({"_id": "x", "job": "tick", "spec": "cron:61 * * * *", "next_run_at": 5})
    [entry] = [entry for entry in schedules.list() if entry.name == "x"]
    assert entry.problem is not None
    assert "The schedule 'x'" in entry.problem
    assert entry.to_dict()["problem"] == entry.problem
