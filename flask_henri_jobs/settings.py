"""What ``app.config`` says under ``HENRI_JOBS_``: every default, every check, frozen.

``docs/reference/configuration.md`` has an entry for each setting.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from .backoff import Backoff
from .checks import Mistakes, did_you_mean
from .durations import to_text
from .errors import ConfigError
from .setting_readers import EMBEDDED, READERS, database_for
from .uri import mask_uri

if t.TYPE_CHECKING:
    import os

    from .queues import QueueSelection
    from .schedule import Schedule

PREFIX = "HENRI_JOBS_"

LONGEST_TRANSACTION = timedelta(seconds=90)
"""After which a server has aborted one, with the default of ``transactionLifetimeLimitSeconds``.

That is 60 s, and it looks for those that are older twice a minute: 61 s to 89 s were measured.
"""

Tenant: t.TypeAlias = Callable[[], str | None]
WriteConcern: t.TypeAlias = t.Literal["majority", "journaled", "acknowledged"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of one :class:`HenriJobs` in one app.

    :param app_name: The app's name: the origin of the schedules it declares (S3).
    :param instance_path: The app's instance folder, where the embedded database lives.
    :param database_is_set: Whether the user named the database; else the default database of the
        application's own client wins over ``database``.
    """

    app_name: str = "henri_jobs"
    instance_path: Path = Path("instance")
    database_is_set: bool = False

    uri: str | None = None
    database: str = "henri_jobs"
    collection: str = "henri_jobs"
    imports: tuple[str, ...] = ()
    default_queue: str = "default"
    queues: QueueSelection | None = None
    threads: int = 5
    processes: int = 1
    grace: timedelta = timedelta(seconds=25)
    max_attempts: int = 5
    priority: int = 0
    timeout: timedelta | None = None
    backoff: Backoff = field(default_factory=Backoff)
    poll_interval: timedelta = timedelta(seconds=1)
    stuck_after: timedelta = timedelta(minutes=5)
    keep_done: timedelta | None = timedelta(days=1)
    keep_dead: timedelta | None = None
    enqueue_timeout: timedelta = timedelta(seconds=3)
    max_args_bytes: int = 512 * 1024
    write_concern: WriteConcern = "majority"
    tenant: Tenant | None = None
    inline: bool = False
    install: bool = True
    mongod: Path | None = None
    schedules: Mapping[str, Schedule] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, t.Any],
        *,
        app_name: str,
        instance_path: str | os.PathLike[str],
        **overrides: object,
    ) -> t.Self:
        """Read the settings out of a Flask config, which is left as it was.

        :param overrides: Settings by their attribute names, as ``HenriJobs(collection="other")``
            gives them; they win over the config.
        :raises ConfigError: A key is not a setting, a value is not allowed, or two values do not
            go together. All that is wrong is told at once.
        """
        mistakes = Mistakes()
        given = _given(config, overrides, mistakes)
        read: dict[str, t.Any] = {}
        for name, (where, value) in given.items():
            with mistakes.noted():
                read[name] = READERS[name](value, where)
        database_is_set = read.get("database") is not None
        if not database_is_set:
            with mistakes.noted():
                read["database"] = database_for(read.get("uri"), app_name)
        settings = cls(
            app_name=app_name,
            instance_path=Path(instance_path),
            database_is_set=database_is_set,
            **read,
        )
        # Beside a value that could not be read, its default would be complained about.
        if not {"poll_interval", "stuck_after"} & (given.keys() - read.keys()):
            with mistakes.noted():
                settings._check_poll_interval()
        mistakes.raise_any()
        return settings

    @property
    def embedded(self) -> bool:
        """Whether the database is a ``mongod`` of the extension's own."""
        return self.uri in (None, EMBEDDED)

    @property
    def outlasted_by_transactions(self) -> str | None:
        """What is to be said where a job may be recovered in the middle of its transaction."""
        if self.stuck_after > LONGEST_TRANSACTION:
            return None
        return (
            f"{PREFIX}STUCK_AFTER is {to_text(self.stuck_after)}, and a transaction may last"
            f" {to_text(LONGEST_TRANSACTION)}: others may take over a job that is in one, which is"
            " then aborted."
        )

    @property
    def heartbeat(self) -> timedelta:
        """How often a runner says that it still has its jobs: several times in ``stuck_after``."""
        return min(self.stuck_after / 6, timedelta(seconds=30))

    def __repr__(self) -> str:
        """Show every setting, and the URI without its password."""
        shown_fields = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.uri is not None:
            shown_fields["uri"] = mask_uri(self.uri)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown_fields.items())})"

    def _check_poll_interval(self) -> None:
        # A runner looks at its clock once a poll, and begins nothing when its last heartbeat is
        # older than a third of ``stuck_after``: a longer poll would make it doubt itself (W4).
        if self.poll_interval >= self.stuck_after / 3:
            raise ConfigError(
                f"{PREFIX}POLL_INTERVAL is {to_text(self.poll_interval)}"
                f" and {PREFIX}STUCK_AFTER is {to_text(self.stuck_after)}.",
                hint="Make the first less than a third of the second.",
            )


def _given(
    config: Mapping[str, t.Any], overrides: Mapping[str, object], mistakes: Mistakes
) -> dict[str, tuple[str, object]]:
    """Return, by name, how the user calls each setting that is given, and its value."""
    given: dict[str, tuple[str, object]] = {}
    keys = {name.upper(): name for name in READERS}
    for key, value in config.items():
        if isinstance(key, str) and key.startswith(PREFIX):
            with mistakes.noted():
                name = _known(key.removeprefix(PREFIX), keys, key, PREFIX)
                given[keys[name]] = (key, value)
    for name, value in overrides.items():
        where = f"HenriJobs({name}=)"
        with mistakes.noted():
            given[_known(name, READERS, where)] = (where, value)
    return given


def _known(name: str, names: Collection[str], where: str, prefix: str = "") -> str:
    if name not in names:
        raise ConfigError(f"{where} is not a setting.", hint=did_you_mean(name, names, prefix))
    return name
