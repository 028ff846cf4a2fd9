"""Is a value of the kind that is due? One set of words for settings, options and filters.

Each check returns the value, in its exact type, or raises ``error``: :class:`ConfigError` unless
the caller names another class. ``where`` is how the user calls the value (``HENRI_JOBS_THREADS``,
``priority``), and begins the message.
"""

from __future__ import annotations

import contextlib
import typing as t
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from .durations import to_duration, to_text
from .errors import ConfigError, HenriJobsError

MOST_BYTES_OF_A_NAME = 512


def checked_text(
    value: object, where: str, *, hint: str = "", error: type[HenriJobsError] = ConfigError
) -> str:
    """Return a value that is text; a mapping, a list or None in its place is refused (Q9)."""
    if not isinstance(value, str):
        raise error(f"{where} is {kind_of(value)}, and text is due.", hint=hint)
    # An enum's member that is also a str must not be stored, or shown, as the enum.
    return str.__str__(value)


def checked_name(
    value: object,
    where: str,
    most_bytes: int = MOST_BYTES_OF_A_NAME,
    *,
    error: type[HenriJobsError] = ConfigError,
) -> str:
    """Return the name of a task, queue, tenant, limit or schedule, or a key.

    It is text of 1 to ``most_bytes`` bytes in UTF-8, with no control characters in it.
    """
    hint = f"Give text of 1 to {most_bytes} bytes without control characters."
    name = checked_text(value, where, hint=hint, error=error)
    if not name:
        raise error(f"{where} is empty.", hint=hint)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise error(f"{where} is {shown(name)}.", hint=hint)
    if (size := len(name.encode())) > most_bytes:
        raise error(f"{where} is {size} bytes long.", hint=hint)
    return name


def checked_names(
    value: object, where: str, *, error: type[HenriJobsError] = ConfigError
) -> tuple[str, ...]:
    """Return at least one name, in the order given and each once.

    :param value: A list or tuple of names, or text with commas between them.
    """
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise error(
            f"{where} is {kind_of(value)}, and names are due.",
            hint='Give a list of names, or text such as "high,low".',
        )
    if not names:
        raise error(f"{where} names nothing.", hint="Give at least one name, or leave it out.")
    trimmed = [name.strip() if isinstance(name, str) else name for name in names]
    read = (checked_name(name, f"{where}[{at}]", error=error) for at, name in enumerate(trimmed))
    return tuple(dict.fromkeys(read))


def checked_int(
    value: object, where: str, low: int, high: int, *, error: type[HenriJobsError] = ConfigError
) -> int:
    """Return a whole number from ``low`` to ``high``. ``True`` is no number."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise error(f"{where} is {shown(value)}.", hint=f"Give a whole number, {low} to {high}.")
    return int(value)


def checked_number(
    value: object, where: str, low: float, high: float, *, error: type[HenriJobsError] = ConfigError
) -> float:
    """Return a number from ``low`` to ``high``. ``True`` and NaN are no numbers."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise error(f"{where} is {shown(value)}.", hint=f"Give a number, {low:g} to {high:g}.")
    return float(value)


def checked_bool(value: object, where: str, *, error: type[HenriJobsError] = ConfigError) -> bool:
    """Return a value that is true or false, and not merely truthy."""
    if not isinstance(value, bool):
        raise error(f"{where} is {shown(value)}.", hint="Give true or false.")
    return value


def checked_choice(
    value: object,
    where: str,
    choices: Iterable[str],
    *,
    error: type[HenriJobsError] = ConfigError,
) -> str:
    """Return a value that is one of the words in ``choices``."""
    words = list(choices)
    word = checked_text(value, where, hint=f"Give {listed(words, 'or')}.", error=error)
    if word not in words:
        raise error(f"{where} is {shown(word)}.", hint=f"Give {listed(words, 'or')}.")
    return word


