"""Which schedules there are, while old and new processes, and other apps, declare them (S3)."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.schedule_entry import new_entry

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from flask_henri_jobs.job import Document

    from .conftest import Process, Start, World

Slots: t.TypeAlias = "Callable[..., list[float]]"

START = 1_800_000_000_000
A, B = {"a": {"task": "tick", "every": "1m"}}, {"b": {"task": "tick", "every": "1m"}}


def names(entries: Collection[Document]) -> list[str]:
    return [entry["_id"] for entry in entries.find().sort("_id")]


def live(world: World, seconds: int, *processes: Process) -> None:
    """Let processes live for so long, with a round every ten seconds."""
    for _ in range(seconds // 10):
        world.advance(10)
        for process in processes:
            process.round()


def henri_entry(name: str, **fields: t.Any) -> Document:
    return {
        "_id": name,
        "job": "henri/task",
        "spec": "every:60000",
        "next_run_at": START + 60_000,
        "last_run_at": None,
        "token": None,
        "created_at": START,
        "updated_at": START,
        **fields,
    }


def test_a_rolling_deploy(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S3: old and new processes keep what each declares, and the old's goes when they are gone."""
    old = start(A)
    live(world, 600, old)
    new = start(B)
    live(world, 600, old, new)
    assert names(entries) == ["a", "b"]
    assert slots("a") == [60.0 * minute for minute in range(1, 21)]
    assert slots("b") == [60.0 * minute for minute in range(11, 21)]

    live(world, 150, new)
    assert names(entries) == ["a", "b"]
    live(world, 60, new)
    assert names(entries) == ["b"]
    assert slots("a") == [60.0 * minute for minute in range(1, 21)]


