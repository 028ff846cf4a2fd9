"""Firing: one job a slot, whatever happens to those who enqueue it."""

from __future__ import annotations

import threading
import typing as t
from dataclasses import replace

import pytest
from flask import current_app

from flask_henri_jobs import signals
from flask_henri_jobs.enqueueing import row_of
from flask_henri_jobs.job import DONE, PENDING, RUNNING
from flask_henri_jobs.options import Overrides
from flask_henri_jobs.store.inbox import Inbox
from flask_henri_jobs.store.schedules import Schedules

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document, Job
    from flask_henri_jobs.schedule import Schedule
    from flask_henri_jobs.worker.scheduling import Scheduling
    from plans import Recorder

    from .conftest import Process, Start, World

Slots: t.TypeAlias = "Callable[..., list[float]]"

MINUTELY = {"tick": {"every": "1m"}}
START = 1_800_000_000_000


class Killed(BaseException):
    """Ends a round where ``kill -9`` would have ended its process."""


class DiesBeforeEnqueue(Inbox):
    def add(self, *_args: t.Any, **_options: t.Any) -> t.NoReturn:
        raise Killed


class DiesAfterEnqueue(Inbox):
    def add(self, *args: t.Any, **options: t.Any) -> t.NoReturn:
        super().add(*args, **options)
        raise Killed


class DiesBeforeAdvance(Schedules):
    def advance(self, *_args: t.Any, **_options: t.Any) -> t.NoReturn:
        raise Killed


class DiesAfterAdvance(Schedules):
    def advance(self, *args: t.Any, **options: t.Any) -> t.NoReturn:
        super().advance(*args, **options)
        raise Killed


def mortal(process: Process, part: str, dying: type[t.Any]) -> Scheduling:
    """Return what fires a process's schedules, with a part of its store that dies."""
    whole = getattr(process.store, part)
    fields = {name: getattr(whole, name) for name in whole.__dataclass_fields__}
    return process.scheduling_with(replace(process.store, **{part: dying(**fields)}))


def ended(rows: Collection[Document], state: str = DONE) -> None:
    """Have every job ended, as a runner would leave it."""
    rows.update_many({}, {"$set": {"state": state}})


def test_a_slot_has_one_job(start: Start, world: World, slots: Slots) -> None:
    """S1: each slot is enqueued once, and none before its moment."""
    process = start(MINUTELY)
    process.round()
    assert slots() == []
    for _ in range(5 * 60):
        world.advance(1)
        process.round()
    assert slots() == [60, 120, 180, 240, 300]


def test_the_documents_are_those_of_the_seed(
    start: Start, world: World, entries: Collection[Document], rows: Collection[Document]
) -> None:
    """S1: an entry has the seed's fields, and of ours only those that are used."""
    process = start(MINUTELY)
    process.round()
    [before] = entries.find()
    assert before == {
        "_id": "tick",
        "job": "tick",
        "spec": "every:60000",
        "next_run_at": START + 60_000,
        "last_run_at": None,
        "token": None,
        "created_at": START,
        "updated_at": START,
        "origin": "shop",
        "declared_at": START,
    }
    world.advance(61)
    process.round()
    [after] = entries.find()
    assert after["last_run_at"] == START + 60_000
    assert after["next_run_at"] == START + 120_000
    assert after["updated_at"] == START + 61_000
    assert isinstance(after["token"], str)


@pytest.mark.parametrize("runners", [2, 5])
def test_runners_race(start: Start, world: World, slots: Slots, runners: int) -> None:
    """S1: of runners that come to a slot at once, one stores its job."""
    processes = [start(MINUTELY) for _ in range(runners)]
    processes[0].round()
    heard: list[Job] = []

    def hear(app: object, schedule: Schedule, job: Job) -> None:
        heard.append(job)

    with signals.schedule_fired.connected_to(hear):
        for _ in range(10):
            world.advance(60)
            together(processes)
    assert slots() == [60.0 * minute for minute in range(1, 11)]
    assert len(heard) == 10


