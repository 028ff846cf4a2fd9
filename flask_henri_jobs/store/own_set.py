"""The replica set of one that the embedded server is, and its only user."""

from __future__ import annotations

import contextlib
import time
import typing as t

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure, OperationFailure

from ..errors import StoreUnavailable

SET_NAME = "henri_jobs"
USER = "henri_jobs"

AUTHENTICATION_FAILED = 18
ALREADY_INITIALIZED = 23

Document = dict[str, t.Any]


def uri_once_writable(port: int, key: str, deadline: float) -> str:
    """Return how to connect, once the server is its set's primary and knows its user.

    :raises PyMongoError: It does not answer, or not to this password.
    :raises StoreUnavailable: It answers, and is no primary at the deadline.
    """
    uri = f"mongodb://{USER}:{key}@127.0.0.1:{port}/?directConnection=true&authSource=admin"
    with _client(port, username="__system", password=key, authSource="local") as client:
        _configure(client, f"127.0.0.1:{port}")
        for _ in looks(deadline):
            if client.admin.command("hello")["isWritablePrimary"]:
                _admit(client, port, key)
                return uri
    raise StoreUnavailable(
        f"The embedded database on port {port} runs, but cannot be written to.", hint="Try again."
    )


def _configure(client: MongoClient[Document], address: str) -> None:
    """Make the server the only member of its set, under the address that it has now."""
    members = [{"_id": 0, "host": address}]
    try:
        # Tried first, since it waits for a server that still reads its configuration;
        # "replSetGetConfig" would say that there is none.
        client.admin.command("replSetInitiate", {"_id": SET_NAME, "members": members})
    except OperationFailure as error:
        if error.code != ALREADY_INITIALIZED:
            raise
        config = client.admin.command("replSetGetConfig")["config"]
        if config["members"][0]["host"] != address:
            # The last starter was killed before it had told the server: it is no member of its
            # own set, and only force makes it one.
            config |= {"members": members, "version": config["version"] + 1}
            client.admin.command("replSetReconfig", config, force=True)


def _admit(client: MongoClient[Document], port: int, key: str) -> None:
    """See that the password is the user's: it may be new, or its file may be."""
    try:
        with _client(port, username=USER, password=key, authSource="admin") as user:
            user.admin.command("ping")
    except OperationFailure as error:
        if error.code != AUTHENTICATION_FAILED:
            raise
        users = client.admin.command("usersInfo", USER)["users"]
        command = "updateUser" if users else "createUser"
        client.admin.command(command, USER, pwd=key, roles=["root"])


def move(port: int, key: str) -> None:
    """Write a new address into the set's configuration of a server that runs alone, and end it."""
    host = {"members.0.host": f"127.0.0.1:{port}"}
    with _client(port, username="__system", password=key, authSource="local") as client:
        client.local["system.replset"].update_one(
            {"_id": SET_NAME}, {"$set": host, "$inc": {"version": 1}}
        )
        with contextlib.suppress(ConnectionFailure):  # it answers by hanging up
            client.admin.command("shutdown")


def _client(port: int, **credentials: t.Any) -> MongoClient[Document]:
    # "__system" is the server's own user; its password is the key file.
    return MongoClient(
        "127.0.0.1",
        port,
        directConnection=True,
        authMechanism="SCRAM-SHA-256",
        serverSelectionTimeoutMS=2000,
        connectTimeoutMS=2000,
        socketTimeoutMS=5000,
        **credentials,
    )


def looks(deadline: float) -> t.Iterator[None]:
    """Yield every 20 ms until the deadline."""
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
