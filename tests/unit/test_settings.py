"""What ``app.config`` says, and what is made of it."""

from __future__ import annotations

import copy
import dataclasses
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask

from flask_henri_jobs.backoff import Backoff
from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.queues import QueueSelection
from flask_henri_jobs.schedule import Schedule
from flask_henri_jobs.setting_readers import READERS
from flask_henri_jobs.settings import Settings


def read(config: dict[str, t.Any] | None = None, **overrides: t.Any) -> Settings:
    return Settings.from_config(
        config or {}, app_name="shop", instance_path="/srv/instance", **overrides
    )


def acme() -> str:
    return "acme"


@pytest.fixture
def app() -> Flask:
    return Flask("shop")


def test_defaults_are_the_fields_own() -> None:
    """An empty config gives the defaults, and a database named after the app."""
    assert read() == Settings(app_name="shop", instance_path=Path("/srv/instance"), database="shop")


def test_every_setting_has_a_reader() -> None:
    """What is read and what is kept are the same settings."""
    fields = {field.name for field in dataclasses.fields(Settings)}

    assert fields - {"app_name", "instance_path", "database_is_set"} == READERS.keys()


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("uri", "mongodb://db/jobs", "mongodb://db/jobs"),
        ("uri", "disk", "disk"),
        ("database", "my-jobs", "my-jobs"),
        ("collection", "Jobs_2", "Jobs_2"),
        ("imports", ["shop.tasks", "shop.mail"], ("shop.tasks", "shop.mail")),
        ("imports", [], ()),
        ("default_queue", "low", "low"),
        ("queues", ("high", "low"), QueueSelection(("high", "low"))),
        ("queues", None, None),
        ("threads", 256, 256),
        ("processes", 1, 1),
        ("grace", 0, timedelta(0)),
        ("max_attempts", 1, 1),
        ("priority", -100, -100),
        ("timeout", "30s", timedelta(seconds=30)),
        ("timeout", None, None),
        ("backoff", {"factor": 2}, Backoff(factor=2)),
        ("backoff", Backoff(jitter=0), Backoff(jitter=0)),
        ("poll_interval", 0.05, timedelta(milliseconds=50)),
        ("stuck_after", timedelta(hours=1), timedelta(hours=1)),
        ("keep_done", 0, timedelta(0)),
        ("keep_done", None, None),
        ("keep_dead", "1w", timedelta(weeks=1)),
        ("enqueue_timeout", "250ms", timedelta(milliseconds=250)),
        ("max_args_bytes", 1024, 1024),
        ("write_concern", "acknowledged", "acknowledged"),
        ("tenant", acme, acme),
        ("inline", True, True),
        ("install", False, False),
        ("mongod", Path("/opt/mongod"), Path("/opt/mongod")),
        ("mongod", "mongod", Path("mongod")),
    ],
)
def test_what_is_kept(name: str, given: object, kept: object) -> None:
    """A setting is kept in its exact type, from the config and from an override alike."""
    assert getattr(read({f"HENRI_JOBS_{name.upper()}": given}), name) == kept
    assert getattr(read({}, **{name: given}), name) == kept


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("THREADS", "8", 8),
        ("PRIORITY", "-5", -5),
        ("GRACE", "30", timedelta(seconds=30)),
        ("GRACE", "0.5", timedelta(milliseconds=500)),
        ("GRACE", "30s", timedelta(seconds=30)),
        ("TIMEOUT", "null", None),
        ("QUEUES", "high,low", QueueSelection(("high", "low"))),
        ("QUEUES", '["high", "low"]', QueueSelection(("high", "low"))),
        ("QUEUES", "high", QueueSelection(("high",))),
        ("QUEUES", "mail:4,*:1", QueueSelection(("mail", "*"), (4, 1))),
        ("QUEUES", '{"mail": 4, "*": 1}', QueueSelection(("mail", "*"), (4, 1))),
        ("IMPORTS", "shop.tasks, shop.mail", ("shop.tasks", "shop.mail")),
        ("IMPORTS", "", ()),
        ("INLINE", "true", True),
        ("INLINE", "True", True),
        ("INLINE", "1", True),
        ("INSTALL", "false", False),
        ("INSTALL", "FALSE", False),
        ("INSTALL", "0", False),
        ("BACKOFF", '{"base": "1s", "jitter": 0}', Backoff(base=timedelta(seconds=1), jitter=0)),
        ("SCHEDULES", '{"a": {"every": 60}}', {"a": Schedule.read("a", every=60)}),
        ("COLLECTION", "jobs", "jobs"),
        ("URI", "mongodb://db/jobs", "mongodb://db/jobs"),
    ],
)
def test_environment(
    app: Flask, monkeypatch: pytest.MonkeyPatch, name: str, text: str, kept: object
) -> None:
    """A variable is understood through ``from_prefixed_env``, and as the text that it is."""
    monkeypatch.setenv(f"FLASK_HENRI_JOBS_{name}", text)
    app.config.from_prefixed_env()

    assert getattr(read(app.config), name.lower()) == kept
    if text != "null":
        assert getattr(read({f"HENRI_JOBS_{name}": text}), name.lower()) == kept


