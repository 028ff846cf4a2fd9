"""What a schedule is, and when it is due."""

from __future__ import annotations

import sys
import typing as t
import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.schedule import Schedule, due_of, is_missed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = 1_735_732_800_000  # 2025-01-01 12:00 UTC, a Wednesday
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def ms(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


def test_cron_schedule() -> None:
    """A cron schedule has the stored text of the design, and its task is named as it is."""
    schedule = Schedule.read("report", cron=" 0  9 * * mon-fri")
    assert (schedule.spec, schedule.timezone) == ("cron:0 9 * * mon-fri", None)
    assert (schedule.name, schedule.task) == ("report", "report")
    assert (schedule.overlap, schedule.misfire) == ("allow", "one")
    assert (schedule.args, schedule.queue, schedule.priority) == ({}, None, None)


@pytest.mark.parametrize(
    ("every", "spec"),
    [
        ("5m", "every:300000"),
        (1, "every:1000"),
        (2.5, "every:2500"),
        (timedelta(hours=1), "every:3600000"),
    ],
)
def test_every_schedule(every: t.Any, spec: str) -> None:
    """An interval is stored in milliseconds."""
    assert Schedule.read("report", every=every).spec == spec


def test_options_are_kept() -> None:
    """What each job of a schedule is enqueued with is kept."""
    schedule = Schedule.read(
        "nightly",
        task="report",
        cron="@daily",
        args={"kind": "full"},
        queue="low",
        priority=-5,
        overlap="skip",
        misfire="skip",
    )
    assert (schedule.task, schedule.args, schedule.queue) == ("report", {"kind": "full"}, "low")
    assert (schedule.priority, schedule.overlap, schedule.misfire) == (-5, "skip", "skip")
    assert schedule == Schedule.from_config(
        "nightly",
        {
            "task": "report",
            "cron": "@daily",
            "args": {"kind": "full"},
            "queue": "low",
            "priority": -5,
            "overlap": "skip",
            "misfire": "skip",
        },
    )
    assert len({schedule, Schedule.read("nightly", cron="@daily")}) == 2


def test_stored_schedule() -> None:
    """A schedule is built again from what is stored of it."""
    stored = Schedule(name="nightly", task="report", spec="cron:0 9 * * *", timezone="Europe/Paris")
    declared = Schedule.read("nightly", task="report", cron="0 9 * * *", timezone="Europe/Paris")
    assert stored == declared


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cron": "*/90 * * * *"}, "the cron expression '*/90 * * * *' is refused: '*/90' in the"),
        ({"cron": "0 0 30 2 *"}, "has a day 30, so that day never comes"),
        ({"cron": 5}, "is a int, not text"),
        ({}, "neither of 'cron' and 'every' given"),
        ({"cron": "@daily", "every": "5m"}, "both of 'cron' and 'every' given"),
        ({"every": "soon"}, "every is 'soon'"),
        ({"every": "999ms"}, "every is 999ms. Give at least one second."),
        ({"every": 0}, "every is 0s"),
        ({"every": True}, "every is True"),
        ({"every": "5m", "timezone": "Europe/Paris"}, "'every' counts from the epoch"),
        ({"cron": "@daily", "timezone": "Europe/Pariss"}, "Did you mean 'Europe/Paris'?"),
        ({"cron": "@daily", "timezone": "Mars/Olympus_Mons"}, "pip install tzdata"),
        ({"cron": "@daily", "timezone": "Europe"}, "knows no such zone"),
        ({"cron": "@daily", "timezone": ""}, "timezone is ''"),
        ({"cron": "@daily", "timezone": "../../etc/passwd"}, "Give an IANA name"),
        ({"cron": "@daily", "timezone": "localtime"}, "Give an IANA name"),
        ({"cron": "@daily", "timezone": "right/UTC"}, "Give an IANA name"),
        ({"cron": "@daily", "timezone": UTC}, "Give an IANA name"),
        ({"cron": "@daily", "task": ""}, "its task is ''"),
        ({"cron": "@daily", "task": 7}, "its task is 7"),
        ({"cron": "@daily", "queue": ""}, "its queue is ''"),
        ({"cron": "@daily", "args": [1]}, "args is [1]"),
        ({"cron": "@daily", "args": {1: 2}}, "args is {1: 2}"),
        ({"cron": "@daily", "priority": 101}, "priority is 101"),
        ({"cron": "@daily", "priority": True}, "priority is True"),
        ({"cron": "@daily", "overlap": "never"}, "overlap is 'never'. Give allow or skip."),
        ({"cron": "@daily", "misfire": "all"}, "misfire is 'all'. Give one or skip."),
        ({"cron": "@daily", "time_zone": "UTC"}, "Did you mean timezone?"),
        ({"crn": "@daily"}, "Did you mean cron?"),
        ("@daily", "it is '@daily'. Give a dict"),
    ],
)
def test_refused(options: object, said: str) -> None:
    """S4: A bad declaration is refused, naming the schedule and the reason."""
    with pytest.raises(ConfigError) as refused:
        Schedule.from_config("nightly", options)
    assert str(refused.value).startswith("The schedule 'nightly': ")
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", "n" * 257, 7])
def test_bad_name(name: t.Any) -> None:
    """A name is short text that can be printed."""
    with pytest.raises(ConfigError, match="its name is"):
        Schedule.read(name, cron="@daily")


@pytest.mark.parametrize(
    "spec", ["", "cron", "every:", "every:999", "every:5m", "every:" + "9" * 5000, "at:5"]
)
def test_bad_stored_spec(spec: str) -> None:
    """What is stored and is no recurrence is refused by name."""
    with pytest.raises(ConfigError, match=r"^The schedule 'nightly': "):
        Schedule(name="nightly", task="report", spec=spec)


