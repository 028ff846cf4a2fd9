"""What users get wrong, and the exact words in which they are told.

A list for each door that input comes in by: ``(the input, the message)``.
``tests/unit/test_bad_inputs.py`` runs them.
"""

from __future__ import annotations

import enum
import io
import math
import typing as t
from datetime import UTC, datetime, timedelta

QUEUES = 'Give queues such as "high,low", or with weights such as "mail:4,*:1".'
COUNT = "Give a number, 0 to 9.0072e+15."
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

WHOLE = "Give a whole number,"
MOMENT = "Give a datetime with a time zone."
ZONE = "Say datetime.now(UTC) rather than datetime.now(), or .replace(tzinfo=...)."
LOAD = "Pass its id, and load it inside the task."

#: What ``@jobs.task`` is given, for the function ``mail(user_id, *, subject="Hello")``.
BAD_TASK_OPTIONS: list[tuple[dict[str, t.Any], str]] = [
    ({"que": "low"}, "There is no option que= of the task mail. Did you mean 'queue'?"),
    (
        {"max_retries": 3},
        (
            "There is no option max_retries= of the task mail; it is Celery's."
            " Say max_attempts=, which counts the first attempt: max_retries=3 is max_attempts=4."
        ),
    ),
    (
        {"bind": True},
        (
            "There is no option bind= of the task mail; it is Celery's."
            " Use current_job, which is the job in hand."
        ),
    ),
    (
        {"autoretry_for": (ValueError,)},
        (
            "There is no option autoretry_for= of the task mail; it is Celery's."
            " Say retry_on=; without it every exception is retried."
        ),
    ),
    (
        {"rate": 10},
        (
            "rate= of the task mail is 10."
            ' Give starts in a time, such as "10/s", "100/m" or "5000/1h".'
        ),
    ),
    (
        {"rate": "10 per minute"},
        (
            "rate= of the task mail is '10 per minute'."
            ' Give starts in a time, such as "10/s", "100/m" or "5000/1h".'
        ),
    ),
    (
        {"rate": "1/100ms"},
        (
            "rate= of the task mail is '1/100ms'."
            " Give a time of 1 second to 31 days: 10/s in place of 1/100ms."
        ),
    ),
    (
        {"rate": "0/m"},
        "rate= of the task mail is '0/m'. Give 1 to 10_000 starts in a time.",
    ),
    (
        {"rate": {"key": "user_id"}},
        'rate= of the task mail has no limit. Give {"limit": "100/m", ...}.',
    ),
    (
        {"rate": {"limit": "5/m", "key": "userid"}},
        (
            "rate= of the task mail['key'] names 'userid', which is not one of the task's"
            " arguments. It has user_id, subject."
        ),
    ),
    (
        {
            "concurrency": {"limit": 2, "key": "user_id"},
            "rate": {"limit": "5/m", "key": ("user_id",)},
        },
        (
            "concurrency= and rate= of the task mail have different keys."
            " Give both the same key, or the rate none."
        ),
    ),
    (
        {"keep_logs": 1001},
        "keep_logs= of the task mail is 1001. Give a whole number, 1 to 1000.",
    ),
    (
        {"redact": ("user_id",), "rate": {"limit": "5/m", "key": "user_id"}},
        (
            "redact= of the task mail names 'user_id', which its rate counts by. Count by a"
            " callable that returns something else, such as a hash of it."
        ),
    ),
    (
        {"redact": "user_id"},
        "redact= of the task mail is 'user_id'. Give a tuple of arguments, such as (\"email\",).",
    ),
    (
        {"redact": ("userid",)},
        (
            "redact= of the task mail names 'userid', which is not one of its arguments."
            " Did you mean 'user_id'?"
        ),
    ),
    (
        {"store_result": "yes"},
        "store_result= of the task mail is 'yes'. Give true or false.",
    ),
    (
        {"transactional": 1},
        "transactional= of the task mail is 1. Give true or false.",
    ),
    ({"queue": 7}, f"queue= of the task mail is an int, and text is due. {NAME}"),
    ({"queue": {"$ne": None}}, f"queue= of the task mail is a dict, and text is due. {NAME}"),
    ({"priority": 101}, f"priority= of the task mail is 101. {WHOLE} -100 to 100."),
    ({"priority": True}, f"priority= of the task mail is True. {WHOLE} -100 to 100."),
    ({"max_attempts": 0}, f"max_attempts= of the task mail is 0. {WHOLE} 1 to 1000000."),
    ({"max_attempts": "3"}, f"max_attempts= of the task mail is '3'. {WHOLE} 1 to 1000000."),
    ({"timeout": "soon"}, f"timeout= of the task mail is 'soon'. {DURATION}"),
    ({"timeout": 0}, "timeout= of the task mail is 0s. Give 1ms or more."),
    (
        {"time_limit": 30},
        "There is no option time_limit= of the task mail; it is Celery's. Say timeout=.",
    ),
    (
        {"unique": 7},
        (
            "unique= of the task mail is 7."
            " Give True, an argument's name, a tuple of names, or a callable."
        ),
    ),
    (
        {"unique": ()},
        (
            "unique= of the task mail is ()."
            " Give True, an argument's name, a tuple of names, or a callable."
        ),
    ),
    (
        {"unique": ("user_id", "subjct")},
        (
            "unique= of the task mail names 'subjct', which is not one of its arguments."
            " It has user_id, subject."
        ),
    ),
    ({"expires": "soon"}, f"expires= of the task mail is 'soon'. {DURATION}"),
    (
        {"expires": 0},
        "expires= of the task mail is zero. Give how long the job stays worth doing.",
    ),
    (
        {"backoff": "5s"},
        (
            "backoff= of the task mail is '5s'. Give a mapping such as"
            ' {"base": "5s", "factor": 4, "max": "1h", "jitter": 0.15}.'
        ),
    ),
    (
        {"backoff": {"facto": 2}},
        "backoff= of the task mail has the unknown key 'facto'. Did you mean 'factor'?",
    ),
    (
        {"retry_on": "ValueError"},
        (
            "retry_on= of the task mail is 'ValueError'."
            " Give an exception class, or a tuple of them."
        ),
    ),
    (
        {"discard_on": [ValueError("x")]},
        (
            "discard_on= of the task mail is [ValueError('x')]."
            " Give an exception class, or a tuple of them."
        ),
    ),
]

