"""Why a job does not run now: every reason that there is, in words (X8)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from datetime import timedelta

from .durations import to_text
from .job import put_plain

if t.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from .batch import Batch
    from .job import Job
    from .pause import Pause
    from .rate import Rate

MOST_IN_FRONT = 1000
MOST_NAMED = 3
"""Of holders, or jobs in the way, in a text; the facts have more."""


class Kind(t.NamedTuple):
    """What the reasons with one code have in common.

    :param when: When it is given.
    :param facts: The names of what it says besides.
    :param hint: What can be done.
    """

    when: str
    facts: tuple[str, ...]
    hint: str


REASONS: dict[str, Kind] = {
    "spoilt": Kind(
        "Another program has stored it as no job is, and every runner passes it by",
        ("fields",),
        "Mend these fields in the database, or 'flask jobs delete' it.",
    ),
    "not_due": Kind(
        "Its moment has not come: it was enqueued for later, or waits after an attempt that failed",
        ("until", "attempt", "error"),
        "Wait; or 'flask jobs retry ID' has it due now.",
    ),
    "clock": Kind(
        "It is not due by the database server's clock, and this process's clock differs from that",
        ("ahead_ms",),
        "Set this host's clock; 'flask jobs check' compares all of them.",
    ),
    "expired": Kind(
        "Its time is over: a runner that takes it ends it, and does not perform it",
        ("expired_at",),
        "Enqueue it again if it is still worth doing.",
    ),
    "queue_paused": Kind(
        "Its queue is paused", ("name", "since"), "Resume it: 'flask jobs resume --queue NAME'."
    ),
    "task_paused": Kind(
        "Its task is paused", ("name", "since"), "Resume it: 'flask jobs resume --name NAME'."
    ),
    "tenant_paused": Kind(
        "Its tenant is paused", ("name", "since"), "Resume it: 'flask jobs resume --tenant NAME'."
    ),
    "key_full": Kind(
        "As many of its key run as may run at once",
        ("key", "limit", "held", "holders"),
        "Wait for their ends; 'flask jobs limits' shows all.",
    ),
    "rate_spent": Kind(
        "As many of its bucket have begun as its rate allows",
        ("bucket", "rate", "until"),
        "Wait; or raise the task's rate.",
    ),
    "no_runner": Kind(
        "No runner that lives takes from its queue",
        ("queue", "runners"),
        "Start one: 'flask jobs worker'. 'flask jobs runners' shows which queues are served.",
    ),
    "task_unknown": Kind(
        "No live runner of its queue knows its task",
        ("task", "runners"),
        "Is the module that declares it in HENRI_JOBS_IMPORTS, and deployed to the workers?",
    ),
    "all_busy": Kind(
        "All threads of the runners for it have jobs in hand",
        ("threads", "in_front"),
        "Wait; or start more runners: 'flask jobs worker'.",
    ),
    "alone": Kind(
        "It ran in a process that died, so it is performed alone, and other jobs are in the way",
        ("jobs",),
        "Wait for their ends; the supervisor of a worker starts a process for it.",
    ),
    "waits": Kind(
        "It is the callback of a batch, and is stored when the last of the batch's jobs has ended",
        ("batch", "sealed", "left", "jobs"),
        "Wait; 'flask jobs batches' shows how far it is, and 'flask jobs explain' of each job why.",
    ),
    "running": Kind(
        "It runs, or is about to: a runner has it",
        ("runner", "since", "attempt", "cancel_requested"),
        "Wait; or 'flask jobs cancel'.",
    ),
    "silent": Kind(
        "A runner has it that is not heard of any more",
        ("runner", "since", "heartbeat_at", "until"),
        "It is put back when the time is over, or sooner by a worker that starts on that host.",
    ),
    "done": Kind(
        "It has succeeded",
        ("runner", "since", "attempt"),
        "'flask jobs retry ID' has it run again.",
    ),
    "dead": Kind(
        "It has ended without success",
        ("why", "runner", "since", "attempt", "error"),
        "'flask jobs show' tells all about it; 'flask jobs retry ID' has it run again.",
    ),
}
"""Every reason by its code, in the order in which they are given."""


class Holder(t.TypedDict):
    """Who holds a permit of a key: a runner, for a job.

    ``job`` is None where that is another tenant's (T2).
    """

    job: str | None
    runner: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a job does not run now.

    :param code: Which of ``REASONS``.
    :param text: A sentence for people; its moments are in UTC.
    :param facts: The same for programs, by the names that ``REASONS`` has.
    """

    code: str
    text: str
    facts: Mapping[str, t.Any]

    @property
    def hint(self) -> str:
        """What can be done about it."""
        return REASONS[self.code].hint

    def to_dict(self) -> dict[str, t.Any]:
        """Return it as JSON has it: the facts stand beside ``code``, ``text`` and ``hint``."""
        plain: dict[str, t.Any] = {"code": self.code, "text": self.text, "hint": self.hint}
        for name, value in self.facts.items():
            put_plain(plain, name, value)
        return plain


