"""A small application for the tests of the commands: ``flask --app shop jobs ...``."""

from __future__ import annotations

import typing as t

from flask import Flask

from flask_henri_jobs import Discard, HenriJobs, Retry

jobs = HenriJobs()


class NoSuchShelf(Exception):
    """What a task of this shop raises."""


def create_app(**config: t.Any) -> Flask:
    """Return the shop, set up from the environment and from what is given."""
    app = Flask("shop")
    app.config.from_prefixed_env()
    app.config.update(config)
    jobs.init_app(app)
    return app


@jobs.task(name="shop.add")
def add(a: int, b: int = 0) -> int:
    return a + b


@jobs.task(name="shop.fail", max_attempts=1)
def fail(message: str = "no such shelf") -> None:
    raise NoSuchShelf(message)


@jobs.task(name="shop.flaky", backoff={"base": "1h"})
def flaky() -> None:
    raise Retry("not yet")


@jobs.task(name="shop.discard")
def discard() -> None:
    raise Discard("nobody wants it")
