"""One soak from its beginning to its end, and what came of it."""

from __future__ import annotations

import os
import time
import typing as t
from dataclasses import dataclass

from .app import create_app, jobs
from .fleet import PATHS, Killer, Worker, enqueuing, workers
from .invariants import Acknowledged, Queue
from .probe import Growth, Probe

if t.TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from mongod import Deployment

DATABASE = "soak"
POOLS = "maxIdleTimeMS=1000"
"""The driver's pools keep the connections of their busiest moment, which may be any; so they close
what has not been used for a while, and what is left open is what somebody holds on to."""

WARM_SECONDS = 5.0
SETTLING_SECONDS = 90.0
"""How long the workers have to end what waits when nothing more comes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was seen.

    :param growths: What each long-lived process held, and by how much that has grown.
    :param lost: The processes that did not live to the end.
    :param counts: What happened, and how often.
    :param violations: By each promise what breaks it.
    """

    growths: list[Growth]
    lost: list[str]
    counts: dict[str, int]
    violations: dict[str, list[str]]

    @property
    def all_is_well(self) -> bool:
        """Whether every bound and every promise is kept."""
        is_bounded = all(growth.is_kept for growth in self.growths)
        return is_bounded and not self.lost and not any(self.violations.values())


def soak(deployment: Deployment, seconds: float, folder: Path) -> Report:
    """Run the load for so long on a database, with kills, and see what came of it.

    :param folder: Where what is seen goes: each second's figures, what the processes say, and,
        where a promise is broken, every job as it is stored.
    """
    settings = {
        "HENRI_JOBS_URI": f"{deployment.uri}&{POOLS}",
        "HENRI_JOBS_DATABASE": DATABASE,
        "HENRI_JOBS_STUCK_AFTER": "15s",
    }
    environment = {**os.environ, **{f"FLASK_{name}": value for name, value in settings.items()}}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, PATHS))
    app = create_app(**settings)
    with app.app_context():
        jobs.install()
        try:
            return _soaked(environment, seconds, folder)
        finally:
            jobs.state.close()


def _soaked(environment: dict[str, str], seconds: float, folder: Path) -> Report:
    ledger = folder / "ledger"
    with (
        workers(environment, folder, "steady", "struck", "mortal") as (steady, struck, mortal),
        enqueuing(environment, folder, ledger) as load,
    ):
        probe = Probe(_long_lived(steady, struck, load))
        time.sleep(min(WARM_SECONDS, seconds / 4))
        with Killer(struck, mortal) as killer, probe:
            # Without kills it proves nothing.
            killer.has_failed.wait(seconds)
        load.terminate()
        load.wait(SETTLING_SECONDS)
        _settle()
        for worker in (steady, struck, mortal):
            worker.stop()
    probe.write(folder / "samples.csv")
    return _report(probe, killer, Queue(Acknowledged.read(ledger)), folder)


def _long_lived(steady: Worker, struck: Worker, load: subprocess.Popen[bytes]) -> dict[str, int]:
    """Return the processes that are there from the beginning to the end."""
    one, other = steady.wait_for_runners()
    struck.wait_for_runners()
    return {
        "supervisor whose runners are killed": struck.process.pid,
        "supervisor whose runners are not": steady.process.pid,
        "a runner of that one": one,
        "another runner of it": other,
        "the application that enqueues": load.pid,
    }


def _settle() -> None:
    """Return when nothing runs and nothing is due, or when that has taken too long."""
    live = {"state": {"$in": ["pending", "running"]}, "name": {"$ne": "far"}}
    found = jobs.database
    deadline = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < deadline:
        left = [
            found["henri_jobs"].find_one(live),
            found["henri_jobs_batches"].find_one({"finished_at": None}),
            found["henri_jobs_limits"].find_one(),
        ]
        if not any(left):
            return
        time.sleep(0.5)


def _report(probe: Probe, killer: Killer, queue: Queue, folder: Path) -> Report:
    report = Report(
        growths=probe.growths(),
        lost=[*probe.lost, *killer.failed],
        counts={**killer.counts, **queue.figures()},
        violations=queue.violations(),
    )
    if any(report.violations.values()):
        (folder / "jobs.json").write_text(queue.as_json())
    return report