#: What ``using`` is given.
BAD_OPTIONS: list[tuple[dict[str, t.Any], str]] = [
    ({"que": "low"}, "There is no option que= of an enqueue. Did you mean 'queue'?"),
    (
        {"countdown": 60},
        (
            "There is no option countdown= of an enqueue; it is Celery's."
            " Say wait=, or use apply_async(countdown=)."
        ),
    ),
    ({"task_id": "a"}, "There is no option task_id= of an enqueue; it is Celery's. Say id=."),
    (
        {"tags": "order:42"},
        "tags is 'order:42'. Give a tuple of texts, such as (\"order:42\",).",
    ),
    ({"tags": ("a", {"$ne": ""})}, f"tags[1] is a dict, and text is due. {NAME}"),
    ({"tags": [""]}, f"tags[0] is empty. {NAME}"),
    ({"tags": ["x"] * 21}, "tags has 21 tags. Give at most 20."),
    (
        {"session": object()},
        (
            "session is an object, and a session of pymongo is due."
            " Take one of jobs.client.start_session()."
        ),
    ),
    ({"id": {"$gt": ""}}, f"id is a dict, and text is due. {NAME}"),
    ({"id": ""}, f"id is empty. {NAME}"),
    ({"timeout": True}, f"timeout is True. {DURATION}"),
    ({"timeout": "0.4ms"}, "timeout is 0ms. Give 1ms or more."),
    ({"queue": ["low"]}, f"queue is a list, and text is due. {NAME}"),
    ({"queue": "x" * 513}, f"queue is 513 bytes long. {NAME}"),
    ({"priority": -101}, f"priority is -101. {WHOLE} -100 to 100."),
    ({"max_attempts": 2.5}, f"max_attempts is 2.5. {WHOLE} 1 to 1000000."),
    ({"wait": "5 minutes"}, f"wait is '5 minutes'. {DURATION}"),
    ({"wait": -1}, f"wait is -1. {DURATION}"),
    (
        {"wait": datetime(2030, 1, 1, tzinfo=UTC)},
        "wait is a moment, and a duration is due. Say at=.",
    ),
    ({"at": "2030-01-01"}, f"at is a str, and a moment is due. {MOMENT}"),
    (
        {"at": datetime(2030, 1, 1)},
        f"at is 2030-01-01T00:00:00, which names no moment without a time zone. {ZONE}",
    ),
    (
        {"wait": "5m", "at": datetime(2030, 1, 1, tzinfo=UTC)},
        "Both wait= and at= are given. Give one of them.",
    ),
    ({"unique": ""}, f"unique is empty. {NAME}"),
    ({"unique": "x" * 513}, f"unique is 513 bytes long. {NAME}"),
    (
        {"unique": True},
        (
            "unique is a bool, and the key itself is due."
            " Give text; what makes a key of the arguments is an option of the task."
        ),
    ),
    (
        {"unique": "batch:7"},
        (
            "unique is 'batch:7', and keys that begin so are the queue's own."
            " Begin it with the task's name."
        ),
    ),
    ({"on_conflict": "ignore"}, "on_conflict is 'ignore'. Give 'return', 'raise' or 'replace'."),
    ({"expires": 0}, "expires is zero. Give how long the job stays worth doing."),
    (
        {"expires": datetime(2030, 1, 1)},
        f"expires is 2030-01-01T00:00:00, which names no moment without a time zone. {ZONE}",
    ),
]


