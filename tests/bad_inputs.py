"""What users get wrong, and the exact words in which they are told.

A list for each door that input comes in by: ``(the input, the message)``.
``tests/unit/test_bad_inputs.py`` runs them.
"""

from __future__ import annotations

import typing as t
from datetime import timedelta

QUEUES = 'Give queues such as "high,low", or with weights such as "mail:4,*:1".'
NAME = "Give text of 1 to 512 bytes without control characters."
DURATION = (
    'Give a timedelta, seconds as a number, or text such as "250ms", "30s", "5m", "2h", "1d", "1w".'
)
URI = 'Give "mongodb://host:27017/database", "mongodb+srv://..." or "disk".'
ESCAPE = "Write both as urllib.parse.quote_plus() returns them."


def schedule(**entry: t.Any) -> dict[str, t.Any]:
    return {"HENRI_JOBS_SCHEDULES": {"nightly": entry}}


#: What ``app.config`` holds. The prefix ``HENRI_JOBS_`` is part of the key.
BAD_SETTINGS: list[tuple[dict[str, t.Any], str]] = [
    (
        {"HENRI_JOBS_TREADS": 5},
        "HENRI_JOBS_TREADS is not a setting. Did you mean 'HENRI_JOBS_THREADS'?",
    ),
    (
        {"HENRI_JOBS_threads": 5},
        "HENRI_JOBS_threads is not a setting. Did you mean 'HENRI_JOBS_THREADS'?",
    ),
    (
        {"HENRI_JOBS_URI": ""},
        f"HENRI_JOBS_URI does not begin with mongodb:// or mongodb+srv://. {URI}",
    ),
    (
        {"HENRI_JOBS_URI": "redis://:hunter2@localhost"},
        f"HENRI_JOBS_URI does not begin with mongodb:// or mongodb+srv://. {URI}",
    ),
    (
        {"HENRI_JOBS_URI": "mongodb://ann:hunt@er2@db"},
        (
            "HENRI_JOBS_URI has a user name or password with a character that must be escaped."
            f" {ESCAPE}"
        ),
    ),
    (
        {"HENRI_JOBS_URI": "mongodb://:27017/"},
        (
            "HENRI_JOBS_URI has no host, or one that is not of the form host:port."
            f" {URI} A '?' in a password is written %3F."
        ),
    ),
    ({"HENRI_JOBS_URI": {"host": "db"}}, f"HENRI_JOBS_URI is a dict, and text is due. {URI}"),
    (
        {"HENRI_JOBS_URI": "mongodb://db/my%20jobs"},
        "The database in HENRI_JOBS_URI is 'my jobs'. Give letters, digits, _ and -.",
    ),
    (
        {"HENRI_JOBS_DATABASE": "my.jobs"},
        "HENRI_JOBS_DATABASE is 'my.jobs'. Give letters, digits, _ and -.",
    ),
    (
        {"HENRI_JOBS_DATABASE": "admin"},
        "HENRI_JOBS_DATABASE is 'admin', which is the server's own. Give another name.",
    ),
    (
        {"HENRI_JOBS_COLLECTION": "henri-jobs"},
        "HENRI_JOBS_COLLECTION is 'henri-jobs'. Give 1 to 100 letters, digits and underscores.",
    ),
    (
        {"HENRI_JOBS_IMPORTS": "shop.tasks, ./tasks.py"},
        (
            "HENRI_JOBS_IMPORTS names './tasks.py', which is no module."
            ' Give names such as "shop.tasks", as import takes them.'
        ),
    ),
    ({"HENRI_JOBS_DEFAULT_QUEUE": ""}, f"HENRI_JOBS_DEFAULT_QUEUE is empty. {NAME}"),
    (
        {"HENRI_JOBS_QUEUES": []},
        f"HENRI_JOBS_QUEUES names no queue. {QUEUES}",
    ),
    ({"HENRI_JOBS_QUEUES": "mail:high:"}, f"HENRI_JOBS_QUEUES[0] is 'mail:high:'. {QUEUES}"),
    (
        {"HENRI_JOBS_QUEUES": {"$ne": None}},
        "HENRI_JOBS_QUEUES['$ne'] is None. Give a whole number, 1 to 100.",
    ),
    ({"HENRI_JOBS_QUEUES": "high,,low"}, f"HENRI_JOBS_QUEUES[1] is empty. {NAME}"),
    (
        {"HENRI_JOBS_QUEUES": ["high", {"$ne": None}]},
        f"HENRI_JOBS_QUEUES[1] is a dict, and text is due. {NAME}",
    ),
    ({"HENRI_JOBS_THREADS": 0}, "HENRI_JOBS_THREADS is 0. Give a whole number, 1 to 256."),
    (
        {"HENRI_JOBS_THREADS": "many"},
        "HENRI_JOBS_THREADS is 'many'. Give a whole number, 1 to 256.",
    ),
    ({"HENRI_JOBS_THREADS": None}, "HENRI_JOBS_THREADS is None. Give a whole number, 1 to 256."),
    (
        {"HENRI_JOBS_PROCESSES": True},
        "HENRI_JOBS_PROCESSES is True. Give a whole number, 1 to 256.",
    ),
    ({"HENRI_JOBS_GRACE": "25 seconds"}, f"HENRI_JOBS_GRACE is '25 seconds'. {DURATION}"),
    ({"HENRI_JOBS_GRACE": -1}, f"HENRI_JOBS_GRACE is -1. {DURATION}"),
    ({"HENRI_JOBS_GRACE": "2d"}, "HENRI_JOBS_GRACE is 2d. Give 0s to 1d."),
    (
        {"HENRI_JOBS_MAX_ATTEMPTS": 0},
        "HENRI_JOBS_MAX_ATTEMPTS is 0. Give a whole number, 1 to 1000000.",
    ),
    (
        {"HENRI_JOBS_PRIORITY": 1764560000},
        "HENRI_JOBS_PRIORITY is 1764560000. Give a whole number, -100 to 100.",
    ),
    ({"HENRI_JOBS_TIMEOUT": 0}, "HENRI_JOBS_TIMEOUT is 0s. Give 1ms or more."),
    (
        {"HENRI_JOBS_BACKOFF": "exponential"},
        (
            "HENRI_JOBS_BACKOFF is 'exponential'. Give a mapping such as"
            ' {"base": "5s", "factor": 4, "max": "1h", "jitter": 0.15}.'
        ),
    ),
    (
        {"HENRI_JOBS_BACKOFF": {"facto": 2}},
        "HENRI_JOBS_BACKOFF has the unknown key 'facto'. Did you mean 'factor'?",
    ),
    (
        {"HENRI_JOBS_BACKOFF": {"factor": 0}},
        "HENRI_JOBS_BACKOFF['factor'] is 0. Give a number, 1 to 1000.",
    ),
    (
        {"HENRI_JOBS_BACKOFF": {"base": "2h"}},
        (
            "HENRI_JOBS_BACKOFF has a base of 2h and a max of 1h."
            " Give a max that is no shorter than the base."
        ),
    ),
    ({"HENRI_JOBS_POLL_INTERVAL": 0}, "HENRI_JOBS_POLL_INTERVAL is 0s. Give 10ms to 5m."),
    (
        {"HENRI_JOBS_STUCK_AFTER": timedelta(milliseconds=500)},
        "HENRI_JOBS_STUCK_AFTER is 500ms. Give 1s to 1w.",
    ),
    (
        {"HENRI_JOBS_STUCK_AFTER": "3s"},
        (
            "HENRI_JOBS_POLL_INTERVAL is 1s and HENRI_JOBS_STUCK_AFTER is 3s."
            " Make the first less than a third of the second."
        ),
    ),
    ({"HENRI_JOBS_KEEP_DONE": "forever"}, f"HENRI_JOBS_KEEP_DONE is 'forever'. {DURATION}"),
    ({"HENRI_JOBS_KEEP_DEAD": "2y"}, f"HENRI_JOBS_KEEP_DEAD is '2y'. {DURATION}"),
    (
        {"HENRI_JOBS_ENQUEUE_TIMEOUT": "1h"},
        "HENRI_JOBS_ENQUEUE_TIMEOUT is 1h. Give 10ms to 10m.",
    ),
    (
        {"HENRI_JOBS_MAX_ARGS_BYTES": "512KiB"},
        "HENRI_JOBS_MAX_ARGS_BYTES is '512KiB'. Give a whole number, 64 to 8388608.",
    ),
    (
        {"HENRI_JOBS_WRITE_CONCERN": 1},
        (
            "HENRI_JOBS_WRITE_CONCERN is an int, and text is due."
            " Give 'majority', 'journaled' or 'acknowledged'."
        ),
    ),
    (
        {"HENRI_JOBS_WRITE_CONCERN": "none"},
        "HENRI_JOBS_WRITE_CONCERN is 'none'. Give 'majority', 'journaled' or 'acknowledged'.",
    ),
    (
        {"HENRI_JOBS_TENANT": "acme"},
        (
            "HENRI_JOBS_TENANT is a str, and a function is due."
            " Give one that returns the tenant of the current request, or None."
        ),
    ),
    ({"HENRI_JOBS_INLINE": "yes"}, "HENRI_JOBS_INLINE is 'yes'. Give true or false."),
    ({"HENRI_JOBS_INSTALL": 2}, "HENRI_JOBS_INSTALL is 2. Give true or false."),
    (
        {"HENRI_JOBS_MONGOD": True},
        (
            "HENRI_JOBS_MONGOD is a bool, and text is due."
            " Give text of 1 to 4096 bytes without control characters."
        ),
    ),
    (
        {"HENRI_JOBS_SCHEDULES": [{"cron": "@daily"}]},
        "HENRI_JOBS_SCHEDULES is a list, and a mapping is due.",
    ),
    (
        schedule(crom="@daily"),
        "HENRI_JOBS_SCHEDULES['nightly'] has the unknown key 'crom'. Did you mean 'cron'?",
    ),
    (
        schedule(task="clean"),
        "HENRI_JOBS_SCHEDULES['nightly'] has neither cron nor every. Give one of the two.",
    ),
    (
        schedule(cron="@daily", every="1d"),
        "HENRI_JOBS_SCHEDULES['nightly'] has both cron and every. Give one of the two.",
    ),
    (
        schedule(cron="@daily", args=[1]),
        "HENRI_JOBS_SCHEDULES['nightly']['args'] is a list, and a mapping is due.",
    ),
    (
        schedule(cron="@daily", overlap="never"),
        "HENRI_JOBS_SCHEDULES['nightly']['overlap'] is 'never'. Give 'allow' or 'skip'.",
    ),
    (
        {"HENRI_JOBS_SCHEDULES": {"": {"cron": "@daily"}}},
        f"A name in HENRI_JOBS_SCHEDULES is empty. {NAME}",
    ),
    (
        {
            "HENRI_JOBS_THREADS": 0,
            "HENRI_JOBS_GRACE": "soon",
            "HENRI_JOBS_TREADS": 5,
            "HENRI_JOBS_STUCK_AFTER": "2s",
            "HENRI_JOBS_SCHEDULES": {
                "hourly": {"every": "1h", "priority": 101},
                "nightly": {"cron": "@daily", "queue": None},
            },
        },
        "\n".join(
            [
                "6 settings are wrong:",
                "HENRI_JOBS_TREADS is not a setting. Did you mean 'HENRI_JOBS_THREADS'?",
                "HENRI_JOBS_THREADS is 0. Give a whole number, 1 to 256.",
                f"HENRI_JOBS_GRACE is 'soon'. {DURATION}",
                (
                    "HENRI_JOBS_SCHEDULES['hourly']['priority'] is 101."
                    " Give a whole number, -100 to 100."
                ),
                f"HENRI_JOBS_SCHEDULES['nightly']['queue'] is None, and text is due. {NAME}",
                (
                    "HENRI_JOBS_POLL_INTERVAL is 1s and HENRI_JOBS_STUCK_AFTER is 2s."
                    " Make the first less than a third of the second."
                ),
            ]
        ),
    ),
]
