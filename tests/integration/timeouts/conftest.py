"""An application whose jobs are performed in the test's own process, one run at a time."""

from __future__ import annotations

import socket
import typing as t

import pytest

from flask_henri_jobs.worker import attempts

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from flask_henri_jobs import HenriJobs, Job
    from integration.conftest import MakeApp


class Perform(t.Protocol):
    def __call__(self, job: Job, **how: t.Any) -> Job:
        """Perform what is due, and return a job as it is then."""


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(HENRI_JOBS_POLL_INTERVAL="50ms")


@pytest.fixture
def perform(app: Flask, jobs: HenriJobs) -> Perform:
    def perform(job: Job, **how: t.Any) -> Job:
        jobs.run_worker(once=True, **how)
        return job.refresh()

    return perform


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up what does not end after 0.2 s, not after 5; and tell it again after 0.05."""
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(attempts, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(attempts, "POLLING_SECONDS", 0.1)


class Silent:
    """A socket on which nothing arrives before the end."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.recv = self._ours.recv

    def end(self) -> None:
        """Let what waits go on."""
        self._theirs.close()

    def close(self) -> None:
        """Let what waits go on, and close both ends."""
        self.end()
        self._ours.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()
