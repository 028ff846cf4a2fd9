"""What must be true of the queue when all is over."""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from flask_henri_jobs.job import DEAD, DONE, PENDING, RUNNING, keeps_key
from flask_henri_jobs.store.cancels import NEVER_BEGUN
from flask_henri_jobs.store.documents import history_of

from .app import SLOT_SECONDS, SLOTS, jobs

if t.TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Document: t.TypeAlias = dict[str, t.Any]


@dataclass(slots=True)
class Acknowledged:
    """The jobs of a ledger, by what was done to them."""

    stored: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    retried: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, ledger: Path) -> Acknowledged:
        """Return what a file says."""
        read = cls()
        for line in ledger.read_text().splitlines():
            what, job_id = line.split(" ")
            getattr(read, what).add(job_id)
        return read


class Queue:
    """What is stored, when nothing runs any more. Its app's context is entered."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self.acknowledged = acknowledged
        self.rows: list[Document] = list(jobs.database["henri_jobs"].find())

    def violations(self) -> dict[str, list[str]]:
        """Return by each promise what breaks it."""
        checks: dict[str, t.Callable[[], Iterator[str]]] = {
            "no acknowledged job is lost": self._lost,
            "each job has ended, or waits for a named reason": self._unended,
            "attempts and history agree": self._histories,
            "no permit is held without a running job": self._permits,
            "batches count their members, and call back once": self._batches,
            "unique keys are held by live jobs only": self._keys,
            "each slot of a schedule has one job": self._slots,
        }
        return {promise: list(check()) for promise, check in checks.items()}

    def figures(self) -> dict[str, int]:
        """Return what came of the load."""
        states = Counter(row["state"] for row in self.rows)
        entries = [(row, history_of(row)) for row in self.rows]
        lost = [row for row, history in entries if any(map(_tells_of_a_kill, history))]
        return {
            "jobs acknowledged": len(self.acknowledged.stored),
            "jobs done": states[DONE],
            "jobs dead": states[DEAD],
            "jobs that wait for a day": states[PENDING],
            "jobs begun again after a kill": len(lost),
            "batches": jobs.database["henri_jobs_batches"].count_documents({}),
            "slots": len(self._fired()),
        }

    def as_json(self) -> str:
        """Return the rows as they are stored, for whoever looks at what broke a promise."""
        return json.dumps(self.rows, default=str, indent=1)

    def _lost(self) -> Iterator[str]:
        ids = {row["_id"] for row in self.rows}
        yield from self.acknowledged.stored - self.acknowledged.deleted - ids

    def _unended(self) -> Iterator[str]:
        for row in self.rows:
            if row["state"] == RUNNING:
                yield f"{row['_id']} of {row['name']} runs at {row['claimed_by']}"
            elif row["state"] == PENDING:
                codes = {reason.code for reason in jobs.explain(row["_id"])}
                if row["name"] != "far" or "not_due" not in codes:
                    yield f"{row['_id']} of {row['name']} waits: {codes or 'for no reason'}"

    def _histories(self) -> Iterator[str]:
        for row in self.rows:
            had = [entry["attempt"] for entry in history_of(row)]
            due = attempts_on_record(row)
            if row["_id"] in self.acknowledged.retried:
                # By hand: the attempts began anew, and the history went on.
                fits = any(had[len(had) - len(one) :] == one for one in due)
            else:
                fits = had in due
            if not fits:
                yield f"{row['_id']} of {row['name']} is {row['state']}: {had} is not in {due}"

    def _permits(self) -> Iterator[str]:
        for permit in jobs.database["henri_jobs_limits"].find():
            yield f"{permit['_id']} is held for {permit['job_id']}"

    def _batches(self) -> Iterator[str]:
        members: dict[str, Counter[str]] = {}
        for row in self.rows:
            if "batch_id" in row:
                members.setdefault(row["batch_id"], Counter())[row["state"]] += 1
        called = Counter(row["unique_key"] for row in self.rows if row["name"] == "finished")
        for batch in jobs.database["henri_jobs_batches"].find():
            states = members.get(batch["_id"], Counter())
            due = {"total": states.total(), "done": states.total(), "failed": states[DEAD]}
            says = {name: batch[name] for name in due}
            calls = called[f"batch:{batch['_id']}"]
            if says != due or calls != 1 or batch["finished_at"] is None:
                yield f"{batch['_id']} says {says}, and {due} is true; {calls} callbacks"

    def _keys(self) -> Iterator[str]:
        for row in self.rows:
            key = row.get("unique_key")
            if row["state"] in {DONE, DEAD} and key is not None and not keeps_key(key):
                yield f"{row['_id']} is {row['state']} and holds {key}"

    def _slots(self) -> Iterator[str]:
        fired = self._fired()
        for due, times in fired.items():
            if times != 1:
                yield f"{times} jobs of {due}"
        every = SLOT_SECONDS * 1000
        for due in range(min(fired, default=0), max(fired, default=0), every):
            if due not in fired:
                yield f"no job of {due}"

    def _fired(self) -> Counter[int]:
        start = f"recurring:{SLOTS}:"
        keys = [row.get("unique_key") or "" for row in self.rows]
        return Counter(int(key.removeprefix(start)) for key in keys if key.startswith(start))


def attempts_on_record(row: Document) -> list[list[int]]:
    """Return of which attempts a history may tell: an attempt that succeeds, or is snoozed, leaves
    no entry; any other one does."""
    attempts = row["attempts"]
    if row["state"] in {DONE, RUNNING}:
        return [[*range(1, attempts)]]
    every = [*range(1, attempts + 1)]
    entries = history_of(row)
    if entries and entries[-1]["message"] == NEVER_BEGUN:
        # Claimed, and not begun: that attempt is counted or given back. Waiting: there was none.
        return [every, [*every, attempts], [*every, attempts + 1]]
    return [every]


def _tells_of_a_kill(entry: Document) -> bool:
    return "was killed" in entry["message"] or "stopped answering" in entry["message"]
