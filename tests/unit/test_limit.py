"""What ``concurrency=`` means."""

from __future__ import annotations

import typing as t

import pytest

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.limit import LONGEST_BUCKET, Limit
from flask_henri_jobs.limit_status import limit_statuses
from flask_henri_jobs.store.permits import Permit

PARAMETERS = ["account", "user"]


def read(option: object) -> Limit:
    return Limit.read(option, "mail", PARAMETERS)


@pytest.mark.parametrize(
    ("option", "bucket"),
    [
        (3, "mail"),
        ({"limit": 3}, "mail"),
        ({"limit": 3, "group": "imports"}, "imports"),
        ({"limit": 3, "key": "account"}, "mail:a"),
        ({"limit": 3, "key": "user"}, "mail:7"),
        ({"limit": 3, "key": ("account", "user"), "group": "g"}, "g:a:7"),
        ({"limit": 3, "key": lambda account, **_: account.upper()}, "mail:A"),
        ({"limit": 3, "key": lambda **_: None}, "mail"),
    ],
)
def test_bucket(option: object, bucket: str) -> None:
    """L1: a job is counted by ``group`` or ``group:value``; the group is the task's name."""
    assert read(option).bucket({"account": "a", "user": 7}, {}) == bucket


def test_default_of_an_argument() -> None:
    """L1: an argument that is not given counts by its default."""
    limit = read({"limit": 1, "key": "user"})

    assert limit.bucket({"account": "a"}, {"account": None, "user": 8}) == "mail:8"


def test_long_value() -> None:
    """L1: a value that is too long for a key is told apart by a digest."""
    limit = read({"limit": 1, "key": "account"})
    one, other = (limit.bucket({"account": "x" * 600 + end}, {}) for end in "ab")

    assert one != other
    assert max(len(one), len(other)) <= LONGEST_BUCKET


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (0, "concurrency= of the task mail is 0."),
        (True, "concurrency= of the task mail is True."),
        ("3", "concurrency= of the task mail is '3'."),
        ({"key": "account"}, "concurrency= of the task mail has no limit."),
        ({"limit": 1, "kye": "account"}, "has the unknown key 'kye'. Did you mean 'key'?"),
        (
            {"limit": 1, "key": "acount"},
            "names 'acount', which is not one of the task's arguments.",
        ),
        ({"limit": 1, "key": 7}, "concurrency= of the task mail['key'] is 7."),
        ({"limit": 1, "group": ""}, "concurrency= of the task mail['group'] is empty."),
    ],
)
def test_refused(option: object, message: str) -> None:
    """L1: what is no limit is refused, with the place."""
    with pytest.raises(ConfigError) as refusal:
        read(option)

    assert message in str(refusal.value)


def permit(key: str) -> Permit:
    nothing: t.Any = None
    return Permit(key=key, slot=0, runner="r", job_id="j", taken_at=nothing, heartbeat_at=nothing)


def test_statuses() -> None:
    """L3: permits are shown with the group that they are of, also one that nobody declares."""
    limits = {"mail": Limit("mail", 2), "news": Limit("mail", 2), "pdf": Limit("pdf", 1)}

    statuses = limit_statuses(limits, [permit("mail:a:b"), permit("old:7"), permit("mail")])

    shown = [(one.group, one.limit, one.tasks, [p.key for p in one.held]) for one in statuses]
    assert shown == [
        ("mail", 2, ("mail", "news"), ["mail:a:b", "mail"]),
        ("old", None, (), ["old:7"]),
        ("pdf", 1, ("pdf",), []),
    ]
