"""A worker's log says what became of the attempts that failed."""

from __future__ import annotations

import logging
import typing as t

from flask_henri_jobs import Discard, HenriJobs

if t.TYPE_CHECKING:
    import pytest


def test_failures_are_logged(jobs: HenriJobs, caplog: pytest.LogCaptureFixture) -> None:
    """A failed attempt is a warning, a dead job an error with its stack, and success is silent."""

    @jobs.task(name="mail", max_attempts=2, backoff={"base": "0s"})
    def mail() -> None:
        raise ConnectionError("the mail server is down")

    @jobs.task(name="fine")
    def fine() -> None: ...

    fine.delay()
    job = mail.delay()
    jobs.run_worker(once=True)

    again, dead = (record for record in caplog.records if job.id in record.getMessage())
    why = f"ConnectionError: the mail server is down (job {job.id})"
    assert (again.levelname, again.getMessage()) == (
        "WARNING",
        f"Attempt 1 of 2 at mail failed, and the next is due in 0s: {why}",
    )
    first, *stack = dead.getMessage().splitlines()
    assert (dead.levelname, first) == (
        "ERROR",
        f"mail is dead (failed) after attempt 2 of 2: {why}",
    )
    assert stack[0] == "Traceback (most recent call last):"
    assert stack[-1] == "ConnectionError: the mail server is down"
    # Which would hold on to the task's frames.
    assert again.exc_info is None
    assert dead.exc_info is None
    assert not [record for record in caplog.records if "fine is" in record.getMessage()]


def test_what_was_meant_to_end_is_no_error(
    jobs: HenriJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that was discarded is told of, as a warning and without a stack."""

    @jobs.task(name="mail")
    def mail() -> None:
        raise Discard("the address is gone")

    mail.delay()
    with caplog.at_level(logging.DEBUG):
        jobs.run_worker(once=True)

    [told] = [record for record in caplog.records if "is dead" in record.getMessage()]
    assert told.levelname == "WARNING"
    assert told.getMessage().startswith("mail is dead (discarded) after attempt 1 of 5: the addr")
    assert told.exc_info is None
