"""What ``flask jobs check`` looks for in the database, and what ``--repair`` mends of it."""

from __future__ import annotations

import functools
import time
import typing as t
from dataclasses import dataclass

from ..durations import to_text
from ..errors import TransactionRefused
from ..finishing import Finisher
from ..schedule_entry import RUNTIME, origin_of

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..app_state import AppState
    from ..registry import Registry
    from ..store import Store
    from ..store.repairs import Miscount
    from .findings import Finding

MOST_APART_MS = 5_000
"""By how much clocks may differ before somebody is told (B8)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and what puts it right.

    :param mend: Returns whether it is mended; None where only its reader can.
    """

    finding: Finding
    mend: Callable[[], bool] | None = None


def queue_findings(state: AppState, tasks: Registry) -> Iterator[Found]:
    """Yield what is wrong in the database. It is only looked at.

    :raises StoreUnavailable: The database does not answer.
    """
    known = {*tasks, *_known_elsewhere(state)}
    yield from _about_this_clock(state)
    apart = [*_about_members(state)]
    yield from apart
    yield from _about_transactions(state, tasks)
    yield from _about_indexes(state)
    if state.store_as_it_is.problems():
        # What follows is asked by those indexes.
        return
    yield from _about_runners(state, may_judge=not apart)
    yield from _about_limits(state)
    yield from _about_batches(state)
    yield from _about_schedules(state, known)
    yield from _about_jobs(state, known)


def _known_elsewhere(state: AppState) -> set[str]:
    """Return the tasks that some live runner knows."""
    alive = state.store_as_it_is.runners.alive(state.settings.stuck_after)
    return {name for runner in alive for name in runner.tasks}


def _about_this_clock(state: AppState) -> Iterator[Found]:
    store = state.store_as_it_is
    here = round(time.time() * 1000) - store.clock.now()
    if abs(here) > MOST_APART_MS:
        yield Found(
            {
                "about": "clocks",
                "message": f"This host's clock is {_apart(here)} the database server's.",
                "hint": "Have it set by NTP: jobs are due by the server's, and moments for at= are"
                " made by this one.",
            }
        )


def _about_members(state: AppState) -> Iterator[Found]:
    for member, ahead in state.store_as_it_is.connection.clocks().items():
        if abs(ahead) > MOST_APART_MS:
            yield Found(
                {
                    "about": "clocks",
                    "message": f"The clock of {member} is {_apart(ahead)} the primary's.",
                    "hint": "Have it set by NTP: once it is the primary, jobs are due by it.",
                }
            )


def _about_transactions(state: AppState, tasks: Registry) -> Iterator[Found]:
    names, store = tasks.transactional(), state.store_as_it_is
    if not names:
        return
    try:
        store.transactions.accept(store.connection.client)
    except TransactionRefused as error:
        yield Found(
            {
                "about": "tasks",
                "message": f"The task {names[0]} says transactional=True. {error.message}",
                "hint": error.hint,
            }
        )


def _about_indexes(state: AppState) -> Iterator[Found]:
    store = state.store_as_it_is
    for problem in store.problems():
        yield Found(
            {"about": "indexes", "message": problem, "hint": "Run 'flask jobs install'."},
            functools.partial(_mended_by_install, store, problem),
        )


def _mended_by_install(store: Store, problem: str) -> bool:
    store.install()
    return problem not in store.problems()


def _about_runners(state: AppState, *, may_judge: bool) -> Iterator[Found]:
    """Yield the runners that are silent.

    :param may_judge: Whether a heartbeat is as old as it looks, whoever was the primary then.
    """
    repairs, stuck_after = state.store_as_it_is.repairs, state.settings.stuck_after

    def put_back() -> bool:
        repairs.put_back_from_gone(stuck_after)
        return not repairs.gone(stuck_after)

    for runner, jobs in repairs.gone(stuck_after).items():
        yield Found(
            {
                "about": "runners",
                "message": f"The runner {runner} was not heard of for {to_text(stuck_after)}"
                f" and has {jobs} jobs.",
                "hint": "Any worker puts them back; so does --repair, at once.",
            },
            put_back if may_judge else None,
        )


def _about_limits(state: AppState) -> Iterator[Found]:
    repairs = state.store_as_it_is.repairs

    def free() -> bool:
        repairs.free_stray_permits()
        return not repairs.stray_permits()

    for permit in repairs.stray_permits():
        yield Found(
            {
                "about": "limits",
                "message": f"{permit.runner} holds {permit.key}#{permit.slot} for the job"
                f" {permit.job_id}, which does not run there.",
                "hint": "Any worker frees it in time; so does --repair, at once.",
            },
            free,
        )


def _about_batches(state: AppState) -> Iterator[Found]:
    store = state.store_as_it_is
    finisher = Finisher(state.settings, store, state.tasks)

    def mended(found: Miscount) -> bool:
        if found.is_over:
            return finisher.finish(found.batch).batch is not None
        return store.repairs.recount(found)

    for found in store.repairs.miscounts():
        batch = found.batch
        says = f"{batch.done} done and {batch.failed} failed of {batch.total}"
        has = "all have ended" if found.is_over else f"{found.done} and {found.failed} are"
        yield Found(
            {
                "about": "batches",
                "message": f"The batch {batch.id} says {says}; by its jobs {has}.",
                "hint": "Any worker ends a batch that is over; --repair also corrects its counts.",
            },
            functools.partial(mended, found),
        )


def _about_schedules(state: AppState, known: set[str]) -> Iterator[Found]:
    schedules = state.store_as_it_is.schedules
    for row in schedules.all():
        ours = row.get("origin") in (RUNTIME, origin_of(state.settings.app_name))
        if ours and not row.get("paused") and row.get("job") not in known:
            name = row["_id"]
            yield Found(
                {
                    "about": "schedules",
                    "message": f"The schedule {name!r} is for the task {row.get('job')!r}, which is"
                    " known neither here nor to a worker.",
                    "hint": f"Declare the task, or run 'flask jobs schedules remove {name}';"
                    " --repair pauses it.",
                },
                functools.partial(schedules.pause, name),
            )


def _about_jobs(state: AppState, known: set[str]) -> Iterator[Found]:
    for name, count in state.store_as_it_is.figures.waiting_tasks().items():
        if name not in known:
            yield Found(
                {
                    "about": "jobs",
                    "message": f"{count} jobs wait for the task {name!r}, which is known neither"
                    " here nor to a worker.",
                    "hint": "Start a worker that knows it; or delete them with 'flask jobs delete"
                    f" --name {name} --state pending'.",
                }
            )


def _apart(millis: int) -> str:
    seconds = round(abs(millis) / 1000)
    return f"{seconds} s {'ahead of' if millis > 0 else 'behind'}"