def test_downtime_of_all(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S3: after a downtime the process that is back first leaves the others time to come back."""
    for process in (start(A), start(B)):
        live(world, 10, process)
    world.advance(3600)
    first = start(B)
    live(world, 120, first)
    assert names(entries) == ["a", "b"]
    second = start(A)
    live(world, 600, first, second)
    assert names(entries) == ["a", "b"]
    # The slot that was missed is not lost with its entry.
    assert slots("a")[0] == 60


def test_a_changed_clock(start: Start, world: World, entries: Collection[Document]) -> None:
    """S3: a server clock that jumps ahead has nobody forgotten who is alive."""
    old, new = start(A), start(B)
    live(world, 600, old, new)
    world.server += 3_600_000
    for process in (new, old):
        process.store.clock.renew()
        process.round()
    live(world, 600, old, new)
    assert names(entries) == ["a", "b"]


def test_whose_is_left_alone(start: Start, world: World, entries: Collection[Document]) -> None:
    """S3: a henri app's, another app's and what was added at run time is not ours to forget."""
    other = start({"theirs": {"task": "tick", "every": "1h"}}, app="other")
    other.round()
    entries.insert_one(henri_entry("henri"))
    other.schedules.add("added", task="tick", every="1h")
    ours = start(A)
    live(world, 3600, ours)
    assert names(entries) == ["a", "added", "henri", "theirs"]


def test_whose_is_fired(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S3: only what this process declares, and what was added at run time, is fired by it."""
    other = start({"theirs": {"task": "tick", "every": "1m"}}, app="other")
    other.round()
    entries.insert_one(henri_entry("henri"))
    ours = start(A)
    ours.schedules.add("added", task="tick", every="1m")
    live(world, 180, ours)
    assert {name: len(slots(name)) > 0 for name in ("a", "added", "henri", "theirs")} == {
        "a": True,
        "added": True,
        "henri": False,
        "theirs": False,
    }


def test_one_name_in_two_apps(
    start: Start, world: World, slots: Slots, caplog: pytest.LogCaptureFixture
) -> None:
    """S3: the first app's stands; the second says once that its own is not fired."""
    first, second = start(A, app="first"), start({"a": {"task": "tock", "every": "2m"}}, app="2nd")
    first.round()
    live(world, 240, second, first)
    assert slots("a") == [60, 120, 180, 240]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert "'a' is not fired as declared here: its entry is of 'first'" in told[0]


def test_a_changed_spec(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S3: a process with another spec moves the schedule, without running what was due."""
    start({"tick": {"every": "1m"}}).round()
    world.advance(90)
    new = start({"tick": {"every": "1h"}})
    new.round()
    assert slots() == []
    [entry] = entries.find()
    assert (entry["spec"], entry["next_run_at"]) == ("every:3600000", START + 3_600_000)
    world.advance(3510)
    new.round()
    assert slots() == [3600]


@pytest.mark.parametrize(("before", "after"), [(None, "Asia/Tokyo"), ("Asia/Tokyo", None)])
def test_a_changed_zone(
    start: Start, entries: Collection[Document], before: str | None, after: str | None
) -> None:
    """S3: a changed zone is a changed schedule; UTC is stored as no zone at all."""
    hours = {None: 9, "Asia/Tokyo": 24 - 9 + 9}
    for zone in (before, after):
        declared = {"tick": {"cron": "0 9 * * *"} | ({"timezone": zone} if zone else {})}
        start(declared).round()
        [entry] = entries.find()
        assert entry.get("timezone") == zone
        assert ("timezone" in entry) == (zone is not None)
        # 08:00 UTC is 17:00 in Tokyo, where it is 09:00 next at midnight UTC.
        assert entry["next_run_at"] == START + (hours[zone] - 8) * 3_600_000


def test_two_specs_side_by_side(start: Start, world: World, slots: Slots) -> None:
    """S3: the process that started last decides; the other's stands again when that is gone."""
    old = start({"tick": {"every": "1m"}})
    old.round()
    new = start({"tick": {"every": "4m"}})
    new.round()
    live(world, 600, old, new)
    assert slots() == [240, 480]
    live(world, 300, old)
    assert slots() == [240, 480, 840, 900]


def test_a_task_that_was_renamed_is_noted(start: Start, entries: Collection[Document]) -> None:
    """S3: the entry names the task that is enqueued now."""
    start({"x": {"task": "tick", "every": "1m"}}).round()
    start({"x": {"task": "tock", "every": "1m"}}).round()
    [entry] = entries.find()
    assert (entry["job"], entry["next_run_at"]) == ("tock", START + 60_000)


def test_a_paused_schedule_stays_paused(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S3: a deploy resumes nothing, not even where it changes the spec."""
    old = start({"tick": {"every": "1m"}})
    old.round()
    old.schedules.pause("tick")
    new = start({"tick": {"every": "2m"}})
    live(world, 600, new)
    assert slots() == []
    assert [entry["paused"] for entry in entries.find()] == [True]


def test_an_app_that_is_called_runtime(start: Start) -> None:
    """S3: an app of that name declares like any other; what it declares was not added by hand."""
    process = start(A, app="runtime")
    process.round()
    [entry] = process.schedules.list()
    assert entry.origin == "app:runtime"


def test_henri_shares_a_name(
    start: Start, world: World, slots: Slots, entries: Collection[Document]
) -> None:
    """S3: a schedule that a henri app declares too is moved on by either, and stays henri's."""
    process = start({"tick": {"every": "1m"}})
    entries.insert_one(henri_entry("tick", job="tick", spec="every:120000"))
    process.round()
    [entry] = entries.find()
    assert (entry["spec"], entry["next_run_at"]) == ("every:60000", START + 60_000)
    assert "origin" not in entry
    # henri's compare-and-set, as the seed writes it.
    world.advance(60)
    moved = entries.find_one_and_update(
        {"_id": "tick", "next_run_at": START + 60_000},
        {"$set": {"last_run_at": START + 60_000, "next_run_at": float(START + 120_000)}},
    )
    assert moved is not None
    process.round()
    assert slots() == []
    world.advance(60)
    process.round()
    assert slots() == [120]


def test_the_first_to_add_wins(start: Start, world: World) -> None:
    """S1: of two that record a schedule, the first does, and the second is told what stands."""
    process = start(A)
    schedule = process.settings.schedules["a"]
    first = process.store.schedules.add(new_entry(schedule, "first", START))
    second = process.store.schedules.add(new_entry(schedule, "second", START + 5))
    assert first["origin"] == second["origin"] == "first"
