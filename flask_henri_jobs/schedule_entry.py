"""What a schedule's entry in the database is: its definition, and how far it got (S1, S3)."""

from __future__ import annotations

import functools
import json
import typing as t
from datetime import timedelta

from .clock import to_datetime
from .codec import decode, encode
from .errors import HenriJobsError
from .job import put_plain
from .schedule import Schedule

if t.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from .clock import Moment
    from .job import Document

RUNTIME = "runtime"
"""The origin of what was added at run time; no deploy takes it away (S3)."""

FORGOTTEN_AFTER = timedelta(minutes=3)
"""A schedule that no process of its origin has declared for so long is gone (S3)."""

_DEFAULTS = {"queue": None, "priority": None, "overlap": "allow", "misfire": "one"}

OPTIONS = ("timezone", "args", *_DEFAULTS)
"""Fields of our own, absent when unused. A henri runner reads none of them."""


def origin_of(app_name: str) -> str:
    """Return the origin of the schedules that an app declares: its name."""
    return app_name if app_name != RUNTIME else f"app:{app_name}"


def definition_of(schedule: Schedule, origin: str | None) -> Document:
    """Return the fields that say what a schedule is, without those that it does not use.

    What was added at run time has its whole definition in its entry. A declared schedule has only
    what tells its moments: the process that fires it knows the rest.
    """
    fields: Document = {"job": schedule.task, "spec": schedule.spec}
    if schedule.timezone is not None:
        fields["timezone"] = schedule.timezone
    if origin != RUNTIME:
        return fields
    if schedule.args:
        fields["args"] = encode(dict(schedule.args), f"args of the schedule {schedule.name}")
    for name, default in _DEFAULTS.items():
        if getattr(schedule, name) != default:
            fields[name] = getattr(schedule, name)
    return fields


def new_entry(schedule: Schedule, origin: str, now: Moment) -> Document:
    """Return the document of a schedule that has not been due yet."""
    row: Document = {
        "_id": schedule.name,
        **definition_of(schedule, origin),
        "next_run_at": schedule.next_after(now),
        "last_run_at": None,
        "token": None,
        "created_at": now,
        "updated_at": now,
        "origin": origin,
    }
    return row if origin == RUNTIME else row | {"declared_at": now}


class ScheduleEntry:
    """A schedule as it stands in the database.

    It is a snapshot. Moments are aware datetimes in UTC, by the database server's clock.

    :param row: The document, as this queue or a henri runner wrote it.
    :param declared: What this process declares under the name. It knows the arguments and options,
        which a declared schedule's document does not carry.
    """

    def __init__(self, row: Mapping[str, t.Any], declared: Schedule | None = None) -> None:
        self.row = row
        self._declared = None if row.get("origin") == RUNTIME else declared

    @property
    def name(self) -> str:
        """Its name, which no other schedule of the queue has."""
        return str(self.row["_id"])

    @property
    def task(self) -> str:
        """The name of the task that each slot enqueues."""
        return str(self.row.get("job"))

    @property
    def spec(self) -> str:
        """When it is due: ``cron:<expression>`` or ``every:<milliseconds>``."""
        return str(self.row.get("spec"))

    @property
    def timezone(self) -> str | None:
        """The zone that a cron expression is read in; None is UTC."""
        return self.row.get("timezone")

    @property
    def origin(self) -> str | None:
        """The app that declares it, ``runtime``, or None for a henri app's."""
        return self.row.get("origin")

    @property
    def paused(self) -> bool:
        """Whether it is held: no slot is enqueued until it is resumed."""
        return bool(self.row.get("paused"))

    @property
    def next_run_at(self) -> datetime | None:
        """The slot that is enqueued next; in the past where no runner has come to it yet."""
        return to_datetime(self.row.get("next_run_at"))

    @property
    def last_run_at(self) -> datetime | None:
        """The slot that was enqueued last."""
        return to_datetime(self.row.get("last_run_at"))

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The schedule.

        :raises HenriJobsError: What is stored cannot be read here: another version wrote it, say,
            or this host does not know its time zone.
        """
        if self._declared is not None and not self._declared.differs_from(self.spec, self.timezone):
            return self._declared
        return Schedule(
            name=self.name,
            task=self.task,
            spec=self.spec,
            timezone=self.timezone,
            args=self._args(),
            queue=self.row.get("queue"),
            priority=self.row.get("priority"),
            overlap=self.row.get("overlap", "allow"),
            misfire=self.row.get("misfire", "one"),
        )

    @property
    def problem(self) -> str | None:
        """Why the schedule cannot be read, or None where it can."""
        try:
            self.schedule  # noqa: B018 - reading it is the question
        except HenriJobsError as error:
            return str(error)
        return None

    def to_dict(self, next_moments: Sequence[datetime] = ()) -> dict[str, t.Any]:
        """Return the entry as JSON has it, with the moments that come under ``next``."""
        shown: dict[str, t.Any] = {}
        for name in _SHOWN:
            put_plain(shown, name, getattr(self, name))
        schedule = None if self.problem else self.schedule
        # As stored: a tagged value is JSON already, and its Python form is not.
        shown["args"] = None if schedule is None else json.loads(encode(dict(schedule.args)))
        for name in ("queue", "priority", "overlap", "misfire"):
            shown[name] = None if schedule is None else getattr(schedule, name)
        shown["next"] = [moment.isoformat() for moment in next_moments]
        return shown

    def _args(self) -> Mapping[str, t.Any]:
        stored = decode(self.row.get("args"), f"args of the schedule {self.name}")
        return {} if stored is None else t.cast("Mapping[str, t.Any]", stored)

    def __repr__(self) -> str:
        return f"<ScheduleEntry {self.name} {self.spec}>"


_SHOWN = (
    "name",
    "task",
    "spec",
    "timezone",
    "origin",
    "paused",
    "next_run_at",
    "last_run_at",
    "problem",
)
