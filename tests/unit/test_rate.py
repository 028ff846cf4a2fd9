"""What ``rate=`` means."""

from __future__ import annotations

import pytest

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.limit import Limit
from flask_henri_jobs.rate import Lane, Rate, lane_of

PARAMETERS = ["account", "user"]


def read(option: object) -> Rate:
    return Rate.read(option, "mail", PARAMETERS)


@pytest.mark.parametrize(
    ("text", "most", "window"),
    [
        ("10/s", 10, 1_000),
        ("100/m", 100, 60_000),
        ("100/10s", 100, 10_000),
        (" 5000 / 1h ", 5_000, 3_600_000),
        ("1/2d", 1, 2 * 86_400_000),
        ("1/1500ms", 1, 1_500),
    ],
)
def test_text(text: str, most: int, window: int) -> None:
    """X4: a rate is starts in a time, of one where no number is said."""
    rate = read(text)

    assert (rate.group, rate.most, rate.window, rate.key) == ("mail", most, window, None)
    assert read(str(rate)) == rate


@pytest.mark.parametrize(
    "text",
    ["", "10", "10/", "/m", "m/10", "-1/m", "1.5/m", "10/month", "10/0s", "10/40d", "20000/m"],
)
def test_bad_texts(text: str) -> None:
    """X4: anything else is refused."""
    with pytest.raises(ConfigError, match=r"rate= of the task mail is"):
        read(text)


@pytest.mark.parametrize(
    ("option", "bucket"),
    [
        ("3/m", "mail"),
        ({"limit": "3/m", "group": "imports"}, "imports"),
        ({"limit": "3/m", "key": "account"}, "mail:a"),
        ({"limit": "3/m", "key": ("account", "user"), "group": "g"}, "g:a:7"),
    ],
)
def test_bucket(option: object, bucket: str) -> None:
    """X4: a start is counted by ``group`` or ``group:value``, as a limit counts."""
    assert read(option).bucket({"account": "a", "user": 7}, {}) == bucket


def test_bucket_of_a_job_with_a_limit_as_well() -> None:
    """X4: such a job is found by its limit's key, and its starts are counted by its rate's."""
    limit = Limit("calls", 2, "account")
    by_key = Lane.of(limit, Rate("sends", 5, 1_000, "account"))
    together = Lane.of(limit, Rate("sends", 5, 1_000))

    assert by_key is not None
    assert together is not None
    assert by_key.rate_bucket("calls:a:b") == "sends:a:b"
    assert by_key.rate_bucket("calls") == by_key.rate_bucket(None) == "sends"
    assert together.rate_bucket("calls:a:b") == "sends"


def test_the_longest_group_counts() -> None:
    """L1: a key belongs to the longest group that it begins with."""
    short, long = Lane("a", 1, None), Lane("a:b", 2, None)
    groups = {"a": short, "a:b": long}

    assert lane_of("a:b:c", groups) is long
    assert lane_of("a:c", groups) is short
    assert lane_of("c", groups) is None


@pytest.mark.parametrize(
    ("window", "leeway"), [(1_000, 20), (10_000, 200), (60_000, 250), (86_400_000, 250)]
)
def test_leeway(window: int, leeway: int) -> None:
    """X4: a start is counted later than it is by no more than a fiftieth of the time."""
    assert Rate("mail", 1, window).leeway == leeway
