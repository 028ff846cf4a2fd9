"""Finding every reason why a job does not run now (X8)."""

from __future__ import annotations

import time
import typing as t

from . import reason
from .batch import read_callback_key
from .clock import to_datetime
from .durations import millis
from .job import PENDING, RUNNING
from .queues import QueueSelection
from .rate import lane_of
from .readable import readable
from .reason import MOST_IN_FRONT
from .redaction import marked
from .store.filters import JobFilter
from .store.wish import is_number, spoilt_in
from .tenant import is_visible, tenant_in_scope

if t.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .app_state import AppState
    from .clock import Moment
    from .job import Job
    from .reason import Holder, Reason
    from .store.permits import Permit
    from .store.runners import LiveRunner

CLOCK_MS = 1_000
"""By how much this process's clock may differ before that is named."""

SILENT_BEATS = 2.5
"""Heartbeats that a runner may miss before it is said to be silent."""

MOST_HOLDERS = MOST_MEMBERS = 100
MOST_PERMITS = 10_000

BESIDES_SUSPECTS, ONLY_SUSPECTS = "jobs", "suspects"
"""Roles of runners that do not perform suspects, and perform nothing else (W6)."""


def explain(state: AppState, job: Job) -> list[Reason]:
    """Return every reason why a job does not run now; none where a runner will take it soon.

    What is true of this moment alone, such as a key that is full, is named once the job is due.
    """
    if spoilt := spoilt_fields(job.row):
        return [reason.spoilt(spoilt)]
    now = state.store.clock.now()
    row, job = job.row, job.with_row(readable(job.row))
    shown = _shown(state, job)
    if job.state == RUNNING:
        return [_in_hand(state, shown, now)]
    if job.state != PENDING:
        return [reason.ended(shown)]
    is_due = row["run_at"] <= now
    return [
        *(_of_its_time(shown, now) if is_due else _of_the_clock(shown, now)),
        *(reason.paused(one) for one in state.store.pauses.all() if one.holds(job.row)),
        *(_of_its_lane(state, job, shown) if is_due else ()),
        *_of_the_runners(state, job, now, is_due=is_due),
    ]


def explain_callback(state: AppState, key: str) -> list[Reason] | None:
    """Return why a batch's callback does not run now, by the unique key that it will have (B2).

    :return: None where that is no such key, or its batch has, or will have, no such callback.
    """
    found = read_callback_key(key)
    batch = state.store.batches.find(found[0]) if found else None
    if found is None or batch is None or not is_visible(batch.tenant):
        return None
    job = state.store.admin.holder_of(key)
    if job is not None:
        return explain(state, job)
    if batch.finished_at is not None or not batch.row.get(found[1]):
        return None
    which = [JobFilter(state=one, batch=batch.id) for one in (RUNNING, PENDING)]
    left = sum(map(state.store.admin.count, which))
    if not left and batch.sealed_at is not None:
        return []
    jobs = [job.id for one in which for job in state.store.admin.page(one, MOST_MEMBERS)]
    return [reason.waits(batch, left, jobs[:MOST_MEMBERS])]


def spoilt_fields(row: Mapping[str, t.Any]) -> list[str]:
    """Return the fields for which a job that waits or runs is claimed, or put back, by nobody."""
    if row.get("state") not in {PENDING, RUNNING}:
        return []
    spoilt = spoilt_in(row)
    if row["state"] == RUNNING and not is_number(row.get("heartbeat_at")):
        spoilt.append("heartbeat_at")
    return spoilt


def _shown(state: AppState, job: Job) -> Job:
    """Return a job without what its task redacts."""
    task = state.tasks.find(job.name)
    names = () if task is None else task.defaults.redact
    return job.with_row(marked(job.row, names)).concealed()


def _in_hand(state: AppState, job: Job, now: Moment) -> Reason:
    heard = int(job.row["heartbeat_at"] or 0)
    if now - heard <= SILENT_BEATS * millis(state.settings.heartbeat):
        return reason.running(job)
    return reason.silent(job, to_datetime(heard + millis(state.settings.stuck_after)))


def _of_the_clock(job: Job, now: Moment) -> Iterator[Reason]:
    yield reason.not_due(job)
    ahead = round(time.time() * 1000) - now
    if abs(ahead) > CLOCK_MS:
        yield reason.clock(ahead)


def _of_its_time(job: Job, now: Moment) -> Iterator[Reason]:
    expires_at = job.row.get("expires_at")
    if isinstance(expires_at, int | float) and expires_at <= now:
        yield reason.expired(job)


def _of_its_lane(state: AppState, job: Job, shown: Job) -> Iterator[Reason]:
    """Yield what its limit and its rate say, where its task, or its key's group, is known here."""
    lanes = state.tasks.lanes()
    own = lanes.get(job.name)
    # One that was stored before its task had a limit is given the group's own key (L5).
    key = job.concurrency_key or (own.group if own else None)
    lane = lane_of(key, {one.group: one for one in lanes.values()}) if key else None
    if key is None or lane is None:
        return
    told = shown.concurrency_key or key
    if lane.most is not None:
        held = state.store.permits.held(MOST_PERMITS, key=key)
        if len(held) >= lane.most:
            holders = [_holder(state, permit) for permit in held[:MOST_HOLDERS]]
            yield reason.key_full(told, lane.most, len(held), holders)
    if lane.rate is not None:
        until = state.store.rates.free_at(lane.rate_bucket(key), lane.rate)
        if until is not None:
            yield reason.rate_spent(lane.rate_bucket(told), lane.rate, to_datetime(until))


def _holder(state: AppState, permit: Permit) -> Holder:
    return {
        "job": _visible(state, permit.job_id),
        "runner": permit.runner,
        "since": permit.taken_at,
    }


def _visible(state: AppState, job_id: str | None) -> str | None:
    """Return the id of a job, unless it is not for the code that runs now (T2)."""
    if job_id is None or tenant_in_scope() is None:
        return job_id
    job = state.store.admin.find(job_id)
    return job_id if job is not None and is_visible(job.tenant) else None


def _of_the_runners(state: AppState, job: Job, now: Moment, *, is_due: bool) -> Iterator[Reason]:
    alive = state.store.runners.alive(state.settings.stuck_after)
    is_suspect = bool(job.row.get("suspect"))
    if not is_suspect:
        alive = [one for one in alive if one.role != ONLY_SUSPECTS]
    serving = [one for one in alive if QueueSelection.read(one.queues, "queues").covers(job.queue)]
    knowing = [one for one in serving if job.name in one.tasks]
    if not serving:
        yield reason.no_runner(job.queue, len(alive))
    elif not knowing:
        yield reason.task_unknown(job.name, job.queue, len(serving))
    elif is_due and is_suspect:
        yield from _of_suspects(state, knowing)
    elif is_due and all(len(one.doing) >= one.threads for one in knowing):
        in_front = state.store.figures.in_front(job, now, MOST_IN_FRONT + 1)
        yield reason.all_busy(sum(one.threads for one in knowing), job.queue, in_front)


def _of_suspects(state: AppState, knowing: Sequence[LiveRunner]) -> Iterator[Reason]:
    takers = [one for one in knowing if one.role != BESIDES_SUSPECTS]
    if all(one.doing for one in takers):
        in_hand = [job.id for one in takers for job in one.doing][:MOST_HOLDERS]
        yield reason.alone([_visible(state, job_id) for job_id in in_hand])
