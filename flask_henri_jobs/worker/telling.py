"""Sending signals from a runner's own threads, which nothing of the application's may end (W12)."""

from __future__ import annotations

import typing as t

from ..log import logger

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask


def tell(app: Flask, send: Callable[[Flask], None]) -> None:
    """Have signals sent in an app context of their own. What its ends raise is logged.

    :param send: Sends them, by ``emit_safely``.
    """
    try:
        with app.app_context():
            send(app)
    except BaseException:
        # Who listens to the context, and what is called at its end, is the application's.
        logger.exception("The app context of a signal failed.")
