"""``docs/reference/configuration.md`` says what the code does."""

from __future__ import annotations

import ast
import re
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest

from flask_henri_jobs.backoff import Backoff
from flask_henri_jobs.durations import to_text
from flask_henri_jobs.setting_readers import READERS
from flask_henri_jobs.settings import PREFIX, Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
ENTRY = re.compile(
    r"^### (HENRI_JOBS_\w+)\n\n- \*\*Type:\*\* .+\n- \*\*Default:\*\* `(.+)`\n\n(?=\S)",
    re.MULTILINE,
)


def documented() -> dict[str, str]:
    """Return the default that the page gives for each setting, by the setting's key."""
    return dict(ENTRY.findall(PAGE.read_text()))


def as_written(default: object) -> object:
    """Return a default in the form in which the page gives it."""
    match default:
        case timedelta():
            return to_text(default)
        case Backoff(base=base, factor=factor, max=longest, jitter=jitter):
            return {
                "base": to_text(base),
                "factor": factor,
                "max": to_text(longest),
                "jitter": jitter,
            }
        case tuple():
            return list(t.cast("tuple[str, ...]", default))
    return default


def test_every_setting_has_an_entry() -> None:
    """Each setting has an entry with type, default and text, and each entry is a setting."""
    headings = re.findall(r"^#+ (HENRI_JOBS_\w+)$", PAGE.read_text(), re.MULTILINE)

    assert sorted(headings) == sorted(PREFIX + name.upper() for name in READERS)
    assert sorted(documented()) == sorted(headings)


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"database"}))
def test_defaults_are_the_documented_ones(name: str) -> None:
    """The default that the page gives is the one that holds."""
    default = as_written(getattr(Settings(), name))

    assert ast.literal_eval(documented()[PREFIX + name.upper()]) == default