def test_nested_environment(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping may be given a key at a time, by Flask's double underscore."""
    monkeypatch.setenv("FLASK_HENRI_JOBS_BACKOFF__factor", "2")
    monkeypatch.setenv("FLASK_HENRI_JOBS_SCHEDULES__nightly__cron", "@daily")
    app.config.from_prefixed_env()
    settings = read(app.config)

    assert settings.backoff == Backoff(factor=2)
    assert settings.schedules == {"nightly": Schedule.read("nightly", cron="@daily")}


def test_a_queue_may_be_called_by_a_number() -> None:
    """Text that names a queue stays text."""
    assert read({"HENRI_JOBS_QUEUES": "5"}).queues == QueueSelection(("5",))


def test_config_is_left_alone() -> None:
    """Reading changes nothing in the config, and a later change there changes no setting."""
    config = {
        "DEBUG": True,
        "HENRI_JOBS_QUEUES": ["high"],
        "HENRI_JOBS_BACKOFF": {"base": "1s"},
        "HENRI_JOBS_SCHEDULES": {"a": {"every": "1m", "args": {"b": 1}}},
    }
    before = copy.deepcopy(config)
    settings = read(config)
    assert config == before

    config["HENRI_JOBS_SCHEDULES"]["a"]["every"] = "2m"  # type: ignore[index]
    config["HENRI_JOBS_QUEUES"].append("low")  # type: ignore[attr-defined]
    assert settings.schedules["a"].spec == "every:60000"
    assert settings.queues == QueueSelection(("high",))


def test_settings_are_frozen() -> None:
    """Settings do not change once they are read, and neither does a schedule in them."""
    settings = read({"HENRI_JOBS_SCHEDULES": {"a": {"every": "1m"}}})

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.threads = 9  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.schedules["a"].spec = "every:120000"  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.schedules["b"] = settings.schedules["a"]  # type: ignore[index]


def test_two_instances_in_one_app() -> None:
    """Two ``HenriJobs`` of one app differ in what they override, and share the rest."""
    config = {"HENRI_JOBS_COLLECTION": "jobs", "HENRI_JOBS_THREADS": 8}
    first, second = read(config), read(config, collection="other")

    assert (first.collection, second.collection) == ("jobs", "other")
    assert first == dataclasses.replace(second, collection="jobs")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"colection": "a"}, "HenriJobs(colection=) is not a setting. Did you mean 'collection'?"),
        (
            {"collection": "a-b"},
            "HenriJobs(collection=) is 'a-b'. Give 1 to 100 letters, digits and underscores.",
        ),
    ],
)
def test_bad_overrides(overrides: dict[str, t.Any], message: str) -> None:
    """A bad override is told as the argument that it is."""
    with pytest.raises(ConfigError) as refused:
        read(**overrides)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("uri", "app_name", "database"),
    [
        ("mongodb://db/jobs", "shop", "jobs"),
        ("mongodb://db", "shop", "shop"),
        ("mongodb://ann:pw@db/admin", "shop", "shop"),
        ("disk", "shop", "shop"),
        (None, "My Shop.web", "my_shop_web"),
        (None, "小店", "henri_jobs"),
        (None, "admin", "henri_jobs"),
        (None, "a" * 100, "a" * 63),
    ],
)
def test_database_when_unset(uri: str | None, app_name: str, database: str) -> None:
    """Where none is set, the database is the URI's, else one named after the app."""
    settings = Settings.from_config(
        {"HENRI_JOBS_URI": uri, "HENRI_JOBS_DATABASE": None},
        app_name=app_name,
        instance_path="instance",
    )

    assert settings.database == database


def test_database_when_set() -> None:
    """A database that is set wins over the URI's, and it is known that it was set."""
    in_config = read({"HENRI_JOBS_URI": "mongodb://db/a", "HENRI_JOBS_DATABASE": "b"})

    assert (in_config.database, in_config.database_is_set) == ("b", True)
    assert read(database="b").database_is_set
    assert not read({"HENRI_JOBS_URI": "mongodb://db/a"}).database_is_set
    assert not read({"HENRI_JOBS_DATABASE": None}).database_is_set


@pytest.mark.parametrize(
    ("uri", "embedded"), [(None, True), ("disk", True), ("mongodb://db/jobs", False)]
)
def test_embedded(uri: str | None, embedded: bool) -> None:
    """Without a URI, or with ``disk``, the database is the extension's own."""
    assert read({"HENRI_JOBS_URI": uri}).embedded is embedded


@pytest.mark.parametrize(
    ("stuck_after", "heartbeat"), [("6s", 1), ("30s", 5), ("3m", 30), ("1h", 30)]
)
def test_heartbeats(stuck_after: str, heartbeat: int) -> None:
    """Q4: There are six heartbeats in ``stuck_after``, or one every 30 seconds."""
    settings = read({"HENRI_JOBS_STUCK_AFTER": stuck_after, "HENRI_JOBS_POLL_INTERVAL": 0.1})

    assert settings.heartbeat == timedelta(seconds=heartbeat)


def test_a_bad_value_is_complained_about_once() -> None:
    """A value that cannot be read brings no second complaint about its default."""
    with pytest.raises(ConfigError) as refused:
        read({"HENRI_JOBS_POLL_INTERVAL": "fast", "HENRI_JOBS_STUCK_AFTER": "2s"})

    assert str(refused.value).startswith("HENRI_JOBS_POLL_INTERVAL is 'fast'. ")
    assert "\n" not in str(refused.value)


def test_repr_hides_the_password() -> None:
    """Settings that are shown or logged do not show the password."""
    settings = read({"HENRI_JOBS_URI": "mongodb://ann:hunter2@db/jobs"})

    assert "uri='mongodb://ann:***@db/jobs', database='jobs'" in repr(settings)
    assert "hunter2" not in f"{settings} {settings!r}"


def test_other_keys_are_not_looked_at() -> None:
    """Keys of other extensions, and keys that are no text, are not the queue's business."""
    assert read(t.cast("dict[str, t.Any]", {"HENRI_URI": 1, "SECRET_KEY": 2, 3: 4})) == read()
