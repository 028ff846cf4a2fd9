"""Opening, filling and sealing batches."""

from __future__ import annotations

import json
import typing as t
from datetime import UTC, datetime

import pytest
from flask import Flask
from pymongo.errors import AutoReconnect

from flask_henri_jobs import (
    BatchSealed,
    ConfigError,
    HenriJobs,
    InvalidArguments,
    StoreUnavailable,
    UniqueKeyTaken,
    UnknownBatch,
    signals,
)
from flask_henri_jobs.store.inbox import Inbox

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from batch_tasks import Tasks

Document: t.TypeAlias = dict[str, t.Any]


def test_callback_after_the_last_job(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]
) -> None:
    """B2: the callback is called once, with its arguments and the counts; dead jobs count."""
    with jobs.batch(callback=tasks.finished, callback_args={"account": 7}, name="import") as batch:
        batch.add(tasks.work, 1)
        batch.add(tasks.work.using(priority=5), 2)
        batch.add(tasks.fail, 3)
        batch.add_many(tasks.work, [{"n": 4}, {"n": 5}])

    work_off()

    counts = {"total": 5, "done": 5, "failed": 1, "succeeded": 4}
    assert tasks.called == [
        ("finished", {"id": batch.id, "name": "import", "account": 7, **counts})
    ]
    batch.refresh()
    assert batch.state == "finished"
    assert {name: getattr(batch, name) for name in counts} == counts
    assert jobs.get(batch.callback_id or "").name == "finished"  # type: ignore[union-attr]


@pytest.mark.parametrize(("task", "told"), [("work", "succeeded"), ("fail", "failed")])
def test_success_and_failure(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None], task: str, told: str
) -> None:
    """B2: one of on_success and on_failure is called, by whether a job failed."""
    with jobs.batch(on_success="succeeded", on_failure="failed") as batch:
        batch.add(getattr(tasks, task), 1)

    work_off()

    assert [name for name, _ in tasks.called] == [told]
    assert batch.refresh().callback_id is None


def test_empty_batch(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """B4: a batch without jobs is finished at once, and its callback follows."""
    with jobs.batch(callback=tasks.finished) as batch:
        pass

    assert batch.state == "finished"
    work_off()
    assert [given["total"] for _, given in tasks.called] == [0]


def test_sealed_after_its_jobs_ended(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]
) -> None:
    """A batch whose jobs have all ended before it is sealed is finished by the seal."""
    batch = jobs.batch(callback=tasks.finished)
    batch.add(tasks.work, 1)
    work_off()
    assert (batch.refresh().state, tasks.called) == ("open", [])

    assert batch.seal().state == "finished"

    work_off()
    assert [given["total"] for _, given in tasks.called] == [1]


