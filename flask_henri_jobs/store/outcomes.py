"""The last write of every attempt."""

from __future__ import annotations

import typing as t

from pymongo import UpdateOne
from pymongo.read_concern import ReadConcern

from ..job import DEAD, DONE, PENDING, RUNNING, Document, Job
from ..outcome import Again, Dead, Done, HandedBack, Outcome, Snoozed, cancelled
from .cancels import NOT_ASKED, is_asked
from .connection import answering
from .documents import changed, freed_key, held_by, history_of, update_of, with_entry

if t.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo.collection import Collection

    from ..clock import Moment

Ending: t.TypeAlias = tuple[Job, Outcome]

BACK = (Again, Snoozed, HandedBack)
"""The outcomes with which a job goes back to wait."""


class Outcomes:
    """Where an attempt's ending becomes true, or is dropped because the claim was lost (Q3)."""

    def __init__(self, jobs: Collection[Document]) -> None:
        self._jobs = jobs

    def write(self, job: Job, outcome: Outcome) -> Job | None:
        """Record one outcome. Return the job as it is now, or None where the claim was lost."""
        return self.write_many([(job, outcome)])[0]

    def write_many(self, endings: Sequence[Ending]) -> list[Job | None]:
        """Record outcomes in one write (W2).

        :return: The jobs as they are now, in the order given; None for each whose claim was lost,
            and whose outcome is dropped. One that was to go back, and was cancelled meanwhile, is
            dead instead (W8).

        It may be repeated after a lost reply: the token stays with the row until the next claim
        replaces it, so an outcome recognises its own first write.
        """
        changes = [_change(job, outcome) for job, outcome in endings]
        writes = [
            UpdateOne(_guard(job, outcome), change)
            for (job, outcome), change in zip(endings, changes, strict=True)
        ]
        with answering("an outcome"):
            written = self._jobs.bulk_write(writes, ordered=False)
            # The server reports a total, not which writes matched: nearly always all of them.
            all_stand = written.matched_count == len(endings)
            standing = changes if all_stand else self._which_stand(endings)
        return [
            job.with_row(changed(job.row, change)) if change is not None else None
            for (job, _), change in zip(endings, standing, strict=True)
        ]

    def write_in(self, transaction: Collection[Document], job: Job, outcome: Outcome) -> Job | None:
        """Record an outcome in a transaction, which decides whether it stands (X2).

        :param transaction: The jobs, in its session.
        :return: The job as it is after the commit; None where the claim was lost.
        """
        change = _change(job, outcome)
        written = transaction.update_one(held_by(job), change)
        return job.with_row(changed(job.row, change)) if written.matched_count else None

    def stands(self, job: Job) -> bool:
        """Whether a majority has an outcome of this very claim of a job."""
        with answering("the look for an outcome"):
            jobs = self._jobs.with_options(read_concern=ReadConcern("majority"))
            row = jobs.find_one({"_id": job.row["_id"]}, ["claim_token", "state"])
        is_own = row is not None and row.get("claim_token") == job.row["claim_token"]
        return is_own and row is not None and row["state"] != RUNNING

    def _which_stand(self, endings: Sequence[Ending]) -> list[Document | None]:
        """Return the changes that stand; None for each outcome that is dropped."""
        rows = self._look_at(endings)
        buried = [
            UpdateOne(held_by(job), _change(job, cancelled(job, outcome)))
            for job, outcome in endings
            if isinstance(outcome, BACK) and _is_kept_running(job, rows.get(job.row["_id"]))
        ]
        if buried:
            self._jobs.bulk_write(buried, ordered=False)
            rows = self._look_at(endings)
        return [_standing(job, outcome, rows.get(job.row["_id"])) for job, outcome in endings]

    def _look_at(self, endings: Sequence[Ending]) -> dict[str, Document]:
        ids = [job.row["_id"] for job, _ in endings]
        shown = dict.fromkeys(("state", "claim_token", "history", "cancel_requested_at"), True)
        return {row["_id"]: row for row in self._jobs.find({"_id": {"$in": ids}}, shown)}


def _guard(job: Job, outcome: Outcome) -> Document:
    # A cancelled job must not begin again (B12).
    return held_by(job) | NOT_ASKED if isinstance(outcome, BACK) else held_by(job)


def _is_kept_running(job: Job, row: Document | None) -> bool:
    """Whether the claim stands, and the job did not go back because it was cancelled."""
    if row is None or row["state"] != RUNNING:
        return False
    return is_asked(row) and bool(row.get("claim_token") == job.row["claim_token"])


def _standing(job: Job, outcome: Outcome, row: Document | None) -> Document | None:
    """Return the change that a row shows, which an earlier write of an outcome may have made."""
    if row is None:
        return None
    is_own = row.get("claim_token") == job.row["claim_token"]
    if is_own and row["state"] == DEAD and isinstance(outcome, BACK):
        return _change(job, cancelled(job, outcome))
    change = _change(job, outcome)
    return change if _stands(job, change, row) else None


def _stands(job: Job, change: Document, row: Document) -> bool:
    if row.get("claim_token") == job.row["claim_token"]:
        return bool(row["state"] != RUNNING)
    # It went back, was claimed again before its reply was missed, and left this very entry. One
    # that a recovery wrote about the same attempt has another moment, and no duration.
    written = history_of(change["$set"])
    return bool(written) and written[-1] in history_of(row)


def _change(job: Job, outcome: Outcome) -> Document:
    """Return the update that makes an outcome true, and keeps what its attempt left."""
    update = _ending(job, outcome)
    update["$set"] |= outcome.left
    return update


def _ending(job: Job, outcome: Outcome) -> Document:
    row = job.row
    match outcome:
        case Done():
            fields = _ended(outcome, DONE) | {"error_message": None, "error_stack": None}
            return update_of(fields | outcome.result.fields(), freed_key(row))
        case Dead():
            fields = _ended(outcome, DEAD) | _failed(job, outcome) | {"dead_reason": outcome.reason}
            return update_of(fields, freed_key(row))
        case Again(aborted=aborted):
            back = _back(outcome, outcome.run_at) | _failed(job, outcome)
            return update_of(back | (_aborted(row, aborted) if aborted else {}))
        case Snoozed():
            return update_of(_back(outcome, outcome.run_at) | _uncounted(row))
        case HandedBack():
            unbegun = _uncounted(row) | {"started_at": None}
            return update_of(_back(outcome, row["run_at"]) | unbegun)
        case _:
            t.assert_never(outcome)


def _ended(outcome: Done | Dead, state: str) -> Document:
    return {
        "state": state,
        "finished_at": outcome.at,
        "updated_at": outcome.at,
        "duration_ms": outcome.duration,
    }


def _back(outcome: Again | Snoozed | HandedBack, run_at: Moment) -> Document:
    return {
        "state": PENDING,
        "run_at": run_at,
        "updated_at": outcome.at,
        "claimed_at": None,
        "claimed_by": None,
        "heartbeat_at": None,
    }


def _uncounted(row: Mapping[str, t.Any]) -> Document:
    return {"attempts": row["attempts"] - 1}


def _aborted(row: Mapping[str, t.Any], times: int) -> Document:
    return _uncounted(row) | {"aborted_transactions": times}


def _failed(job: Job, outcome: Again | Dead) -> Document:
    failure = outcome.failure
    return {
        "error_message": failure.message,
        "error_stack": failure.stack,
        "history": with_entry(
            job.row,
            at=outcome.at,
            message=failure.message,
            duration=outcome.duration,
        ),
    }