class User:
    """A model of an application."""


class Colour(enum.Enum):
    RED = "red"


def circle() -> list[t.Any]:
    items: list[t.Any] = []
    items.append(items)
    return items


#: The arguments of ``mail.delay(...)``, for ``mail(user_id, *, subject="Hello")``.
BAD_ARGUMENTS: list[tuple[tuple[t.Any, ...], dict[str, t.Any], str]] = [
    (
        (),
        {},
        (
            "The task mail does not take these arguments: missing a required argument: 'user_id'."
            " It takes user_id, subject."
        ),
    ),
    (
        (7, "Hi"),
        {},
        (
            "The task mail does not take these arguments: too many positional arguments."
            " It takes user_id, subject."
        ),
    ),
    (
        (7,),
        {"subjct": "Hi"},
        (
            "The task mail does not take these arguments: got an unexpected keyword argument"
            " 'subjct'. It takes user_id, subject."
        ),
    ),
    (
        (7,),
        {"user_id": 8},
        (
            "The task mail does not take these arguments: multiple values for argument 'user_id'."
            " It takes user_id, subject."
        ),
    ),
    ((User(),), {}, f"args.user_id is a User instance. {LOAD}"),
    (([7, User()],), {}, f"args.user_id[1] is a User instance. {LOAD}"),
    (
        ({"home address": {"since": User}},),
        {},
        (
            "args.user_id['home address'].since is a class."
            " Pass its name, and look it up inside the task."
        ),
    ),
    (
        (datetime(2030, 1, 1),),
        {},
        (
            "args.user_id is a naive datetime, 2030-01-01 00:00:00."
            " Say where it holds: datetime.now(UTC), or value.replace(tzinfo=...)."
        ),
    ),
    ((math.nan,), {}, "args.user_id is nan. JSON has no such number: pass None, or text."),
    ((-math.inf,), {}, "args.user_id is -inf. JSON has no such number: pass None, or text."),
    (
        ({7: "seven"},),
        {},
        (
            "args.user_id has a key of the type int."
            " Keys are text: pass str(key), or a list of pairs."
        ),
    ),
    (
        (7,),
        {"subject": "\ud800"},
        (
            "args.subject holds a lone surrogate, '\\ud800'."
            ' It is not text: pass value.encode("utf-8", "surrogatepass").'
        ),
    ),
    ((circle(),), {}, f"args.user_id[0] leads back to args.user_id. {LOAD}"),
    (
        (io.StringIO(),),
        {},
        "args.user_id is a file. Store it where the worker can read it, and pass its path or id.",
    ),
    ((print,), {}, "args.user_id is a function. Pass its name, and look it up inside the task."),
    ((Colour.RED,), {}, "args.user_id is a member of the enum Colour. Pass its .value."),
    (
        (7,),
        {"subject": "x" * 600_000},
        (
            "args takes 600026 bytes as JSON, and at most 524288 are allowed."
            " Store it, and pass its id."
        ),
    ),
]

