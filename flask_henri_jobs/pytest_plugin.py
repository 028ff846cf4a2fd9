"""Fixtures for the tests of an application.

Say ``pytest_plugins = ["flask_henri_jobs.pytest_plugin"]`` in the ``conftest.py`` beside your
``pyproject.toml``. They find the app through a fixture ``app`` of your own.
"""

from __future__ import annotations

import typing as t

import pytest

from .testing import FrozenClock, ManualJobs, inline, manual

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from .extension import HenriJobs


@pytest.fixture
def jobs_inline(app: Flask) -> Iterator[HenriJobs]:
    """Each job is performed at once, where it is enqueued."""
    jobs = _extension_of(app)
    with inline(jobs, app):
        yield jobs


@pytest.fixture
def jobs_manual(app: Flask) -> Iterator[ManualJobs]:
    """Jobs are kept until the test drains them, apart from the app's real ones."""
    with manual(_extension_of(app), app) as kept:
        yield kept


@pytest.fixture
def jobs_clock(jobs_manual: ManualJobs) -> Iterator[FrozenClock]:
    """The queue's time stands still until the test moves it."""
    with jobs_manual.frozen_clock() as clock:
        yield clock


def _extension_of(app: Flask) -> HenriJobs:
    if "henri_jobs" not in app.extensions:
        pytest.fail(
            f"The app {app.name!r} has no HenriJobs: call jobs.init_app(app).", pytrace=False
        )
    return t.cast("HenriJobs", app.extensions["henri_jobs"])
