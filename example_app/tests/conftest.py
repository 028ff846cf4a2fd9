"""What a test of the example has at hand: the app, and the queue's own fixtures."""

from __future__ import annotations

import typing as t

import pytest

from example_app import create_app
from example_app.extensions import jobs

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """The app, on the embedded database, which stops by itself after the last test."""
    app = create_app(str(tmp_path_factory.mktemp("instance")), TESTING=True)
    yield app
    jobs.state_of(app).close()
