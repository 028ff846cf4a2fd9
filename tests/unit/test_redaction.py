"""What of a job is not for every eye."""

from __future__ import annotations

import json
import typing as t

import pytest

from flask_henri_jobs.codec import encode
from flask_henri_jobs.job import Job
from flask_henri_jobs.redaction import REDACTED, concealed_args, concealed_row, marked


def row(redact: list[str] | None = None, args: t.Any = None, **fields: t.Any) -> dict[str, t.Any]:
    made = {"_id": "a", "name": "mail", "args": encode(args), **fields}
    return made if redact is None else made | {"redact": redact}


def test_nothing_to_redact() -> None:
    """A job without redacted arguments is shown as it is stored."""
    plain = row(args={"email": "ann@example.com"})

    assert concealed_row(plain) is plain
    assert Job(plain).concealed().args == {"email": "ann@example.com"}


def test_arguments() -> None:
    """A redacted argument has no value where a job is shown; the others, and the job, stay."""
    given = {"email": "ann@example.com", "order": 42, "card": {"number": 4111111111111111}}
    job = Job(row(["email", "card", "absent"], given))

    assert job.concealed().args == {"email": REDACTED, "order": 42, "card": REDACTED}
    assert job.args == given


@pytest.mark.parametrize("args", [None, 7, "ann@example.com", ["ann@example.com"]])
def test_arguments_without_names(args: t.Any) -> None:
    """What henri stores that is no object has no names that could be redacted."""
    assert Job(row(["email"], args)).concealed().args == args
    assert concealed_args(args, ["email"]) == args


SECRETS: list[t.Any] = [
    "ann@example.com",
    'ann "the \\ one"\nÄ',
    4111111111111111,
    ["first", "ann@example.com"],
    {"at": {"home": "ann@example.com"}},
]


@pytest.mark.parametrize("secret", SECRETS)
def test_texts(secret: t.Any) -> None:
    """Whatever a task says of a redacted value, and a key that is made of it, does not show it."""
    said = json.dumps(secret, ensure_ascii=False) if isinstance(secret, dict | list) else secret
    texts = f"no mailbox for {said} or {said!r}, said {said}"
    history = [{"at": 1, "attempt": 1, "duration": 1, "message": texts, "runner": "h"}]
    job = Job(
        row(
            ["email"],
            {"email": secret},
            state="dead",
            error_message=texts,
            error_stack=texts,
            history=json.dumps(history),
            result=encode({"to": texts}),
            unique_key=f"mail:{said}",
            concurrency_key=f"mail:{said}",
            tags=[f"to:{said}"],
            progress={"done": 1, "message": texts, "at": 1},
            logs={"lines": [{"at": 1, "attempt": 1, "level": "", "logger": "", "message": texts}]},
            run_at=1,
            created_at=1,
        )
    )

    shown = json.dumps(job.to_dict(), ensure_ascii=False)

    for hidden in ("ann@example.com", "the \\", "4111111111111111"):
        assert hidden not in shown
    assert shown.count(REDACTED) >= 8
    assert job.error == texts


def test_short_values() -> None:
    """A value of three characters is in too many words to be looked for, and is no argument."""
    job = Job(row(["pin"], {"pin": "123"}, error_message="12345 is wrong"))

    assert job.concealed().error == "12345 is wrong"
    assert job.concealed().args == {"pin": REDACTED}


def test_marked() -> None:
    """A job that another application enqueued is given the names, where it has none."""
    theirs = row(args={"email": "ann@example.com"})

    assert marked(theirs, ()) is theirs
    assert marked(theirs, ("email",))["redact"] == ["email"]
    assert marked(row(["order"]), ("email",))["redact"] == ["order"]
    assert "redact" not in theirs
