"""The package's logger, which never raises (W12)."""

from __future__ import annotations

import contextlib
import logging
import typing as t

if t.TYPE_CHECKING:
    from collections.abc import MutableMapping


class Log(logging.LoggerAdapter[logging.Logger]):
    """Writes to a logger. A handler that raises, which is the application's, changes nothing."""

    def log(self, level: int, msg: object, *args: t.Any, **kwargs: t.Any) -> None:
        """Write a record, as seen from the caller's line."""
        # A handler that raised in a runner's thread would end it, and with it what it had in hand.
        with contextlib.suppress(Exception):
            super().log(level, msg, *args, stacklevel=2, **kwargs)

    def process(
        self, msg: t.Any, kwargs: MutableMapping[str, t.Any]
    ) -> tuple[t.Any, MutableMapping[str, t.Any]]:
        """Leave a record's own fields as they are."""
        return msg, kwargs


logger = Log(logging.getLogger("flask_henri_jobs"))
