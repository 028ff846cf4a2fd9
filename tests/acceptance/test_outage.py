"""A database that goes away under a whole worker, and comes back (W10)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from flask import Flask

import fleet_app
from flask_henri_jobs.worker.supervisor import CLOSING_SECONDS, LEAVING_SECONDS
from mongod import PATIENCE, Deployment, replica_set, standalone, wait_until

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

TESTS = Path(fleet_app.__file__).parent

pytestmark = pytest.mark.faults

Document: t.TypeAlias = dict[str, t.Any]

SLOW, QUICK = 4, 400
DOWN, UP = "The database is away", "The database answers again."


@pytest.fixture
def deployment(request: pytest.FixtureRequest, has_mongod: None) -> Iterator[Deployment]:
    """A database that is the test's alone, to be stopped."""
    with request.param() as deployment:
        yield deployment


@pytest.fixture
def app(deployment: Deployment) -> Iterator[Flask]:
    app = Flask("fleet_app")
    app.config.update(HENRI_JOBS_URI=deployment.uri, HENRI_JOBS_DATABASE="outage")
    fleet_app.jobs.init_app(app)
    with app.app_context():
        fleet_app.jobs.install()
        yield app
    fleet_app.jobs.state_of(app).close()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def worker(deployment: Deployment, app: Flask, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``flask jobs worker`` with one runner of five threads."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, [TESTS, TESTS.parent])),
        "FLASK_HENRI_JOBS_URI": deployment.uri,
        "FLASK_HENRI_JOBS_DATABASE": "outage",
    }
    command = [sys.executable, "-m", "flask", "--app", "fleet_app", "jobs", "worker"]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    ("deployment", "how", "seconds"),
    [
        (replica_set, "stop", 3),
        (replica_set, "kill", 3),
        (standalone, "stop", 60),
        (standalone, "kill", 3),
    ],
    indirect=["deployment"],
)
def test_the_database_goes_and_comes_back(
    deployment: Deployment,
    worker: subprocess.Popen[bytes],
    output: Path,
    app: Flask,
    how: str,
    seconds: float,
) -> None:
    """W10: A database that is stopped or killed while jobs run costs no job and no attempt, buries
    none, and ends no process; one line says that it is gone, and one that it is back."""
    client = fleet_app.jobs.client
    stored: Collection[Document] = client["outage"]["henri_jobs"]
    fleet_app.silent.delay_many([{"seconds": 1.5}] * SLOW)
    wait_until(lambda: stored.count_documents({"state": "running"}) == SLOW, "the slow jobs")
    runners = client["outage"]["henri_jobs_runners"]
    # Its line is written beside its first claim.
    wait_until(lambda: runners.count_documents({}) == 1, "the runner's line")
    (runner,) = runners.distinct("pid")
    fleet_app.quick.delay_many([{"n": n} for n in range(QUICK)])
    wait_until(lambda: stored.count_documents({"state": "done"}) > 0, "some of the quick ones")

    said_before = output.read_text()
    getattr(deployment, how)()
    wait_until(lambda: DOWN in output.read_text(), "a line about the outage")
    # The slow jobs return meanwhile, and their outcomes wait.
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(seconds)
    deployment.start()

    wait_until(
        lambda: stored.count_documents({"state": "done"}) == SLOW + QUICK,
        f"all jobs to be done; {output}",
    )
    assert stored.distinct("attempts") == [1]
    assert stored.distinct("history") == ["[]"]
    assert client["outage"]["henri_jobs_runners"].distinct("pid") == [runner]
    # Nothing else is said, by nobody: not a line for each job, try or thread.
    down, up = output.read_text().removeprefix(said_before).splitlines()
    assert (down[: len(DOWN)], up) == (DOWN, UP)
    print(f"{how} for {seconds:g} s: {SLOW + QUICK} jobs done")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


@pytest.mark.parametrize("deployment", [replica_set], indirect=True)
def test_a_stop_without_a_database(
    deployment: Deployment, worker: subprocess.Popen[bytes], output: Path, app: Flask
) -> None:
    """W5, W10: a worker that is told to stop while the database is away ends in time; what it had
    is performed again by the next one."""
    stored: Collection[Document] = fleet_app.jobs.client["outage"]["henri_jobs"]
    fleet_app.silent.delay(seconds=PATIENCE)
    wait_until(lambda: stored.count_documents({"state": "running"}) == 1, "the job to run")
    deployment.kill()
    wait_until(lambda: DOWN in output.read_text(), "a line about the outage")

    # The second one ends the grace. Two of a kind at once would be one.
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)
    began = time.monotonic()

    assert worker.wait(PATIENCE) == 0
    assert time.monotonic() - began < LEAVING_SECONDS + CLOSING_SECONDS + 4
    deployment.start()
    wait_until(lambda: stored.count_documents({"state": "running"}) == 1, "the database")
