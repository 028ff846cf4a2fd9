"""Jobs begin in the order in which they were expected."""

from __future__ import annotations

import threading

from flask_henri_jobs.worker.turnstile import Turnstile

LONG = 30.0


def begin(turnstile: Turnstile, job_id: str, begun: list[str]) -> threading.Thread:
    """Have a thread begin a job, which then notes it."""

    def run() -> None:
        turnstile.begin(job_id)
        begun.append(job_id)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def expecting(*job_ids: str, patience: float = LONG) -> Turnstile:
    turnstile = Turnstile(patience=patience)
    for job_id in job_ids:
        turnstile.expect(job_id)
    return turnstile


def test_in_order() -> None:
    """Q2: a job waits for those before it, however their threads are scheduled."""
    turnstile, begun = expecting("a", "b", "c"), list[str]()
    last = begin(turnstile, "c", begun)
    middle = begin(turnstile, "b", begun)
    last.join(0.01)
    assert begun == []

    turnstile.begin("a")

    middle.join(LONG)
    last.join(LONG)
    assert sorted(begun) == ["b", "c"]


def test_what_left_is_not_waited_for() -> None:
    """W4: jobs that ended without being begun, or were handed back, hold nobody up."""
    turnstile, begun = expecting("a", "b", "c"), list[str]()
    last = begin(turnstile, "c", begun)

    turnstile.leave(["b", "a", "unknown"])

    last.join(LONG)
    assert begun == ["c"]


def test_patience() -> None:
    """Q2: a job that is held up for long is passed by, and holds nobody up again."""
    turnstile = expecting("a", "b", "c", patience=0.001)

    turnstile.begin("b")
    turnstile._patience = LONG
    turnstile.begin("c")
    turnstile.begin("a")


def test_open() -> None:
    """Without weights nobody waits for anybody."""
    turnstile = Turnstile(is_open=True, patience=LONG)
    turnstile.expect("a")
    turnstile.expect("b")

    turnstile.begin("b")
    turnstile.leave(["a"])
