"""Arguments that are marked never appear in logs, reprs or commands."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import typing as t
from contextlib import nullcontext

import pytest
from blinker import NamedSignal

from flask_henri_jobs import ConfigError, HenriJobs, Snooze, UniqueKeyTaken, current_job, signals
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.testing import ManualJobs
from flask_henri_jobs.worker.losses import Loss, Losses
from mongod import wait_until

if t.TYPE_CHECKING:
    from flask import Flask

    from flask_henri_jobs import Job, Task

SECRET = "ann@example.com"
shop = logging.getLogger("tests.shop")


@pytest.fixture
def app(app: Flask) -> Flask:
    app.config["HENRI_JOBS_POLL_INTERVAL"] = "50ms"
    return app


@pytest.fixture
def mail(jobs: HenriJobs) -> Task[..., t.Any]:
    @jobs.task(
        name="mail",
        redact=("email",),
        unique="email",
        store_result=True,
        keep_logs=True,
        max_attempts=2,
        backoff={"base": "0s"},
    )
    def mail(email: str, order: int = 0) -> str:
        shop.warning("to %s", email)
        current_job.set_progress(1, message=f"to {email}")
        if order or current_job.attempt == 1:
            raise LookupError(f"no mailbox for {email}")
        return f"sent to {email}"

    return mail


def command(app: Flask, *args: str) -> str:
    ran = app.test_cli_runner().invoke(args=["jobs", *args])
    assert ran.exit_code == 0, ran.output
    return str(ran.output)


def test_commands(
    jobs: HenriJobs, app: Flask, mail: Task[..., t.Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What a command or a log line shows of a job has no redacted value, however it ended."""
    job = mail.delay(SECRET, order=0)
    dead = mail.using(tags=(f"to:b.{SECRET}",)).delay(f"b.{SECRET}", 4242)
    waiting = command(app, "list", "--json")
    with caplog.at_level(logging.INFO, "flask_henri_jobs"):
        jobs.run_worker(once=True, schedules=False)
    shown = [
        waiting,
        *[command(app, "show", each.id) for each in (job, dead)],
        *[command(app, "show", each.id, "--json") for each in (job, dead)],
        *[command(app, *args) for args in (["list"], ["list", "--json"], ["dead"])],
        command(app, "dead", "--json"),
        command(app, "retry", dead.id, "--json"),
        command(app, "delete", dead.id, "--json", "--yes"),
        *[record.getMessage() for record in caplog.records if record.name == "flask_henri_jobs"],
    ]

    assert (job.refresh().state, job.result) == ("done", f"sent to {SECRET}")
    for text in shown:
        assert SECRET not in text
    assert any("no mailbox for [redacted]" in text for text in shown[-8:])
    assert "4242" in shown[2]
    assert '"email": "[redacted]"' in shown[2]


def test_the_task_has_the_value(jobs: HenriJobs, app: Flask) -> None:
    """The task, and the application's own code, see what was given."""
    seen: list[t.Any] = []

    @jobs.task(name="note", redact=["email"])
    def note(email: str) -> None:
        seen.extend([email, current_job.args, repr(current_job), current_job.to_dict()["args"]])

    job = note.delay(SECRET)
    jobs.run_worker(once=True, schedules=False)

    assert seen[:2] == [SECRET, {"email": SECRET}]
    assert SECRET not in seen[2]
    assert seen[3] == {"email": "[redacted]"}
    assert job.args == {"email": SECRET}
    assert job.row["redact"] == ["email"]