def together(processes: list[Process]) -> None:
    """Have processes do a round at the same time."""
    barrier = threading.Barrier(len(processes))

    def race(process: Process) -> None:
        barrier.wait(10)
        process.round()

    threads = [threading.Thread(target=race, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("part", "dying"),
    [
        ("inbox", DiesBeforeEnqueue),
        ("inbox", DiesAfterEnqueue),
        ("schedules", DiesBeforeAdvance),
        ("schedules", DiesAfterAdvance),
    ],
)
@pytest.mark.parametrize("state", [PENDING, RUNNING, DONE])
def test_a_runner_killed_at_a_step(
    start: Start,
    world: World,
    slots: Slots,
    rows: Collection[Document],
    part: str,
    dying: type[t.Any],
    state: str,
) -> None:
    """S1: a runner that is killed at any step leaves the slot one job, even one that has run."""
    process = start(MINUTELY)
    process.round()
    world.advance(60)
    with pytest.raises(Killed):
        mortal(process, part, dying).round()
    ended(rows, state)
    for _ in range(3):
        start(MINUTELY).round()
    assert slots() == [60]
    world.advance(60)
    process.round()
    assert slots() == [60, 120]


def test_clock_steps_back(start: Start, world: World, slots: Slots) -> None:
    """S1: a server clock that steps back an hour has no slot fired twice, in old or new runners."""
    old = start(MINUTELY)
    for _ in range(3):
        old.round()
        world.advance(60)
    old.round()
    assert slots() == [60, 120, 180]
    world.set_back(3600)
    old.store.clock.renew()
    new = start(MINUTELY)
    for _ in range(63):
        world.advance(60)
        for process in (old, new):
            process.store.clock.renew()
            process.round()
    assert slots() == [60, 120, 180, 240, 300, 360]


def test_downtime(start: Start, world: World, slots: Slots) -> None:
    """S2: an hour in which nobody fired a minutely schedule costs one job."""
    start(MINUTELY).round()
    world.advance(3600 + 30)
    process = start(MINUTELY)
    process.round()
    assert slots() == [60]
    world.advance(30)
    process.round()
    assert slots() == [60, 3660]


def test_downtime_skipped(start: Start, world: World, slots: Slots) -> None:
    """S7: with misfire="skip" that hour costs none, and a slot a minute late is still run."""
    schedules = {"tick": {"every": "1m", "misfire": "skip"}}
    start(schedules).round()
    world.advance(3600 + 30)
    process = start(schedules)
    process.round()
    assert slots() == []
    world.advance(90)
    process.round()
    assert slots() == [3660]


def test_overlap_skipped(
    start: Start, world: World, slots: Slots, rows: Collection[Document]
) -> None:
    """S7: with overlap="skip" nothing is enqueued while the last job waits or runs."""
    process = start({"tick": {"every": "1m", "overlap": "skip"}})
    process.round()
    for state in (PENDING, RUNNING, RUNNING):
        world.advance(60)
        process.round()
        ended(rows, state)
    world.advance(60)
    process.round()
    assert slots() == [60]
    ended(rows)
    world.advance(60)
    process.round()
    assert slots() == [60, 300]


def test_overlap_with_a_run_by_hand(
    start: Start, world: World, slots: Slots, rows: Collection[Document]
) -> None:
    """S7: a job that was run by hand counts as one that the next slot may overlap with."""
    process = start({"tick": {"every": "1m", "overlap": "skip"}})
    process.round()
    world.advance(30)
    process.store.inbox.add(next_row(process, "recurring:tick:" + str(world.server)))
    process.store.schedules.note_extra_run("tick", world.server)
    world.advance(30)
    process.round()
    assert slots() == [30]
    ended(rows)
    world.advance(60)
    process.round()
    assert slots() == [30, 120]


def next_row(process: Process, key: str) -> Document:
    task = process.jobs.tasks["tick"]
    overrides = Overrides(unique=key)
    return row_of(task, {}, overrides, process.settings, process.store.clock.now())


def test_a_dropped_slot_that_a_killed_runner_had_enqueued(
    start: Start, world: World, slots: Slots, rows: Collection[Document]
) -> None:
    """S7: it counts as the last run, so that the next slot does not overlap with it."""
    schedules = {"tick": {"every": "1m", "overlap": "skip", "misfire": "skip"}}
    process = start(schedules)
    process.round()
    world.advance(60)
    with pytest.raises(Killed):
        mortal(process, "schedules", DiesBeforeAdvance).round()
    ended(rows, RUNNING)
    world.advance(90)
    process.round()
    world.advance(30)
    process.round()
    assert slots() == [60]


def test_what_the_job_is(start: Start, world: World, rows: Collection[Document]) -> None:
    """S1: the job has the schedule's task, arguments, queue and priority, or else the task's."""
    process = start(
        {
            "own": {"task": "tick", "every": "1m", "args": {"day": 7}, "queue": "low"},
            "tock": {"every": "1m", "priority": 9},
        },
        tick={"priority": 3, "queue": "ticks"},
        tock={"queue": "tocks"},
    )
    process.round()
    world.advance(60)
    process.round()
    found = {
        row["unique_key"].split(":")[1]: [row[key] for key in ("name", "args", "queue", "priority")]
        for row in rows.find()
    }
    assert found == {"own": ["tick", '{"day":7}', "low", 3], "tock": ["tock", "{}", "tocks", 9]}


def test_declared_with_a_task(start: Start, world: World, slots: Slots) -> None:
    """S1: a task that says when it recurs does; an entry in the settings takes that one's place."""
    process = start(
        {"tock": {"every": "3m"}},
        tick={"cron": "*/2 * * * *"},
        tock={"cron": "* * * * *", "timezone": "Asia/Tokyo"},
    )
    for _ in range(7):
        process.round()
        world.advance(60)
    assert slots("tick") == [120, 240, 360]
    assert slots("tock") == [180, 360]


def test_signals(start: Start, world: World) -> None:
    """S1: a slot's job is announced as enqueued and the schedule as fired, in the app's context."""
    process = start(MINUTELY)
    process.round()
    heard: list[tuple[str, str, t.Any]] = []

    def fired(app: t.Any, schedule: Schedule, job: Job) -> None:
        heard.append((schedule.name, job.name, current_app.name))

    def enqueued(app: t.Any, job: Job) -> None:
        heard.append(("enqueued", job.name, app is process.app))

    world.advance(60)
    with (
        signals.schedule_fired.connected_to(fired),
        signals.job_enqueued.connected_to(enqueued),
    ):
        process.round()
    assert heard == [("enqueued", "tick", True), ("tick", "tick", "shop")]


def test_numbers_of_a_henri_runner(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S1: a moment that JavaScript stored as a float is the same slot, under the same key."""
    process = start(MINUTELY)
    entries.insert_one(
        {
            "_id": "tick",
            "job": "tick",
            "spec": "every:60000",
            "next_run_at": float(START + 60_000),
            "last_run_at": float(START),
            "token": "a token",
            "created_at": float(START),
            "updated_at": float(START),
        }
    )
    world.advance(60)
    process.round()
    assert slots() == [60]
    [entry] = entries.find()
    assert entry["next_run_at"] == START + 120_000
    assert "origin" not in entry


def test_a_broken_schedule_stops_nothing(
    start: Start,
    world: World,
    slots: Slots,
    entries: Collection[Document],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S6: an entry that cannot be read is told of once, and every other is fired."""
    process = start(MINUTELY)
    process.round()
    broken = {"origin": "runtime", "job": "tick", "next_run_at": START, "updated_at": START}
    entries.insert_many(
        [
            broken | {"_id": "a", "spec": "cron:61 * * * *"},
            broken | {"_id": "b", "spec": "cron:* * * * *", "timezone": "Mars/Olympus"},
            broken | {"_id": "c", "spec": "every:60000", "args": "no JSON"},
            broken | {"_id": "d", "spec": "every:60000", "args": '{"no": "such argument"}'},
            broken | {"_id": "e"},
            broken | {"_id": "f", "spec": "every:60000", "job": "unheard of"},
        ]
    )
    for _ in range(3):
        world.advance(60)
        process.round()
    assert slots() == [60, 120, 180]
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert sorted(text.split("'")[1] for text in told) == ["a", "b", "c", "d", "e"]


def test_what_raises_anything_comes_last(start: Start, world: World, slots: Slots) -> None:
    """S6: a task whose own code raises while its job is made holds up no other schedule."""

    def key(day: int = 1) -> str:
        raise ZeroDivisionError

    concurrency = {"limit": 1, "key": key}
    process = start({"a": {"every": "1m"}, **MINUTELY}, a={"concurrency": concurrency})
    process.round()
    for _ in range(3):
        world.advance(60)
        # The loop that calls the rounds waits a moment and calls the next.
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                process.round()
    assert slots() == [60, 120, 180]
    assert slots("a") == []


def test_a_task_that_was_renamed(
    start: Start, world: World, slots: Slots, rows: Collection[Document]
) -> None:
    """S1: in a rolling deploy a slot whose job is of the schedule's former task has its job."""
    old = start({"x": {"task": "tick", "every": "1m"}})
    old.round()
    new = start({"x": {"task": "tock", "every": "1m"}})
    new.round()
    world.advance(60)
    with pytest.raises(Killed):
        mortal(old, "schedules", DiesBeforeAdvance).round()
    new.round()
    assert [row["name"] for row in rows.find()] == ["tick"]
    world.advance(60)
    new.round()
    assert slots("x") == [60, 120]


def test_idle_cost(start: Start, world: World, recorder: Recorder) -> None:
    """S1: a runner with nothing due asks every two seconds, and sleeps until a slot is near."""
    process = start(MINUTELY)
    process.round()
    recorder.commands.clear()
    asked, waits = 0, []
    while world.seconds < 25:
        waits.append(process.round())
        asked += 1
        world.advance(waits[-1])
    assert set(waits) == {2.0}
    assert len(recorder.commands) == asked == 13
    world.advance(33.4)
    assert process.round() == pytest.approx(0.6)
