"""What a schedule is: a task, a recurrence, and the moments at which it is due (S2, S4, S5, S7)."""

from __future__ import annotations

import contextlib
import itertools
import re
import typing as t
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches

from .clock_changes import Mark, moments_after
from .cron import Cron
from .durations import Duration, millis, to_duration, to_text
from .errors import ConfigError

if t.TYPE_CHECKING:
    from collections.abc import Iterator

Overlap: t.TypeAlias = t.Literal["allow", "skip"]
Misfire: t.TypeAlias = t.Literal["one", "skip"]

OPTIONS = ["task", "cron", "every", "timezone", "args", "queue", "priority", "overlap", "misfire"]
SHORTEST = timedelta(seconds=1)
LONGEST_NAME = 256
"""In bytes, so that the unique key of a slot has room for it."""
HIGHEST_PRIORITY = 100
MISSED_AFTER_MS = 60_000
SLOT = "recurring:"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PERIOD = re.compile(r"[1-9]\d{3,12}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
# "localtime" is another zone on each host; "right/" counts leap seconds, which MongoDB does not.
_NOT_A_ZONE = re.compile(r"localtime|posixrules|(posix|right)/.*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A task that is due again and again.

    Moments are integers, milliseconds since the epoch. A schedule that exists is a valid one.

    :param task: The name of the task that each slot enqueues.
    :param spec: ``cron:<expression>`` or ``every:<milliseconds>``, as it is stored and as a henri
        runner reads it.
    :param timezone: The IANA name of the zone whose clock a cron expression speaks of; ``None`` is
        UTC. It is stored beside ``spec`` in a field of our own, absent when unused; both together
        tell whether a schedule was changed (:meth:`differs_from`).
    :param args: The keyword arguments of each job.
    :param queue: ``None`` leaves it to the task, as it does for ``priority``.
    :param overlap: ``skip`` enqueues nothing while the last job is waiting or running (S7).
    :param misfire: ``skip`` drops a slot that was missed rather than running it late (S7).
    :raises ConfigError: Anything of it is wrong; the message names the schedule (S4).
    """

    name: str
    task: str
    spec: str
    timezone: str | None = None
    # Some may be redacted, and whoever hears a signal may print what comes with it.
    args: Mapping[str, t.Any] = field(default_factory=dict, hash=False, repr=False)
    queue: str | None = None
    priority: int | None = None
    overlap: Overlap = "allow"
    misfire: Misfire = "one"

    @classmethod
    def read(
        cls,
        name: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        task: str | None = None,
        args: Mapping[str, t.Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        overlap: Overlap = "allow",
        misfire: Misfire = "one",
    ) -> t.Self:
        """Return the schedule that is declared with one of ``cron`` and ``every``.

        :param task: The name of the task; without it, the name of the schedule.
        :raises ConfigError: The declaration is wrong; the message names the schedule (S4).
        """
        with _naming(name):
            spec = _to_spec(cron, every)
        return cls(
            name=name,
            task=name if task is None else task,
            spec=spec,
            timezone=None if timezone == "UTC" else timezone,
            args={} if args is None else args,
            queue=queue,
            priority=priority,
            overlap=overlap,
            misfire=misfire,
        )

    @classmethod
    def from_config(cls, name: str, options: object) -> t.Self:
        """Return the schedule that an entry of the setting ``HENRI_JOBS_SCHEDULES`` declares."""
        with _naming(name):
            _check_options(options)
        return cls.read(name, **t.cast("dict[str, t.Any]", options))

    def __post_init__(self) -> None:
        with _naming(self.name):
            _check_name(self.name, "name")
            _check_name(self.task, "task")
            self._check_recurrence()
            self._check_options()

    def next_after(self, now: int) -> int:
        """Return the first moment at which the schedule is due, later than ``now`` (S2, S5)."""
        return next(self._moments_after(now))[0]

    def moments(self, now: int, count: int) -> list[tuple[int, Mark]]:
        """Return the next moments, each with what a change of the clock has to do with it.

        :return: Pairs of a moment and ``""``, ``"skipped hour"`` or ``"repeated hour"``.
        """
        return list(itertools.islice(self._moments_after(now), count))

    def warnings(self) -> list[str]:
        """Say what is allowed and yet hardly meant, with the values at which it is really due."""
        kind, text = self._recurrence
        if kind == "every":
            return []
        return [f"The schedule {self.name!r}: {said}" for said in Cron.read(text).warnings()]

    def differs_from(self, spec: object, timezone: object) -> bool:
        """Tell whether what is stored is due at other moments, and has to be moved (S3)."""
        return (self.spec, self.timezone) != (spec, timezone)

    def drops(self, due: int, now: int) -> bool:
        """Tell whether a slot is dropped rather than run at ``now`` (S7)."""
        return self.misfire == "skip" and is_missed(due, now)

    def slot_key(self, due: int) -> str:
        """Return the unique key of the one job of a slot (S1)."""
        return slot_key(self.name, due)

    @property
    def zone(self) -> tzinfo:
        """The zone whose clock its moments are read on."""
        return _zone(self.timezone)

    @property
    def _recurrence(self) -> tuple[str, str]:
        kind, _, text = self.spec.partition(":")
        return kind, text

    def _moments_after(self, now: int) -> Iterator[tuple[int, Mark]]:
        kind, text = self._recurrence
        if kind == "every":
            period = int(text)
            return ((at, "") for at in itertools.count(now - now % period + period, period))
        found = moments_after(Cron.read(text), self.zone, _to_datetime(now))
        return ((millis(moment.at - _EPOCH), moment.mark) for moment in found)

    def _check_recurrence(self) -> None:
        match self._recurrence:
            case "cron", text:
                Cron.read(text)
                _zone(self.timezone)
            case "every", text if _PERIOD.fullmatch(text):
                if self.timezone is not None:
                    raise ConfigError(
                        "'every' counts from the epoch and has no time zone.",
                        hint="Leave out 'timezone', or give 'cron'.",
                    )
            case _:
                raise ConfigError(
                    f"its spec is {self.spec!r:.80}.",
                    hint="Give 'cron:<expression>' or 'every:<milliseconds>', at least 1000.",
                )

    def _check_options(self) -> None:
        if not isinstance(self.args, Mapping) or not all(isinstance(key, str) for key in self.args):
            raise ConfigError(
                f"args is {self.args!r:.80}.", hint="Give keyword arguments: {'user_id': 7}."
            )
        if self.queue is not None:
            _check_name(self.queue, "queue")
        if self.priority is not None and (
            type(self.priority) is not int or abs(self.priority) > HIGHEST_PRIORITY
        ):
            raise ConfigError(
                f"priority is {self.priority!r:.80}.",
                hint=f"Give a whole number from -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}.",
            )
        _check_choice(self.overlap, "overlap", t.get_args(Overlap))
        _check_choice(self.misfire, "misfire", t.get_args(Misfire))


def is_missed(due: int, now: int) -> bool:
    """Tell whether a slot is more than a minute late (S7)."""
    return now - due > MISSED_AFTER_MS


def slot_key(name: str, due: int) -> str:
    """Return the unique key of the one job of a schedule's slot (S1)."""
    return f"{SLOT}{name}:{due}"


def schedule_of(unique_key: str | None) -> str | None:
    """Return the schedule that enqueued the job with this key; ``None`` where none did."""
    if due_of(unique_key) is None:
        return None
    return t.cast("str", unique_key).removeprefix(SLOT).rpartition(":")[0]


def due_of(unique_key: str | None) -> int | None:
    """Return the slot of the job with this key; ``None`` where no schedule enqueued it (S8)."""
    match (unique_key or "").rpartition(":"):
        case key, ":", due if key.startswith(SLOT) and due.isdecimal():
            return int(due)
    return None


@contextlib.contextmanager
def _naming(schedule: object) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            f"The schedule {schedule!r:.80}: {error.message}", hint=error.hint
        ) from None


def _to_spec(cron: str | None, every: Duration | None) -> str:
    if (cron is None) == (every is None):
        raise ConfigError(
            f"{'neither' if cron is None else 'both'} of 'cron' and 'every' given.",
            hint="Give one: cron='0 9 * * mon-fri', or every='5m'.",
        )
    if cron is not None:
        return f"cron:{Cron.read(cron).text}"
    period = to_duration(every, "every")
    if period < SHORTEST:
        raise ConfigError(f"every is {to_text(period)}.", hint="Give at least one second.")
    return f"every:{millis(period)}"


def _check_options(options: object) -> None:
    if not isinstance(options, dict):
        raise ConfigError(
            f"it is {options!r:.80}.", hint="Give a dict, such as {'cron': '@daily'}."
        )
    for option in options:
        if option not in OPTIONS:
            likely = get_close_matches(str(option), OPTIONS, n=1) or OPTIONS
            raise ConfigError(
                f"{option!r:.80} is no option of a schedule.",
                hint=f"Did you mean {' or '.join(likely)}?",
            )


def _check_name(value: object, where: str) -> None:
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 0 < len(value.encode()) <= LONGEST_NAME
    ):
        raise ConfigError(
            f"its {where} is {value!r:.80}.",
            hint=f"Give text of 1 to {LONGEST_NAME} bytes that can be printed.",
        )


def _check_choice(value: object, where: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{where} is {value!r:.80}.", hint=f"Give {' or '.join(allowed)}.")


def _zone(name: object) -> tzinfo:
    if name is None:
        return UTC
    if not isinstance(name, str) or not _ZONE.fullmatch(name) or _NOT_A_ZONE.fullmatch(name):
        raise ConfigError(
            f"timezone is {name!r:.80}.", hint="Give an IANA name, such as 'Europe/Paris'."
        )
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        likely = get_close_matches(name, zoneinfo.available_timezones(), n=1)
        advice = f"Did you mean {likely[0]!r}? If not" if likely else "If it is a zone"
        raise ConfigError(
            f"timezone is {name!r:.80}, and this host knows no such zone.",
            hint=f"{advice}, the host lacks its data: pip install tzdata",
        ) from None


def _to_datetime(moment: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=moment)