STATES = "Give 'pending', 'running', 'done' or 'dead'."
REASONS = "Give 'failed', 'lost', 'timeout', 'discarded', 'cancelled' or 'expired'."

#: What ``current_job.set_progress`` is given.
BAD_PROGRESS: list[tuple[dict[str, t.Any], str]] = [
    ({"done": "half"}, f"done is 'half'. {COUNT}"),
    ({"done": -1}, f"done is -1. {COUNT}"),
    ({"done": True}, f"done is True. {COUNT}"),
    ({"done": math.nan}, f"done is nan. {COUNT}"),
    ({"done": 1, "total": math.inf}, f"total is inf. {COUNT}"),
    ({"done": 2**53}, f"done is 9007199254740992. {COUNT}"),
    ({"done": 1, "message": b"x"}, "message is a bytes, and text is due."),
]

#: What selects jobs, in ``jobs.list``, ``count``, ``retry_all`` and ``delete_all`` (Q9).
BAD_FILTERS: list[tuple[dict[str, t.Any], str]] = [
    ({"state": "ded"}, f"state is 'ded'. {STATES}"),
    ({"state": {"$ne": "done"}}, f"state is a dict, and text is due. {STATES}"),
    ({"state": ["dead"]}, f"state is a list, and text is due. {STATES}"),
    ({"queue": {"$gt": ""}}, f"queue is a dict, and text is due. {NAME}"),
    ({"queue": ""}, f"queue is empty. {NAME}"),
    ({"queue": "a\0b"}, f"queue is 'a\\x00b'. {NAME}"),
    ({"name": 7}, f"name is an int, and text is due. {NAME}"),
    ({"name": b"mail"}, f"name is a bytes, and text is due. {NAME}"),
    ({"tenant": {"$exists": False}}, f"tenant is a dict, and text is due. {NAME}"),
    ({"batch": ["a"]}, f"batch is a list, and text is due. {NAME}"),
    ({"tag": {"$regex": "."}}, f"tag is a dict, and text is due. {NAME}"),
    ({"reason": "crashed"}, f"reason is 'crashed'. {REASONS}"),
    (
        {"reason": "failed", "state": "done"},
        (
            "reason is 'failed', and state is 'done': only dead jobs have a reason."
            " Leave one of the two out."
        ),
    ),
]

ONE_OF_THREE = "Give exactly one of queue=, name= (a task's) and tenant=."

#: What ``jobs.pause`` is given; ``jobs.resume`` says the same of itself.
BAD_PAUSES: list[tuple[dict[str, t.Any], str]] = [
    ({}, f"jobs.pause() is given nothing. {ONE_OF_THREE}"),
    ({"queue": None}, f"jobs.pause() is given queue=. {ONE_OF_THREE}"),
    ({"queue": "a", "name": "b"}, f"jobs.pause() is given queue=, name=. {ONE_OF_THREE}"),
    ({"task": "mail"}, f"jobs.pause() is given task=. {ONE_OF_THREE}"),
    ({"queue": "a", "task": "b"}, f"jobs.pause() is given queue=, task=. {ONE_OF_THREE}"),
    ({"queue": {"$ne": ""}}, f"queue is a dict, and text is due. {NAME}"),
    ({"name": ["mail"]}, f"name is a list, and text is due. {NAME}"),
    ({"name": ""}, f"name is empty. {NAME}"),
    ({"tenant": 7}, f"tenant is an int, and text is due. {NAME}"),
]