def checked_duration(
    value: object, where: str, low: timedelta = timedelta(0), high: timedelta | None = None
) -> timedelta:
    """Return a duration from ``low`` to ``high``.

    :raises ConfigError: It is no duration, or out of bounds.
    """
    duration = to_duration(value, where)
    if duration < low or (high is not None and duration > high):
        bounds = f"{to_text(low)} or more" if high is None else f"{to_text(low)} to {to_text(high)}"
        raise ConfigError(f"{where} is {to_text(duration)}.", hint=f"Give {bounds}.")
    return duration


def checked_moment(
    value: object, where: str, *, error: type[HenriJobsError] = ConfigError
) -> datetime:
    """Return a datetime that knows its time zone; a naive one is refused (Q9)."""
    if not isinstance(value, datetime):
        raise error(
            f"{where} is {kind_of(value)}, and a moment is due.",
            hint="Give a datetime with a time zone.",
        )
    if value.utcoffset() is None:
        raise error(
            f"{where} is {value.isoformat()}, which names no moment without a time zone.",
            hint="Say datetime.now(UTC) rather than datetime.now(), or .replace(tzinfo=...).",
        )
    return value


def checked_mapping(
    value: object,
    where: str,
    known: Iterable[str] | None = None,
    *,
    error: type[HenriJobsError] = ConfigError,
) -> dict[str, object]:
    """Return a copy of a mapping whose keys are text and, where ``known`` is given, all known."""
    if not isinstance(value, Mapping):
        raise error(f"{where} is {kind_of(value)}, and a mapping is due.")
    for key in value:
        if not isinstance(key, str):
            raise error(f"{where} has the key {shown(key)}.", hint="Give keys that are text.")
        if known is not None and key not in (keys := sorted(known)):
            raise error(f"{where} has the unknown key {key!r}.", hint=did_you_mean(key, keys))
    return dict(value)


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the hint for an unknown name: the one that is meant, or else all there are.

    :param prefix: Stands before each name in the hint.
    """
    # Compared without the prefix, which would make any two names look alike.
    names = {name.casefold(): prefix + name for name in known}
    likely = get_close_matches(name.casefold(), names, n=1)
    if likely:
        return f"Did you mean {names[likely[0]]!r}?"
    return f"Known: {listed(names.values(), 'and')}."


def kind_of(value: object) -> str:
    """Return what a value is, with its article: ``a dict``, ``an int``, ``None``."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def is_unicode(text: str) -> bool:
    """Whether text can be stored: a lone surrogate stands for no character."""
    return text.isascii() or not any(unicodedata.category(one) == "Cs" for one in text)


def shown(value: object) -> str:
    """Return a value as a message shows it, cut to 80 characters."""
    return f"{value!r:.80}"


def listed(words: Iterable[str], last: t.Literal["and", "or"]) -> str:
    """Return the words in quotes: ``'a', 'b' or 'c'``."""
    *before, final = [repr(word) for word in words]
    return f"{', '.join(before)} {last} {final}" if before else final


class SeveralMistakes(ConfigError):
    """More than one thing is wrong; the message has a line for each.

    :param mistakes: The error that each would have been, alone.
    """

    def __init__(self, mistakes: Sequence[ConfigError]) -> None:
        super().__init__("\n".join([f"{len(mistakes)} settings are wrong:", *map(str, mistakes)]))
        self.mistakes = mistakes


class Mistakes:
    """Collects what is wrong, so that all of it can be told at once."""

    def __init__(self) -> None:
        self._found: list[ConfigError] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Keep the :class:`ConfigError` that the block raises, and go on after it."""
        try:
            yield
        except SeveralMistakes as several:
            self._found += several.mistakes
        except ConfigError as mistake:
            self._found.append(mistake)

    def raise_any(self) -> None:
        """Raise what was found, as itself or as :class:`SeveralMistakes`; return if nothing was."""
        if len(self._found) > 1:
            raise SeveralMistakes(self._found)
        if self._found:
            raise self._found[0]
