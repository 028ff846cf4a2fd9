"""A henri runner, as far as its MongoDB store goes: the same operations on the same documents.

It is written from the rules of the framework's own store, operation by operation, and shares no
code with this package. Numbers are doubles where JavaScript writes doubles.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
import uuid

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError, OperationFailure

if t.TYPE_CHECKING:
    from pymongo.collection import Collection
    from pymongo.database import Database

Document: t.TypeAlias = dict[str, t.Any]

ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]


class Henri:
    """One henri runner on a database.

    :param now: Its time, in milliseconds.
    """

    def __init__(
        self, database: Database[Document], now: t.Callable[[], int], prefix: str = "henri_jobs"
    ) -> None:
        self.jobs = database[prefix]
        self.schedules = database[f"{prefix}_schedules"]
        self.limits = database[f"{prefix}_limits"]
        self.batches = database[f"{prefix}_batches"]
        self.runner = f"node:1:{uuid.uuid4().hex[:8]}"
        self._now = now

    @property
    def now(self) -> float:
        return float(self._now())

    def install(self) -> None:
        prefix = self.jobs.name
        self._index(
            [("state", 1), ("queue", 1), ("priority", 1), ("run_at", 1)], name=f"{prefix}_claim"
        )
        self._index([("state", 1), ("finished_at", 1)], name=f"{prefix}_finished")
        self._index(
            [("unique_key", 1)],
            name=f"{prefix}_unique",
            partialFilterExpression={"unique_key": {"$type": "string"}},
            unique=True,
        )
        self._index([("batch_id", 1)], name=f"{prefix}_batch")
        self._index([("tenant", 1), ("state", 1), ("run_at", 1)], name=f"{prefix}_tenant")
        self.limits.create_index([("heartbeat_at", 1)], name=f"{self.limits.name}_stale")
        self.batches.create_index(
            [("finished_at", 1), ("updated_at", 1)], name=f"{self.batches.name}_open"
        )

    def _index(self, keys: list[tuple[str, int]], **options: t.Any) -> None:
        try:
            self.jobs.create_index(keys, **options)
        except OperationFailure as error:
            if error.code not in {85, 86}:
                raise
            self.jobs.drop_index(options["name"])
            self.jobs.create_index(keys, **options)

    def insert(self, name: str, args: object = None, **fields: t.Any) -> str:
        """Enqueue a job. Fields that are unused are left out, as henri does."""
        now = self.now
        row: Document = {
            "_id": str(uuid.uuid4()),
            "name": name,
            "queue": "default",
            "state": "pending",
            "priority": 0,
            "run_at": now,
            "created_at": now,
            "updated_at": now,
            "started_at": None,
            "finished_at": None,
            "claimed_at": None,
            "claimed_by": None,
            "claim_token": None,
            "heartbeat_at": None,
            "attempts": 0,
            "max_attempts": 3,
            "timeout_ms": None,
            "duration_ms": None,
            "args": json.dumps(args, separators=(",", ":")),
            "error_message": None,
            "error_stack": None,
            "history": "[]",
            **fields,
        }
        self.jobs.insert_one(row)
        return str(row["_id"])

    def claim(self, limit: int = 1, **where: t.Any) -> list[Document]:
        """Claim jobs one by one, in its order; every one under the same new token."""
        token, now, claimed = str(uuid.uuid4()), self.now, []
        for _ in range(limit):
            job = self.jobs.find_one_and_update(
                {"run_at": {"$lte": now}, "state": "pending", **where},
                {
                    "$inc": {"attempts": 1},
                    "$set": {
                        "claim_token": token,
                        "claimed_at": now,
                        "claimed_by": self.runner,
                        "heartbeat_at": now,
                        "started_at": now,
                        "state": "running",
                        "updated_at": now,
                    },
                },
                sort=ORDER,
                return_document=ReturnDocument.AFTER,
            )
            if job is None:
                break
            claimed.append(job)
        return claimed

    def done(self, job: Document, state: str = "done") -> bool:
        """Write an outcome under the token; whether it landed."""
        now = self.now
        changes = {"state": state, "finished_at": now, "updated_at": now, "duration_ms": 1.0}
        owned = {"_id": job["_id"], "claim_token": job["claim_token"], "state": "running"}
        return self.jobs.update_one(owned, {"$set": changes}).matched_count == 1

    def recover(self, stuck_after: float) -> list[str]:
        """Put back the jobs of runners that stopped answering."""
        stuck = self.jobs.find(
            {"heartbeat_at": {"$lt": self.now - stuck_after}, "state": "running"}
        )
        recovered = []
        for job in list(stuck):
            self.jobs.update_one(
                {"_id": job["_id"], "claim_token": job["claim_token"], "state": "running"},
                {
                    "$set": {"run_at": self.now, "state": "pending", "updated_at": self.now},
                    "$unset": {"claim_token": ""},
                },
            )
            recovered.append(job["_id"])
        return recovered

    def take_slot(self, key: str, limit: int) -> int | None:
        for slot in range(limit):
            with contextlib.suppress(DuplicateKeyError):
                self.limits.insert_one(
                    {
                        "_id": f"{key}#{slot}",
                        "heartbeat_at": self.now,
                        "job_id": None,
                        "limit_key": key,
                        "runner": self.runner,
                        "slot": slot,
                        "taken_at": self.now,
                    }
                )
                return slot
        return None

    def release_slot(self, key: str, slot: int) -> bool:
        held = {"_id": f"{key}#{slot}", "runner": self.runner}
        return self.limits.delete_one(held).deleted_count == 1

    def advance_batch(self, job: Document, *, failed: bool = False) -> Document | None:
        """Count a terminal outcome into its batch."""
        owned = {
            "_id": job["_id"],
            "batch_id": job["batch_id"],
            "claim_token": job["claim_token"],
            "state": {"$in": ["done", "dead"]},
        }
        if self.jobs.find_one(owned) is None:
            return self.batches.find_one({"_id": job["batch_id"]})
        return self.batches.find_one_and_update(
            {"_id": job["batch_id"], "finished_at": None},
            {"$inc": {"done": 1, "failed": int(failed)}, "$set": {"updated_at": self.now}},
            return_document=ReturnDocument.AFTER,
        )

    def advance_schedule(self, name: str, *, due: float, following: float, spec: str) -> bool:
        """Move a schedule on, if nobody else has."""
        moved = self.schedules.find_one_and_update(
            {"_id": name, "next_run_at": due},
            {
                "$set": {
                    "last_run_at": due,
                    "next_run_at": following,
                    "spec": spec,
                    "token": str(uuid.uuid4()),
                    "updated_at": self.now,
                }
            },
        )
        return moved is not None


def indexes_of(collection: Collection[Document]) -> dict[str, t.Any]:
    """Return a collection's indexes, without the server's own additions."""
    return {
        name: (index["key"], index.get("unique"), index.get("partialFilterExpression"))
        for name, index in collection.index_information().items()
    }