def test_builder_that_raises(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """B4: an exception in the block leaves the batch unsealed: no callback follows."""
    batch = jobs.batch(callback=tasks.finished)
    with pytest.raises(ZeroDivisionError), batch:
        batch.add_many(tasks.work, ({"n": 2 // n} for n in (2, 1, 0)))

    work_off()

    assert tasks.called == []
    assert [found.id for found in jobs.batches.list(state="open")] == [batch.id]


def test_sealed_batch_refuses(jobs: HenriJobs, tasks: Tasks) -> None:
    """B4: a sealed batch takes no job, also not by a handle that does not know of the seal."""
    batch = jobs.batch()
    other = jobs.batches.open(batch.id)
    batch.seal()

    for handle in (batch, other):
        with pytest.raises(BatchSealed, match="was sealed"):
            handle.add(tasks.work, 1)
        with pytest.raises(BatchSealed, match="was sealed"):
            handle.add_many(tasks.work, [{"n": 1}])
    with pytest.raises(BatchSealed):
        jobs.batches.open(batch.id)
    assert jobs.count(batch=batch.id) == 0


def test_sealed_twice(jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]) -> None:
    """B1: the total is written once; sealing again changes nothing, and calls nobody."""
    batch = jobs.batch(callback=tasks.finished)
    other = jobs.batches.open(batch.id)
    batch.add(tasks.work, 1)
    sealed_at = batch.seal().sealed_at

    assert other.seal().sealed_at == sealed_at
    work_off()
    batch.seal()
    work_off()

    assert len(tasks.called) == 1


def test_deleted_under_its_builder(jobs: HenriJobs, tasks: Tasks) -> None:
    """A batch that was deleted takes no job, and is not sealed."""
    batch = jobs.batch()
    jobs.batches.delete(batch.id)

    for use in (lambda: batch.add(tasks.work, 1), batch.seal, batch.refresh):
        with pytest.raises(UnknownBatch):
            use()


def test_unique_job_that_was_there(
    jobs: HenriJobs, tasks: Tasks, work_off: Callable[[], None]
) -> None:
    """B4: a job that held the unique key is returned, is no member, and is not counted."""
    holder = tasks.once.delay(1)

    with jobs.batch(callback=tasks.finished) as batch:
        single = batch.add(tasks.once, 1)
        many = batch.add_many(tasks.once, [{"n": 1}, {"n": 2}, {"n": 2}])

    assert (single.id, single.created) == (holder.id, False)
    assert [job.created for job in many] == [False, True, False]
    assert batch.total == 1
    assert [job.id for job in batch.jobs()] == [many[1].id]
    work_off()
    assert [given["total"] for _, given in tasks.called] == [1]


def test_conflict_is_raised(jobs: HenriJobs, tasks: Tasks) -> None:
    """Q7: ``on_conflict="raise"`` is as good in a batch."""
    tasks.once.delay(1)

    with pytest.raises(UniqueKeyTaken), jobs.batch() as batch:
        batch.add_many(tasks.once.using(on_conflict="raise"), [{"n": 1}])


def test_many(jobs: HenriJobs, tasks: Tasks) -> None:
    """Very many jobs are stored, from a generator too, and returned in the order given."""
    with jobs.batch() as batch:
        added = batch.add_many(tasks.work, ({"n": n} for n in range(2_345)))

    assert [job.args["n"] for job in added] == list(range(2_345))
    assert batch.total == jobs.count(batch=batch.id) == 2_345


def test_signals_of_a_builder(jobs: HenriJobs, tasks: Tasks) -> None:
    """Each stored job is told of, the callback too, and the end of the batch once."""
    enqueued, ended = [], []

    def hear(app: object, job: t.Any) -> None:
        enqueued.append(job.name)

    def hear_end(app: object, batch: t.Any) -> None:
        ended.append(batch.id)

    with signals.job_enqueued.connected_to(hear), signals.batch_finished.connected_to(hear_end):
        with jobs.batch(callback=tasks.finished) as empty:
            pass
        with jobs.batch() as batch:
            batch.add(tasks.work, 1)
            batch.add_many(tasks.work, [{"n": 2}])

    assert enqueued == ["finished", "work", "work"]
    assert ended == [empty.id]


def test_as_henri_stores_it(jobs: HenriJobs, tasks: Tasks, stored: Collection[Document]) -> None:
    """The document of a batch has henri's fields, and its callback's options henri's names."""
    with jobs.batch(
        callback=tasks.finished.using(queue="low", wait="5m"),
        callback_args={"account": 7},
        name="import",
    ) as batch:
        batch.add(tasks.work, 1)

    row = stored.database["henri_jobs_batches"].find_one({"_id": batch.id}) or {}
    assert set(row) == {
        *("_id", "name", "callback", "callback_args", "callback_options", "callback_id", "total"),
        *("done", "failed", "created_at", "sealed_at", "finished_at", "updated_at"),
    }
    assert (row["callback"], json.loads(row["callback_args"])) == ("finished", {"account": 7})
    assert json.loads(row["callback_options"]) == {
        "maxAttempts": 5,
        "priority": 0,
        "queue": "low",
        "wait": 300_000,
    }
    member = stored.find_one({"batch_id": batch.id}) or {}
    assert member["name"] == "work"


def test_options_of_a_callback(jobs: HenriJobs, tasks: Tasks) -> None:
    """A callback has the options it was given; a wait begins at the batch's end."""
    callback = tasks.finished.using(queue="low", priority=7, max_attempts=2, wait="5m")

    with jobs.batch(callback=callback, tenant="acme") as batch:
        pass

    job = jobs.get(batch.callback_id or "")
    assert job is not None
    assert (job.queue, job.priority, job.max_attempts, job.tenant) == ("low", 7, 2, "acme")
    assert batch.finished_at is not None
    assert 299 < (job.run_at - batch.finished_at).total_seconds() < 301
    assert job.unique_key == f"batch:{batch.id}"


@pytest.mark.parametrize("key", ["account", lambda **args: args["account"]])
def test_limited_callback(jobs: HenriJobs, stored: Collection[Document], key: t.Any) -> None:
    """L1, B2: a callback of a limited task is counted by its arguments, as any job of it; where
    those have no key it is left to the group, and the batch ends all the same (L5)."""

    @jobs.task(name="report", concurrency={"limit": 1, "key": key, "group": "reports"})
    def report(batch: object, account: int) -> None: ...

    batches = [jobs.batch(callback=report, callback_args={"account": 7}) for _ in range(2)]
    stored.database["henri_jobs_batches"].update_one(
        {"_id": batches[1].id}, {"$set": {"callback_args": "{}"}}
    )

    for batch in batches:
        batch.seal()

    callbacks = [jobs.get(batch.callback_id or "") for batch in batches]
    assert [job and job.concurrency_key for job in callbacks] == ["reports:7", None]


def test_callback_that_henri_described(
    jobs: HenriJobs, tasks: Tasks, stored: Collection[Document]
) -> None:
    """A batch that a henri application has begun is ended with the options that it wrote."""
    options = {"at": "2031-01-01T00:00:00.000Z", "maxAttempts": 2, "queue": "low", "timeout": "30s"}
    batch = jobs.batch(callback=tasks.finished)
    stored.database["henri_jobs_batches"].update_one(
        {"_id": batch.id},
        {"$set": {"callback_options": json.dumps({**options, "priority": -1e9}), "total": 0.0}},
    )

    batch.seal()

    job = jobs.get(batch.callback_id or "")
    assert job is not None
    assert job.run_at == datetime(2031, 1, 1, tzinfo=UTC)
    assert (job.queue, job.max_attempts, job.priority) == ("low", 2, -100)
    assert job.timeout is not None
    assert job.timeout.total_seconds() == 30


def test_tenant(jobs: HenriJobs, tasks: Tasks) -> None:
    """T1: a batch's tenant is its members' too."""
    with jobs.batch(tenant="acme") as batch:
        batch.add(tasks.work, 1)
        batch.add_many(tasks.work, [{"n": 2}])

    assert [job.tenant for job in batch.jobs()] == ["acme", "acme"]
    assert [found.id for found in jobs.batches.list(tenant="acme")] == [batch.id]
    assert jobs.batches.list(tenant="other") == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"sesion": None}, ConfigError, "sesion"),
        ({"session": object()}, ConfigError, "a session of pymongo is due"),
        ({"callback": len}, ConfigError, "Give a task"),
        ({"name": {"$gt": ""}}, ConfigError, "name is a dict"),
        ({"callback": "work", "callback_args": [1]}, InvalidArguments, "callback_args is a list"),
        ({"callback": "w", "callback_args": {"a": len}}, InvalidArguments, "callback_args"),
    ],
)
def test_bad_options(
    jobs: HenriJobs, options: dict[str, t.Any], error: type[Exception], said: str
) -> None:
    """What a batch cannot do is refused before it is stored, and says what is wrong."""
    with pytest.raises(error, match=said):
        jobs.batch(**options)
    assert jobs.batches.list() == []


