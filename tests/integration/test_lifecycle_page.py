"""``docs/explanation/lifecycle.md`` and its diagram show the changes of state that there are."""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import pytest

from flask_henri_jobs.job import DEAD, DONE, PENDING, RUNNING
from flask_henri_jobs.outcome import Again, Dead, Done, Failure
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.store.wish import Wish

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask_henri_jobs import HenriJobs, Job

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "lifecycle.md"
DIAGRAM = PAGE.with_suffix(".svg")
STORE = ROOT / "flask_henri_jobs" / "store"

Way = tuple[str, str, str]
WAYS: list[Way] = re.findall(
    r"(?m)^\| (?:none|`(\w+)`) \| `(\w+)` \| .+ \| `([\w.]+)` \|$", PAGE.read_text()
)


def test_diagram_has_the_ways_of_the_table() -> None:
    """Each way of the table is an arrow of the diagram, and the other way round."""
    arrows = set(re.findall(r'<g class="way" id="(\w+)-(\w+)">', DIAGRAM.read_text()))

    assert arrows == {(before or "new", after) for before, after, _ in WAYS}


def test_every_change_of_state_is_in_the_table() -> None:
    """Whatever builds a change of a job's state in the store has a row that names it."""
    builders = {
        f"store.{path.stem}.{function.name}"
        for path in STORE.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and any(map(_changes_state, ast.walk(function)))
    }

    assert builders == {builder for _, _, builder in WAYS}


def _changes_state(node: ast.AST) -> bool:
    """Whether a dict gives a job a state; a filter asks for no moment, or for a range of them."""
    if not isinstance(node, ast.Dict):
        return False
    pairs = zip(node.keys, node.values, strict=True)
    given = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
    moments = [given[name] for name in ("updated_at", "finished_at", "claimed_at") if name in given]
    return "state" in given and any(not isinstance(one, ast.Dict) for one in moments)


def claim(jobs: HenriJobs, job: Job) -> Job:
    wish = Wish(runner="host:1:gone", queues=QueueTurns(), at_most=1)
    [claimed] = jobs.state.store.claims.take(wish)
    assert claimed.id == job.id
    return claimed


def end(jobs: HenriJobs, job: Job) -> None:
    ended = Done(at=jobs.state.store.clock.now(), duration=1)
    assert jobs.state.store.outcomes.write(claim(jobs, job), ended)


def put_back(jobs: HenriJobs, job: Job) -> None:
    now = jobs.state.store.clock.now()
    again = Again(at=now, duration=1, run_at=now, failure=Failure(message="no"))
    assert jobs.state.store.outcomes.write(claim(jobs, job), again)


def bury(jobs: HenriJobs, job: Job) -> None:
    now = jobs.state.store.clock.now()
    dead = Dead(at=now, duration=1, reason="failed", failure=Failure(message="no"))
    assert jobs.state.store.outcomes.write(claim(jobs, job), dead)


def hand_back(jobs: HenriJobs, job: Job) -> None:
    assert jobs.state.store.claims.hand_back([claim(jobs, job)]).returned == 1


def recover(jobs: HenriJobs, job: Job) -> None:
    claim(jobs, job)
    assert jobs.state.store.leases.recover_from("host:1:gone", "was killed by signal 9")


def cancel(jobs: HenriJobs, job: Job) -> None:
    jobs.cancel(job.id)


def cancel_and_hand_back(jobs: HenriJobs, job: Job) -> None:
    claimed = claim(jobs, job)
    jobs.cancel(job.id)
    assert jobs.state.store.claims.hand_back([claimed]).returned == 0


def cancel_batch(jobs: HenriJobs, job: Job) -> None:
    jobs.batches.cancel(str(job.batch_id))


def end_and_retry(jobs: HenriJobs, job: Job) -> None:
    end(jobs, job)
    assert job.refresh().state == DONE
    jobs.retry(job.id)


def bury_and_retry(jobs: HenriJobs, job: Job) -> None:
    bury(jobs, job)
    assert job.refresh().state == DEAD
    jobs.retry(job.id)


MOVES: dict[Way, tuple[Callable[[HenriJobs, Job], object], int]] = {
    ("", PENDING, "store.documents.new_row"): (lambda _, __: None, 2),
    (PENDING, RUNNING, "store.claims._stamp"): (claim, 2),
    (RUNNING, DONE, "store.outcomes._ended"): (end, 2),
    (RUNNING, PENDING, "store.outcomes._back"): (put_back, 2),
    (RUNNING, DEAD, "store.outcomes._ended"): (bury, 2),
    (RUNNING, PENDING, "store.documents.handed_back"): (hand_back, 2),
    (RUNNING, PENDING, "store.leases._recovery"): (recover, 2),
    (RUNNING, DEAD, "store.leases._recovery"): (recover, 1),
    (PENDING, DEAD, "store.cancels.buried"): (cancel, 2),
    (RUNNING, DEAD, "store.cancels.buried"): (cancel_and_hand_back, 2),
    (PENDING, DEAD, "store.batches._cancelled"): (cancel_batch, 2),
    (DONE, PENDING, "store.admin._again"): (end_and_retry, 2),
    (DEAD, PENDING, "store.admin._again"): (bury_and_retry, 2),
}
"""What makes each change, and how many attempts the job has."""


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_the_table_is_gone(jobs: HenriJobs, way: Way) -> None:
    """Section 3: what a row of the table says is what happens."""
    move, attempts = MOVES[way]
    with jobs.batch() as batch:
        job = batch.add(jobs.task(name="mail")(print).using(max_attempts=attempts))
    assert job.state == PENDING

    move(jobs, job)

    assert job.refresh().state == way[1]
