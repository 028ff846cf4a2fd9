"""A replica set that loses its primary under a whole worker and those who enqueue (W10, Q11)."""

from __future__ import annotations

import itertools
import threading
import time
import typing as t

import pytest
from pymongo.errors import PyMongoError

import fleet_app
from flask_henri_jobs import StoreUnavailable
from mongod import Deployment, wait_until, wired_members
from working import DOWN, UP, fleet, worker_of

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flask import Flask
    from pymongo.collection import Collection

    from proxy import Proxy

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]
Wired: t.TypeAlias = tuple[Deployment, list["Proxy"]]
Loss: t.TypeAlias = "Callable[[Deployment, int, Proxy], object]"

SLOW, SECONDS = 4, 1.5
MOST_UNTIL_FIRST = 10.0
"""Seconds from the moment that the database takes writes until a job is done."""


@pytest.fixture
def wired(has_mongod: None) -> Iterator[Wired]:
    with wired_members() as wired:
        yield wired


class Enqueuing:
    """Somebody who enqueues all the while, and keeps what was acknowledged."""

    def __init__(self, app: Flask) -> None:
        self.acknowledged: list[str] = []
        self.refused = 0
        self._app = app
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with self._app.app_context():
            for n in itertools.count():
                try:
                    self.acknowledged.append(fleet_app.quick.delay(n).id)
                except StoreUnavailable:
                    self.refused += 1
                if self._ended.wait(0.005):
                    return


def steps_down(deployment: Deployment, primary: int, _wire: Proxy) -> None:
    deployment.members[primary].command("replSetStepDown", 20, secondaryCatchUpPeriodSecs=5)


def is_killed(deployment: Deployment, primary: int, _wire: Proxy) -> None:
    deployment.members[primary].kill()


def is_cut_off(_deployment: Deployment, _primary: int, wire: Proxy) -> None:
    wire.cut()


def falls_silent(_deployment: Deployment, _primary: int, wire: Proxy) -> None:
    wire.swallow()


@pytest.mark.parametrize("loss", [steps_down, is_killed, is_cut_off, falls_silent])
def test_the_primary(wired: Wired, tmp_path: Path, loss: Loss) -> None:
    """W10, Q11: The primary steps down, is killed, is cut off, or swallows its replies. What was
    acknowledged is done, at the first attempt and by the same process; a job is done at most ten
    seconds after there is another primary. At most one line tells of the outage, and one of its
    end."""
    deployment, wires = wired
    output = tmp_path / "output"
    with (
        fleet(deployment.uri, "failover") as app,
        worker_of(deployment.uri, "failover", output, enqueue_timeout="3s"),
    ):
        client = fleet_app.jobs.client
        stored: Collection[Document] = client["failover"]["henri_jobs"]
        fleet_app.silent.delay_many([{"seconds": SECONDS}] * SLOW)
        wait_until(lambda: stored.count_documents({"state": "running"}) >= SLOW, "the slow jobs")
        runners = client["failover"]["henri_jobs_runners"]
        wait_until(lambda: runners.count_documents({}) == 1, "the runner to be listed")
        (runner,) = runners.distinct("pid")
        with Enqueuing(app) as enqueuing:
            wait_until(lambda: stored.count_documents({"state": "done"}) > 50, "some quick ones")
            primary = deployment.members.index(deployment.primary)
            said_before = output.read_text()

            loss(deployment, primary, wires[primary])
            wait_until(lambda: has_other_primary(deployment, primary), "another primary")
            done, writable_at = done_now(stored), time.monotonic()
            wait_until(lambda: done_now(stored) > done, "a job to be done")
            until_first = time.monotonic() - writable_at
            wait_until(lambda: stored.count_documents({}) > done + 200, "more to be stored")
        wires[primary].mend()

        everything = set(enqueuing.acknowledged)
        wait_until(
            lambda: stored.count_documents({"state": {"$ne": "done"}}) == 0,
            f"all to be done; {output}",
        )
        # Where every question was put to the next primary in time, there is nothing to say.
        said = output.read_text().removeprefix(said_before).splitlines()
        print(
            f"{loss.__name__}: {len(everything)} acknowledged, {enqueuing.refused} refused,"
            f" the first done after {until_first:.1f} s, {len(said)} lines"
        )
        assert everything <= set(stored.distinct("_id"))
        assert stored.distinct("attempts") == [1]
        assert stored.distinct("history") == ["[]"]
        assert runners.distinct("pid") == [runner]
        assert until_first < MOST_UNTIL_FIRST
        assert [line[: len(DOWN)] for line in said] in ([], [DOWN, UP[: len(DOWN)]]), said


def has_other_primary(deployment: Deployment, former: int) -> bool:
    others = [one for n, one in enumerate(deployment.members) if n != former]
    return any(one.hello()["isWritablePrimary"] for one in others)


def done_now(stored: Collection[Document]) -> int:
    try:
        return stored.count_documents({"state": "done"})
    except PyMongoError:
        return -1