def spoilt(fields: Sequence[str]) -> Reason:
    """Return that some fields of a job are of no type that a job has."""
    text = f"It is passed by: its {', '.join(fields)} cannot be a job's."
    return _reason("spoilt", text, fields=list(fields))


def ended(job: Job) -> Reason:
    """Return that a job is done or dead."""
    how = {"runner": job.claimed_by, "since": job.finished_at, "attempt": job.attempts}
    since = f"since {_at(job.finished_at)}{_by(job.claimed_by)}"
    if job.dead_reason is None:
        return _reason("done", f"It is done {since}, in attempt {job.attempts}.", **how)
    error = _first_line(job.error)
    text = f"It is dead ({job.dead_reason}) {since}{_because(error)}."
    return _reason("dead", text, why=job.dead_reason, error=error, **how)


def running(job: Job) -> Reason:
    """Return that a runner has a job."""
    asked = job.cancel_requested
    return _reason(
        "running",
        f"It runs since {_at(job.started_at)}{_by(job.claimed_by)}, in attempt {job.attempts}"
        + (f"; its end was asked for at {_at(asked)}." if asked else "."),
        runner=job.claimed_by,
        since=job.started_at,
        attempt=job.attempts,
        cancel_requested=asked,
    )


def silent(job: Job, until: datetime | None) -> Reason:
    """Return that the runner of a job is not heard of.

    :param until: When the job is put back, unless that is heard of.
    """
    return _reason(
        "silent",
        f"The runner {job.claimed_by} has it since {_at(job.started_at)}, and was heard of last at"
        f" {_at(job.heartbeat_at)}. It is put back at {_at(until)}.",
        runner=job.claimed_by,
        since=job.started_at,
        heartbeat_at=job.heartbeat_at,
        until=until,
    )


def not_due(job: Job) -> Reason:
    """Return that the moment of a job has not come."""
    failed = job.history[-1] if job.attempts and job.history else None
    error = _first_line(failed["message"]) if failed else None
    attempt = failed["attempt"] if failed else None
    after = f"It is tried again: attempt {attempt} failed{_because(error)}." if failed else ""
    return _reason(
        "not_due",
        f"It is not due until {_at(job.run_at)}. {after}".rstrip(),
        until=job.run_at,
        attempt=attempt,
        error=error,
    )


def clock(ahead_ms: int) -> Reason:
    """Return that the clock of this process is ahead of the server's, or behind it."""
    apart = to_text(timedelta(seconds=round(abs(ahead_ms) / 1000)))
    way = "ahead of" if ahead_ms > 0 else "behind"
    return _reason(
        "clock",
        f"The clock of this process is {apart} {way} the database server's, which decides.",
        ahead_ms=ahead_ms,
    )


def expired(job: Job) -> Reason:
    """Return that a waiting job is not worth doing any more."""
    at = job.expires_at
    return _reason("expired", f"It expired at {_at(at)}, before it began.", expired_at=at)


