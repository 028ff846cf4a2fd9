"""Seeing a batch to its end: its callbacks, once, after its last job (B2)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field as field_of
from datetime import datetime

from .batch import Batch, callback_key, callbacks_after, final_counts, summary
from .clock import Moment, to_moment
from .codec import decode, encode
from .durations import millis, to_duration
from .errors import ConfigError, HenriJobsError
from .ids import new_id
from .job import DEAD, DONE
from .log import logger
from .options import HIGHEST_PRIORITY, LOWEST_PRIORITY
from .registry import Registry
from .store.connection import answering
from .store.documents import new_row
from .store.tallies import Ended
from .tenant import tenant_scope

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from .batch import Counts
    from .job import Document, Job
    from .settings import Settings
    from .store import Store


KEY_ERRORS = (HenriJobsError, LookupError, TypeError, ValueError, AttributeError)
"""What a function that makes the key of a limit raises about arguments that it does not expect."""


MOST_RUNG_FOR = 100
"""So many ids fit a ring; who waits for one of more jobs that end at once finds that by looking."""


class Ending(t.NamedTuple):
    """What one look at a batch came to.

    :param batch: The batch, where this look has ended it.
    :param enqueued: The callback jobs that this look has stored.
    """

    batch: Batch | None = None
    enqueued: tuple[Job, ...] = ()


NOTHING_YET = Ending()


@dataclass(frozen=True, slots=True)
class Finisher:
    """Ends batches. Any process may try at any time, several at once, and one does.

    :param tasks: What is known here of the tasks of callbacks; a process may know none.
    """

    settings: Settings
    store: Store
    tasks: Registry = field_of(default_factory=Registry)

    def finish(self, batch: Batch) -> Ending:
        """End a batch if it is sealed and no member waits or runs.

        The callbacks are stored first, under unique keys of the batch, and then the batch is
        ended by a guarded write. Whoever comes second, or again after a crash in between, finds
        the first one's callbacks.
        """
        # One limit for all of it: a process that is stopped half-way and goes on much later
        # must not store a callback that has run and been pruned meanwhile.
        with answering(f"the end of batch {batch.id}"):
            if batch.state != "running":
                return NOTHING_YET
            found = self.store.tallies.final(batch)
            if found is None:
                return NOTHING_YET
            counts = final_counts(batch.row, found[DONE], found[DEAD])
            callbacks = {
                field: self._enqueue(batch, field, counts)
                for field in callbacks_after(batch.row, counts)
            }
            callback = callbacks.get("callback")
            ended = self.store.tallies.finish(batch.id, counts, callback.id if callback else None)
            return Ending(ended, tuple(job for job in callbacks.values() if job.created))

    def cancel_members(self, batch_id: str) -> Iterator[Job]:
        """Bury the waiting members of a cancelled batch, and yield them; ask the running to end.

        It goes on only as the caller does.
        """
        # Twice: a job that ran when the waiting were looked for may wait since, and the other
        # way round. The sweep catches what goes back later still.
        for _ in range(2):
            yield from self._cancel_waiting(batch_id)
            with answering(f"the cancelling of batch {batch_id}"):
                if self.store.batches.ask_running_to_end(batch_id):
                    self.store.wakeups.cancelled()

    def _cancel_waiting(self, batch_id: str) -> Iterator[Job]:
        while True:
            with answering(f"the cancelling of batch {batch_id}"):
                buried = self.store.batches.cancel_waiting(batch_id)
                if not buried:
                    return
                self.store.tallies.add({batch_id: Ended(done=len(buried), failed=len(buried))})
            if len(buried) <= MOST_RUNG_FOR:
                self.store.wakeups.ended([job.id for job in buried])
            yield from buried

    def _enqueue(self, batch: Batch, field: str, counts: Counts) -> Job:
        args = (decode(batch.row.get("callback_args")) or {}) | {
            "batch": summary(batch.row, counts)
        }
        now = self.store.clock.now()
        stored = batch.row.get(f"{field}_options")
        options = _Options(json.loads(stored) if stored else {}, self.settings, now)
        tenant = options.tenant or batch.tenant
        return self.store.inbox.add(
            new_row(
                id=new_id(now),
                name=batch.row[field],
                args=encode(args),
                now=now,
                run_at=options.run_at,
                queue=options.queue,
                priority=options.priority,
                max_attempts=options.max_attempts,
                timeout_ms=options.timeout_ms,
                unique_key=callback_key(batch.id, field),
                concurrency_key=self._concurrency_key(batch.row[field], args, tenant),
                tenant=tenant,
                tags=options.texts("tags"),
                redact=options.texts("redact"),
            )
        )

    def _concurrency_key(self, name: str, args: dict[str, t.Any], tenant: str | None) -> str | None:
        """Return the bucket of a callback, or None: then a runner that knows its task sees to it.

        A key that cannot be told is that runner's as well: the batch ends all the same.
        """
        task = self.tasks.find(name)
        if task is None:
            return None
        try:
            with tenant_scope(tenant):
                return task.concurrency_key(args)
        except KEY_ERRORS:
            logger.exception("The key of the limit of the callback %r is not known.", name)
            return None


def stored_options(row: Document, now: Moment, *, at: datetime | None, tenant: str | None) -> str:
    """Return the options of a callback as a batch stores them: JSON text, by henri's names.

    :param row: The callback as it would be enqueued now; every default is resolved, since the
        process that ends the batch may not know the task.
    :param at: The moment it was given; a wait begins at the end of the batch instead.
    """
    options = {
        "maxAttempts": row["max_attempts"],
        "priority": row["priority"],
        "queue": row["queue"],
        "tags": row.get("tags"),
        "redact": row.get("redact"),
        "tenant": tenant,
        "timeout": row["timeout_ms"],
        "at": to_moment(at) if at else None,
        "wait": None if at else row["run_at"] - now or None,
    }
    return json.dumps({key: value for key, value in options.items() if value is not None})


class _Options:
    """The options of a stored callback, whoever wrote them; what is amiss has its default.

    A batch must end even if another application wrote nonsense for its callback.
    """

    def __init__(self, given: t.Any, settings: Settings, now: Moment) -> None:
        self._given: dict[str, t.Any] = given if isinstance(given, dict) else {}
        self._settings = settings
        self._now = now

    @property
    def queue(self) -> str:
        return self._text("queue") or self._settings.default_queue

    @property
    def tenant(self) -> str | None:
        return self._text("tenant")

    @property
    def priority(self) -> int:
        priority = self._number("priority", self._settings.priority)
        return min(max(priority, HIGHEST_PRIORITY), LOWEST_PRIORITY)

    @property
    def max_attempts(self) -> int:
        return max(1, self._number("maxAttempts", self._settings.max_attempts))

    @property
    def timeout_ms(self) -> int | None:
        default = self._settings.timeout
        return self._millis("timeout", millis(default) if default else None)

    @property
    def run_at(self) -> Moment:
        at = self._given.get("at")
        try:
            # Henri writes a moment as JavaScript's JSON does: in ISO 8601, or milliseconds.
            if isinstance(at, str):
                return to_moment(datetime.fromisoformat(at))
        except (TypeError, ValueError):
            return self._now
        return self._number("at", self._now + (self._millis("wait", None) or 0))

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts; None where there is none."""
        texts = self._given.get(name)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return None
        return texts or None

    def _text(self, name: str) -> str | None:
        value = self._given.get(name)
        return value if isinstance(value, str) and value else None

    def _number(self, name: str, default: int) -> int:
        value = self._given.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return default
        return int(value)

    def _millis(self, name: str, default: int | None) -> int | None:
        value = self._given.get(name)
        if isinstance(value, str):
            try:
                return millis(to_duration(value, name))
            except ConfigError:
                return default
        number = self._number(name, -1)
        return default if number < 0 else number