def test_callback_that_cannot_be_called(jobs: HenriJobs, tasks: Tasks) -> None:
    """A callback that does not take ``batch``, or lacks an argument, is refused at once."""
    with pytest.raises(InvalidArguments, match="batch"):
        jobs.batch(callback=tasks.work, callback_args={"n": 1})
    with pytest.raises(InvalidArguments, match="acount"):
        jobs.batch(callback=tasks.finished, callback_args={"acount": 7})
    with pytest.raises(ConfigError, match="unique key or a session of its own"):
        jobs.batch(callback=tasks.finished.using(unique="mine"))


def test_bad_members(jobs: HenriJobs, tasks: Tasks) -> None:
    """What is no task, or does not fit one, is refused where it is added."""
    batch = jobs.batch()
    with pytest.raises(ConfigError, match="to add"):
        batch.add("work", 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="does not take"):
        batch.add(tasks.work, 1, 2)  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="Item 1 of add_many"):
        batch.add_many(tasks.work, [{"n": 1}, 2])  # type: ignore[list-item]
    assert jobs.count(batch=batch.id) == 0


class LostReplies:
    """Has inserts stored and their replies lost, so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1
        for name in ("_insert", "_insert_many"):
            monkeypatch.setattr(Inbox, name, self._losing(getattr(Inbox, name)))

    def _losing(self, insert: Callable[..., t.Any]) -> Callable[..., t.Any]:
        def insert_and_lose(inbox: Inbox, given: t.Any) -> t.Any:
            inserted = insert(inbox, given)
            if self.left:
                self.left -= 1
                if isinstance(given, dict):
                    raise StoreUnavailable("The reply was lost.", maybe_stored=given["_id"])
                raise AutoReconnect("connection closed")
            return inserted

        return insert_and_lose


def test_lost_reply_of_an_add(
    jobs: HenriJobs,
    tasks: Tasks,
    work_off: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B4: a job whose insert was not answered is there once when the batch is sealed."""
    batch = jobs.batch(callback=tasks.finished)
    replies = LostReplies(monkeypatch)
    with pytest.raises(StoreUnavailable):
        batch.add(tasks.work, 1)
    replies.left = 1
    with pytest.raises(StoreUnavailable):
        batch.add_many(tasks.work, [{"n": 2}, {"n": 3}])

    assert batch.seal().total == jobs.count(batch=batch.id) == 3

    work_off()
    assert [given["total"] for _, given in tasks.called] == [3]


def test_inline(jobs: HenriJobs, app: Flask) -> None:
    """A batch is refused where jobs are performed at once: it would be stored, and never end."""
    inline = Flask("inline")
    inline.config.update(app.config, HENRI_JOBS_INLINE=True)
    other = HenriJobs(inline)
    with inline.app_context(), pytest.raises(ConfigError, match="HENRI_JOBS_INLINE"):
        other.batch()
    assert jobs.batches.list() == []
