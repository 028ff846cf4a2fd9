"""What a MongoDB connection string says, and how to show one without its secrets.

The driver reads connection strings too, but only the store knows the driver, and the driver's own
complaints may quote what they complain about.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from .checks import checked_text
from .errors import ConfigError

SCHEMES = ("mongodb://", "mongodb+srv://")

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s]+)(:\d{1,5})?", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SECRET_OPTION = re.compile(
    r"([^?&;=]*(?:pass|secret|token|mechanismproperties)[^&;=]*=)[^&]*", re.IGNORECASE
)


def mask_uri(uri: str) -> str:
    """Return a connection string with ``***`` for its password and for the secrets in its options.

    It need not be well formed: a password whose ``@``, ``:``, ``/`` or ``?`` is not escaped is
    hidden as well, if need be together with a part that is no secret.
    """
    scheme = match[0] if (match := _SCHEME.match(uri)) else ""
    credentials, at, place = uri.removeprefix(scheme).rpartition("@")
    user, colon, _ = credentials.partition(":")
    masked = f"{scheme}{user}{colon and ':***'}{at}{place}"
    return _SECRET_OPTION.sub(r"\1***", masked)


def checked_uri(value: object, where: str) -> str:
    """Return a connection string of the right form. No error quotes it: a password is in it.

    :raises ConfigError: It has no hosts, or a part that is not escaped as it must be.
    """
    allowed = 'Give "mongodb://host:27017/database", "mongodb+srv://..." or "disk".'
    uri = checked_text(value, where, hint=allowed)
    scheme = next((scheme for scheme in SCHEMES if uri.startswith(scheme)), None)
    if scheme is None:
        raise ConfigError(
            f"{where} does not begin with mongodb:// or mongodb+srv://.", hint=allowed
        )
    before_options = uri.removeprefix(scheme).partition("?")[0]
    credentials, _, place = before_options.rpartition("@")
    if re.search("[@/:]", credentials.replace(":", "", 1)) or _BAD_ESCAPE.search(credentials):
        raise ConfigError(
            f"{where} has a user name or password with a character that must be escaped.",
            hint="Write both as urllib.parse.quote_plus() returns them.",
        )
    hosts = place.partition("/")[0]
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ConfigError(
            f"{where} has no host, or one that is not of the form host:port.",
            hint=f"{allowed} A '?' in a password is written %3F.",
        )
    return uri


def database_in(uri: str) -> str | None:
    """Return the database that a well-formed connection string names, or None."""
    place = uri.partition("://")[2].partition("?")[0].rpartition("@")[2]
    return unquote(place.partition("/")[2]).partition(".")[0] or None