def test_job_of_a_henri_application(
    jobs: HenriJobs, app: Flask, mail: Task[..., t.Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A job whose enqueuer knows of no redaction is shown by what its task says."""
    job = mail.delay(SECRET, 7)
    jobs.database["henri_jobs"].update_one({"_id": job.id}, {"$unset": {"redact": ""}})

    with caplog.at_level(logging.INFO, "flask_henri_jobs"):
        jobs.run_worker(once=True, schedules=False)

    assert "no mailbox for [redacted]" in caplog.text
    for text in (command(app, "show", job.id), command(app, "list", "--json")):
        assert SECRET not in text
    lines = [one.getMessage() for one in caplog.records if one.name == "flask_henri_jobs"]
    assert not any(SECRET in line for line in lines)


def test_errors(mail: Task[..., t.Any], jobs: HenriJobs) -> None:
    """A refused enqueue does not tell the key, nor a test's message the arguments."""
    mail.delay(SECRET)

    with pytest.raises(UniqueKeyTaken) as refused:
        mail.using(on_conflict="raise").delay(SECRET)

    assert SECRET not in str(refused.value)
    assert "[redacted]" in str(refused.value)


def test_assertions(app: Flask, jobs: HenriJobs, mail: Task[..., t.Any]) -> None:
    """What ``assert_enqueued`` says of the jobs that wait has no redacted value."""
    kept = ManualJobs(jobs, app)
    mail.delay(SECRET)

    with pytest.raises(AssertionError) as raised:
        kept.assert_enqueued(mail, {"order": 5})

    assert SECRET not in str(raised.value)
    assert "'email': '[redacted]'" in str(raised.value)


def test_schedules(app: Flask, jobs: HenriJobs, mail: Task[..., t.Any]) -> None:
    """The arguments of a schedule are shown as those of its jobs."""
    given = json.dumps({"email": SECRET, "order": 3})
    daily = ["daily", "--task", "mail", "--cron", "@daily", "--args", given]
    added = command(app, "schedules", "add", *daily, "--json")

    assert json.loads(added)["args"] == {"email": "[redacted]", "order": 3}
    assert SECRET not in command(app, "schedules", "list", "--json")
    assert SECRET not in command(app, "schedules", "run-now", "daily", "--json")


def test_callback_of_a_batch(jobs: HenriJobs) -> None:
    """A callback is enqueued with the names, by whoever ends its batch."""

    @jobs.task(name="finished", redact=("email",))
    def finished(batch: dict[str, t.Any], email: str) -> None: ...

    with jobs.batch(callback=finished, callback_args={"email": SECRET}):
        pass

    [callback] = jobs.list(name="finished")
    assert callback.row["redact"] == ["email"]
    assert callback.to_dict()["args"]["email"] == "[redacted]"


def test_what_a_limit_counts_by(jobs: HenriJobs) -> None:
    """A redacted argument is no key of a limit, which commands show."""
    with pytest.raises(ConfigError) as refused:

        @jobs.task(name="mail", redact=("email",), concurrency={"limit": 1, "key": "email"})
        def mail(email: str) -> None: ...

    assert str(refused.value) == (
        "redact= of the task mail names 'email', which its limit counts by."
        " Count by a callable that returns something else, such as a hash of it."
    )


def test_arguments_of_any_name(jobs: HenriJobs) -> None:
    """A task that takes whatever it is given may redact one of them that it does not name."""
    with pytest.raises(ConfigError, match="Did you mean 'email'"):

        @jobs.task(name="mail", redact=("emial",))
        def mail(email: str) -> None: ...

    @jobs.task(name="record", redact=("email",))
    def record(**fields: t.Any) -> None: ...

    job: Job = record.delay(email=SECRET)
    assert job.to_dict()["args"] == {"email": "[redacted]"}


def test_signals(app: Flask, jobs: HenriJobs) -> None:
    """Whatever comes with a signal, of which every one is sent here, tells no redacted value in its
    ``repr``; nor does a job, however it is looked at there."""
    heard: dict[str, list[str]] = {}

    @jobs.task(name="mail", redact=("email",), unique="email", max_attempts=2, backoff=AT_ONCE)
    def mail(email: str, how: str = "") -> None:
        if how == "progresses":
            current_job.set_progress(1, message=f"to {email}")
            wait_until(lambda: bool(heard["job_progressed"]), "the progress to be told")
        if how == "snoozes":
            raise Snooze("1h")
        if how == "fails":
            raise LookupError("no mailbox")
        if how == "is lost":
            given_up = {"claim_token": "another runner's"}
            jobs.database["henri_jobs"].update_one({"_id": current_job.id}, {"$set": given_up})

    @jobs.task(name="tell", redact=("email",))
    def tell(batch: dict[str, t.Any], email: str) -> None: ...

    with contextlib.ExitStack() as stack:
        for name, signal in all_signals().items():
            hear = functools.partial(note, heard.setdefault(name, []))
            stack.enter_context(signal.connected_to(hear, app))
        for number, how in enumerate(["progresses", "snoozes", "fails", "is lost"]):
            mail.delay(f"{number}.{SECRET}", how)
        jobs.cancel(mail.using(wait="1h").delay(f"cancelled.{SECRET}").id)
        jobs.delete(mail.using(wait="1h").delay(f"deleted.{SECRET}").id)
        with jobs.batch(callback=tell, callback_args={"email": SECRET}) as batch:
            batch.add(mail, email=f"member.{SECRET}")
        jobs.schedules.add("daily", task="mail", every="1h", args={"email": f"daily.{SECRET}"})
        jobs.database["henri_jobs_schedules"].update_one({}, {"$set": {"next_run_at": 1}})
        jobs.run_worker(once=True)
        mail.delay(f"recovered.{SECRET}")
        recover(app, jobs)

    assert {name for name, told in heard.items() if not told} == set()
    assert SECRET not in "".join(itertools.chain(*heard.values()))


AT_ONCE = {"base": "0s"}


def all_signals() -> dict[str, NamedSignal]:
    """Return every signal that there is, by its name."""
    return {name: one for name, one in vars(signals).items() if isinstance(one, NamedSignal)}


def note(told: list[str], _app: Flask, **facts: t.Any) -> None:
    """Write down how everything reads that comes with a signal."""
    for fact in facts.values():
        told += [repr(fact), str(fact), repr([fact]), repr({"fact": fact})]


def recover(app: Flask, jobs: HenriJobs) -> None:
    """Put back a job whose runner's process has died."""
    store = jobs.state.store
    store.claims.look_again()
    [job] = store.claims.take(Wish(runner="host:1:gone", at_most=1))
    losses = Losses(app, lambda: nullcontext(store), lambda: None)
    losses.add(Loss(runner="host:1:gone", begun=[job.id], reason="was killed", suspect=True))
    losses.finish(10)