def test_host_without_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host has no time zones, as in a slim container, the remedy is named."""
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    for module in {"tzdata", *(name for name in sys.modules if name.startswith("tzdata."))}:
        monkeypatch.setitem(sys.modules, module, None)
    try:
        with pytest.raises(ConfigError, match="pip install tzdata"):
            Schedule.read("nightly", cron="@daily", timezone="Europe/Paris")
        assert Schedule.read("nightly", cron="@daily").next_after(NOON) == NOON + DAY // 2
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_cron_is_utc() -> None:
    """S5: Cron is UTC unless a time zone is given; and UTC given is as none given."""
    assert Schedule.read("report", cron="0 9 * * *").next_after(NOON) == ms("2025-01-02 09:00")
    paris = Schedule.read("report", cron="0 9 * * *", timezone="Europe/Paris")
    assert paris.next_after(NOON) == ms("2025-01-02 08:00")
    assert Schedule.read("report", cron="@daily", timezone="UTC").timezone is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0, 7000), (1, 7000), (6999, 7000), (7000, 14000), (-1, 0), (-7000, 0)],
)
def test_every_is_anchored(now: int, expected: int) -> None:
    """S4: An interval counts from the epoch, so that all runners agree on its slots."""
    assert Schedule.read("report", every="7s").next_after(now) == expected


def test_missed_slots() -> None:
    """S2: However many slots were missed, the next one is computed from now."""
    assert (
        Schedule.read("report", every="1m").next_after(NOON + 90 * DAY) == NOON + 90 * DAY + MINUTE
    )
    report = Schedule.read("report", cron="*/10 * * * *")
    assert report.next_after(NOON + 90 * DAY + 1) == NOON + 90 * DAY + 10 * MINUTE


@given(
    now=st.integers(0, ms("2090-01-01 00:00")),
    schedule=st.sampled_from(
        [
            Schedule.read("a", every="7s"),
            Schedule.read("b", cron="* * * * *", timezone="America/New_York"),
            Schedule.read("c", cron="30 2 * * *", timezone="Australia/Lord_Howe"),
            Schedule.read("d", cron="0 0 29 2 *"),
            Schedule.read("e", cron="17 */5 13 * fri", timezone="America/Havana"),
        ]
    ),
)
def test_next_is_later(now: int, schedule: Schedule) -> None:
    """S5: The next moment is always later than now, and nothing is due in between."""
    due = schedule.next_after(now)
    assert due > now
    assert schedule.next_after(due - 1) == due
    assert schedule.next_after((now + due) // 2) == due


def test_moments_of_a_spring() -> None:
    """S5: The list of moments says which stand for a time that the clock skipped."""
    report = Schedule.read("report", cron="30 2 * * *", timezone="America/New_York")
    assert report.moments(ms("2024-03-09 12:00"), 2) == [
        (ms("2024-03-10 07:00"), "skipped hour"),
        (ms("2024-03-11 06:30"), ""),
    ]


def test_moments_of_an_autumn() -> None:
    """S5: The list of moments says which fall into an hour that comes twice."""
    report = Schedule.read("report", cron="30 * * * *", timezone="America/New_York")
    assert report.moments(ms("2024-11-03 05:00"), 3) == [
        (ms("2024-11-03 05:30"), "repeated hour"),
        (ms("2024-11-03 06:30"), "repeated hour"),
        (ms("2024-11-03 07:30"), ""),
    ]


def test_moments_of_an_interval() -> None:
    """An interval has moments too, which no clock change touches."""
    assert Schedule.read("report", every="1h").moments(NOON, 2) == [
        (NOON + HOUR, ""),
        (NOON + 2 * HOUR, ""),
    ]
    assert Schedule.read("report", every="1h").moments(NOON, 0) == []


def test_warnings() -> None:
    """S4: A step that does not divide warns by the schedule's name, with the real times."""
    (warning,) = Schedule.read("report", cron="*/45 * * * *").warnings()
    assert warning.startswith("The schedule 'report': '*/45'")
    assert "0, 45" in warning
    assert Schedule.read("report", cron="*/15 * * * *").warnings() == []
    assert Schedule.read("report", every="7m").warnings() == []


def test_changed_schedule() -> None:
    """S3: Another expression is a changed schedule, and so is another time zone."""
    report = Schedule.read("report", cron="0 9 * * *", timezone="Europe/Paris")
    assert not report.differs_from("cron:0 9 * * *", "Europe/Paris")
    assert report.differs_from("cron:0 10 * * *", "Europe/Paris")
    assert report.differs_from("cron:0 9 * * *", None)


def test_misfire() -> None:
    """S7: A slot is missed when it is more than a minute late, and dropped if that is asked."""
    assert not is_missed(NOON, NOON + MINUTE)
    assert is_missed(NOON, NOON + MINUTE + 1)
    one = Schedule.read("report", every="1h")
    skip = Schedule.read("report", every="1h", misfire="skip")
    assert not one.drops(NOON, NOON + HOUR)
    assert skip.drops(NOON, NOON + HOUR)
    assert not skip.drops(NOON, NOON + MINUTE)


@pytest.mark.parametrize("name", ["report", "a:b", "recurring:7", "café 7"])
def test_job_knows_its_slot(name: str) -> None:
    """S8: The slot of a job is read from its unique key, whatever the schedule is called."""
    key = Schedule.read(name, every="1h").slot_key(NOON)
    assert key == f"recurring:{name}:{NOON}"
    assert due_of(key) == NOON


@pytest.mark.parametrize(
    "key", [None, "", "batch:7", "report:7", "recurring:report", "recurring:7"]
)
def test_other_keys_have_no_slot(key: str | None) -> None:
    """S8: A job that no schedule enqueued has no slot."""
    assert due_of(key) is None
