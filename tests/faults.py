"""Commands that fail on the server, for one client only."""

from __future__ import annotations

import contextlib
import typing as t

from pymongo import MongoClient

Document = dict[str, t.Any]

APP_NAME = "henri-jobs-faults"

LOST_REPLY: Document = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
"""The command takes effect, and is not acknowledged."""

CLOSED: Document = {"closeConnection": True}
"""The connection is closed, and the command takes no effect."""


@contextlib.contextmanager
def faulty_client(uri: str) -> t.Iterator[MongoClient[Document]]:
    """Return a client that :func:`failing` has power over."""
    with MongoClient[Document](uri, appname=APP_NAME) as client:
        yield client


@contextlib.contextmanager
def failing(
    client: MongoClient[t.Any], *commands: str, times: int = 0, after: int = 0, **how: t.Any
) -> t.Iterator[None]:
    """Let commands of a faulty client fail so many times within the block.

    :param after: Let so many of them through first, and fail all that come then.
    """
    data = {"failCommands": list(commands), "appName": APP_NAME, **how}
    mode = {"times": times} if times else {"skip": after}
    client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")