def paused(pause: Pause) -> Reason:
    """Return that a pause holds a job back."""
    return _reason(
        f"{pause.kind}_paused",
        f"The {pause} is paused since {_at(pause.paused_at)}.",
        name=pause.name,
        since=pause.paused_at,
    )


def key_full(key: str, limit: int, held: int, holders: Sequence[Holder]) -> Reason:
    """Return that no permit of a job's key is free.

    :param held: How many are held.
    :param holders: The first of those who hold them.
    """
    named = [
        f"by {one['runner']} for {_job(one['job'])} since {_at(one['since'])}"
        for one in holders[:MOST_NAMED]
    ]
    return _reason(
        "key_full",
        f"Its key {key} is full, {held} of {limit} are held: {_some(named, held)}.",
        key=key,
        limit=limit,
        held=held,
        holders=list(holders),
    )


def rate_spent(bucket: str, rate: Rate, until: datetime | None) -> Reason:
    """Return that a job's rate allows no start now."""
    return _reason(
        "rate_spent",
        f"The rate {rate} of {bucket} is spent until {_at(until)}.",
        bucket=bucket,
        rate=str(rate),
        until=until,
    )


def no_runner(queue: str, runners: int) -> Reason:
    """Return that nobody takes from a job's queue.

    :param runners: How many live, for other queues.
    """
    others = f"there are {_many(runners, 'runner')}, for others" if runners else "none lives at all"
    text = f"No runner takes from the queue {queue}: {others}."
    return _reason("no_runner", text, queue=queue, runners=runners)


def task_unknown(task: str, queue: str, runners: int) -> Reason:
    """Return that nobody who takes from a job's queue knows its task.

    :param runners: How many take from it.
    """
    text = f"The task {task} is not known to the {_many(runners, 'runner')} of the queue {queue}."
    return _reason("task_unknown", text, task=task, runners=runners)


def all_busy(threads: int, queue: str, in_front: int) -> Reason:
    """Return that no thread is free for a job.

    :param in_front: How many due jobs of its queue come first; one above the most is "more".
    """
    many = f"more than {MOST_IN_FRONT} jobs"
    if in_front <= MOST_IN_FRONT:
        many = _many(in_front, "job")
    return _reason(
        "all_busy",
        f"No thread for it is free, of {threads} in all. In front of it in the queue"
        f" {queue}: {many}.",
        threads=threads,
        in_front=in_front,
    )


def alone(jobs: Sequence[str | None]) -> Reason:
    """Return that a job is performed alone, and others are in the way.

    :param jobs: The jobs in hand of those who would perform it; none where such a process is yet
        to be started.
    """
    waits = f" It waits for {_some([_job(one) for one in jobs[:MOST_NAMED]], len(jobs))}."
    text = "It ran in a process that died, and is performed alone."
    return _reason("alone", text + (waits if jobs else ""), jobs=list(jobs))


def waits(batch: Batch, left: int, jobs: Sequence[str]) -> Reason:
    """Return that a callback waits for other jobs, those of its batch.

    :param left: How many of them have not ended.
    :param jobs: The first of those.
    """
    named = [_job(one) for one in jobs[:MOST_NAMED]]
    text = f"It waits for {_many(left, 'job')} of the batch {batch.id}"
    text += f": {_some(named, left)}." if named else "."
    is_sealed = batch.sealed_at is not None
    if not is_sealed:
        text += " The batch is not sealed: others may be added."
    return _reason("waits", text, batch=batch.id, sealed=is_sealed, left=left, jobs=list(jobs))


def _reason(code: str, text: str, **facts: t.Any) -> Reason:
    return Reason(code, text, facts)


def _at(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _by(runner: str | None) -> str:
    return f", by {runner}" if runner else ""


def _because(error: str | None) -> str:
    return f": {error.rstrip('.')}" if error else ""


def _job(job_id: str | None) -> str:
    return "another tenant's job" if job_id is None else f"job {job_id}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _some(named: Sequence[str], count: int) -> str:
    more = count - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _first_line(text: str | None) -> str | None:
    return next(iter((text or "").splitlines()), None)
