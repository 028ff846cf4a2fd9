"""How signals are sent."""

from __future__ import annotations

import logging
import typing as t

import pytest
from flask import Flask

from flask_henri_jobs import signals
from flask_henri_jobs.log import logger
from flask_henri_jobs.signals import emit


@pytest.fixture
def app() -> Flask:
    return Flask("told")


def test_receiver_that_raises(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """W12: A receiver that raises is logged, and the others still hear the signal."""
    heard: list[t.Any] = []

    def broken(_: Flask, **facts: t.Any) -> None:
        raise ValueError("broken")

    def sound(sender: Flask, **facts: t.Any) -> None:
        heard.append((sender, facts))

    for receiver in (broken, sound):
        signals.worker_started.connect(receiver, app)
    emit(signals.worker_started, app, runner="me")

    assert heard == [(app, {"runner": "me"})]
    assert "A receiver of 'worker-started' failed." in caplog.text
    assert "ValueError: broken" in caplog.text


def test_other_apps_receivers(app: Flask) -> None:
    """A receiver that is connected for one app hears nothing of another."""
    heard: list[Flask] = []

    def receiver(sender: Flask, **facts: t.Any) -> None:
        heard.append(sender)

    signals.worker_started.connect(receiver, app)
    emit(signals.worker_started, Flask("other"), runner="me")

    assert heard == []


class Broken(logging.Handler):
    """A log handler whose authors forgot that it may fail."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError(f"No room for {record.msg}.")


def test_log_handler_that_raises(app: Flask) -> None:
    """W12: A log handler that raises, here while a receiver's error is logged, changes nothing."""
    heard: list[str] = []

    def broken(_: Flask, **facts: t.Any) -> None:
        raise ValueError("broken")

    def sound(_: Flask, **facts: t.Any) -> None:
        heard.append("sound")

    for receiver in (broken, sound):
        signals.worker_started.connect(receiver, app)
    handler = Broken()
    logger.logger.addHandler(handler)
    try:
        emit(signals.worker_started, app, runner="me")
    finally:
        logger.logger.removeHandler(handler)

    assert heard == ["sound"]


def test_log_names_the_line_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    """A record of the package's logger says where it was written."""
    logger.warning("Here, with %s.", "a value")

    assert caplog.records[0].filename == "test_signals.py"
    assert caplog.records[0].getMessage() == "Here, with a value."
