"""What of a job is not for every eye: the arguments that its task was declared to ``redact``.

Their names are stored with the job, in its field ``redact``, which is absent when unused. So who
shows a job conceals them, whether it knows the task or not.
"""

from __future__ import annotations

import json
import typing as t

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REDACTED = "[redacted]"

SHORTEST = 4
"""Of a value that is looked for in texts: a shorter one is in all of them."""

_TEXTS = (
    *("error_message", "error_stack", "unique_key", "concurrency_key"),
    *("tags", "progress", "logs", "result_error"),
)
_JSON_TEXTS = ("history", "result")


def concealed_row(row: Mapping[str, t.Any]) -> Mapping[str, t.Any]:
    """Return a job's row without its redacted arguments, nor their values in its other fields.

    What a task raises, returns or logs may tell of its arguments, and so may a key that is made
    of them.
    """
    names = row.get("redact")
    if not names:
        return row
    args = json.loads(row.get("args") or "null")
    secrets = _secrets_of(args, names)
    shown = {name: _without(row[name], secrets) for name in _TEXTS if row.get(name)}
    for name in _JSON_TEXTS:
        if row.get(name):
            shown[name] = json.dumps(_without(json.loads(row[name]), secrets))
    return {**row, **shown, "args": json.dumps(concealed_args(args, names))}


def concealed_args(args: t.Any, names: Sequence[str]) -> t.Any:
    """Return arguments as JSON has them, without the values of those with these names."""
    if not isinstance(args, dict):
        return args
    return {name: REDACTED if name in names else value for name, value in args.items()}


def marked(row: Mapping[str, t.Any], names: Sequence[str]) -> Mapping[str, t.Any]:
    """Return the row of a job with the names of what is redacted; henri stores none of them."""
    return {**row, "redact": list(names)} if names and "redact" not in row else row


def _secrets_of(args: t.Any, names: Sequence[str]) -> list[str]:
    """Return how redacted values read in a text, the longest first."""
    if not isinstance(args, dict):
        return []
    found = {text for name in names for text in _texts_in(args.get(name))}
    # An error quotes a value as often as not, which spells some characters out.
    found |= {repr(text)[1:-1] for text in found}
    return sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True)


def _texts_in(value: t.Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case bool():
            pass
        case int() | float():
            yield str(value)
        case dict():
            for item in value.values():
                yield from _texts_in(item)
        case list():
            for item in value:
                yield from _texts_in(item)


def _without(value: t.Any, secrets: Sequence[str]) -> t.Any:
    """Return a text, or what holds texts, without secrets."""
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, REDACTED)
            return value
        case dict():
            return {name: _without(item, secrets) for name, item in value.items()}
        case list():
            return [_without(item, secrets) for item in value]
        case _:
            return value