#: What ``jobs.get``, ``retry``, ``delete``, ``cancel`` and ``explain`` are given.
BAD_IDS: list[tuple[t.Any, str]] = [
    ({"$gt": ""}, f"id is a dict, and text is due. {NAME}"),
    ({"$where": "sleep(1000)"}, f"id is a dict, and text is due. {NAME}"),
    (["a"], f"id is a list, and text is due. {NAME}"),
    (7, f"id is an int, and text is due. {NAME}"),
    (None, f"id is None, and text is due. {NAME}"),
    (b"a", f"id is a bytes, and text is due. {NAME}"),
    ("", f"id is empty. {NAME}"),
    ("a\0b", f"id is 'a\\x00b'. {NAME}"),
    ("x" * 513, f"id is 513 bytes long. {NAME}"),
]

SPAN = "Give seconds, or 250ms, 30s, 5m, 2h, 1d, 1w."
QUOTE = "Quote it as a whole."

#: What is typed after ``flask jobs``, beside a running job ``running-1`` and a dead one, and the
#: code that it ends with.
BAD_COMMANDS: list[tuple[list[str], str, int]] = [
    (["statsu"], "No such command 'statsu'. Did you mean 'status'?", 2),
    (["list", "--everything"], "No such option '--everything'.", 2),
    (
        ["list", "--state", "failed"],
        (
            "Invalid value for '--state': 'failed' is not one of 'pending', 'running', 'done',"
            " 'dead'."
        ),
        2,
    ),
    (["pause"], "Give exactly one of --queue, --name and --tenant.", 2),
    (
        ["pause", "--queue", "a", "--tenant", "b"],
        "Give exactly one of --queue, --name and --tenant.",
        2,
    ),
    (["resume"], "Give exactly one of --queue, --name and --tenant.", 2),
    (
        ["resume", "--queue", "nobody"],
        "That was not paused. 'flask jobs pauses' shows what is.",
        1,
    ),
    (
        ["list", "--reason", "bored"],
        (
            "Invalid value for '--reason': 'bored' is not one of 'failed', 'lost', 'timeout',"
            " 'discarded', 'cancelled', 'expired'."
        ),
        2,
    ),
    (
        ["list", "--state", "done", "--reason", "failed"],
        (
            "reason is 'failed', and state is 'done': only dead jobs have a reason."
            " Leave one of the two out."
        ),
        2,
    ),
    (["list", "--queue", ""], f"Invalid value for '-q' / '--queue': The name is empty. {NAME}", 2),
    (
        ["list", "--tenant", "a\x1b[31m"],
        f"Invalid value for '--tenant': The name is 'a\\x1b[31m'. {NAME}",
        2,
    ),
    (
        ["list", "--limit", "0"],
        "Invalid value for '--limit': 0 is not in the range 1<=x<=1000.",
        2,
    ),
    (
        ["list", "--offset", "-1"],
        "Invalid value for '--offset': -1 is not in the range 0<=x<=1000000.",
        2,
    ),
    (["status", "--queue", "low"], "No such option '--queue'.", 2),
    (["show"], "Missing argument 'ID'.", 2),
    (
        ["show", '{"$gt": ""}'],
        'There is no job {"$gt": ""}. It was deleted, or pruned some time after its end.',
        1,
    ),
    (["show", "x" * 513], f"Invalid value for 'ID': The name is 513 bytes long. {NAME}", 2),
    (
        ["retry"],
        "Nothing says which jobs. Give their ids, or a filter, or --all.",
        2,
    ),
    (["retry", "a", "--all", "--yes"], "Give ids or filters, not both.", 2),
    (
        ["retry", "nope"],
        "There is no job nope. It was deleted, or pruned some time after its end.",
        1,
    ),
    (
        ["retry", "running-1"],
        (
            "Job running-1 is running, and cannot be retried."
            " Cancel it with jobs.cancel('running-1'), or wait for its end."
        ),
        1,
    ),
    (
        ["retry", "--state", "running", "--yes"],
        (
            "state is 'running', and only jobs that have ended are retried together."
            ' Give state="dead" or state="done", or retry a job by its id.'
        ),
        2,
    ),
    (
        ["retry", "--all"],
        "Retry 1 job? There is nobody to ask here. Say --yes.",
        2,
    ),
    (["explain"], "Missing argument 'ID'.", 2),
    (
        ["explain", "nope"],
        "There is no job nope. It was deleted, or pruned some time after its end.",
        1,
    ),
    (["cancel"], "Missing argument 'ID...'.", 2),
    (
        ["cancel", "nope"],
        "There is no job nope. It was deleted, or pruned some time after its end.",
        1,
    ),
    (["delete", "--yes"], "Nothing says which jobs. Give their ids, or a filter.", 2),
    (
        ["delete", "nope"],
        "There is no job nope. It was deleted, or pruned some time after its end.",
        1,
    ),
    (
        ["delete", "running-1"],
        (
            "Job running-1 is running, and cannot be deleted."
            " Cancel it with jobs.cancel('running-1'), or wait for its end."
        ),
        1,
    ),
    (
        ["delete", "--state", "running", "--yes"],
        "Running jobs are not deleted. Cancel them first.",
        1,
    ),
    (
        ["prune", "--keep-dead", "ages"],
        f"Invalid value for '--keep-dead': 'ages' is no duration. {SPAN}",
        2,
    ),
    (["enqueue"], "Missing argument 'NAME'.", 2),
    (
        ["enqueue", "shop.add", "{a: 1}"],
        (
            "Invalid value for '[JSON]': This is not JSON: Expecting property name enclosed in"
            f" double quotes: line 1 column 2 (char 1). {QUOTE}"
        ),
        2,
    ),
    (
        ["enqueue", "shop.add", '{"a": NaN}'],
        f"Invalid value for '[JSON]': This is not JSON: NaN is no JSON number. {QUOTE}",
        2,
    ),
    (
        ["enqueue", "other.task", "[" * 100_000],
        "Invalid value for '[JSON]': The JSON has too many levels.",
        2,
    ),
    (
        ["enqueue", "other.task", '"\\ud800"'],
        (
            "args holds a lone surrogate, '\\ud800'. It is not text: pass"
            ' value.encode("utf-8", "surrogatepass").'
        ),
        1,
    ),
    (
        ["enqueue", "shop.add", '{"c": 1}'],
        (
            "The task shop.add does not take these arguments:"
            " missing a required argument: 'a'. It takes a, b."
        ),
        1,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--wait", "soon"],
        f"Invalid value for '--wait': 'soon' is no duration. {SPAN}",
        2,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--at", "2030-01-31T09:00"],
        (
            "Invalid value for '--at': '2030-01-31T09:00' names no moment without a time zone."
            " Add Z for UTC, or +02:00."
        ),
        2,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--at", "tomorrow"],
        "Invalid value for '--at': 'tomorrow' is no moment. Give one like 2030-01-31T09:00Z.",
        2,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--wait", "1m", "--at", "2030-01-31T09:00Z"],
        "--wait and --at are both given. Give one of them.",
        2,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--priority", "101"],
        "Invalid value for '--priority': 101 is not in the range -100<=x<=100.",
        2,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--unique", "batch:1"],
        (
            "unique is 'batch:1', and keys that begin so are the queue's own."
            " Begin it with the task's name."
        ),
        1,
    ),
    (
        ["enqueue", "shop.add", '{"a": 1}', "--unique", "taken", "--on-conflict", "raise"],
        (
            "The unique key 'taken' is held by job running-1 of the task shop.add, which is"
            ' running. Use on_conflict="return" to be handed that job.'
        ),
        1,
    ),
    (
        ["perform", "shop.ad"],
        "No task is named 'shop.ad'. Did you mean 'shop.add'?",
        1,
    ),
    (
        ["perform", "shop.add", '{"a": 1}', "--wait", "1m"],
        "No such option '--wait'.",
        2,
    ),
    (
        ["worker", "--threads", "0"],
        "Invalid value for '-t' / '--threads': 0 is not in the range 1<=x<=256.",
        2,
    ),
    (
        ["worker", "--queues", "high,,low"],
        f"Invalid value for '-q' / '--queues': The list[1] is empty. {NAME}",
        2,
    ),
    (["worker", "--json"], "--json is for --once: another worker's output has no end.", 2),
    (
        ["uninstall"],
        (
            "Drop henri_jobs and what belongs to it, with every job?"
            " There is nobody to ask here. Say --yes."
        ),
        2,
    ),
]
