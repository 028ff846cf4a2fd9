"""From a call to a stored job."""

from __future__ import annotations

import json
import typing as t
from datetime import UTC, datetime, timedelta

import pytest

from bad_inputs import BAD_ARGUMENTS
from flask_henri_jobs import (
    ConfigError,
    HenriJobs,
    InvalidArguments,
    Job,
    StoreUnavailable,
    UniqueKeyTaken,
    UnknownTask,
    signals,
)

if t.TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from flask_henri_jobs import Task

MINUTE = timedelta(minutes=1)


@pytest.fixture
def add(jobs: HenriJobs) -> Task[..., int]:
    @jobs.task(name="add")
    def add(a: int, b: int = 2) -> int:
        return a + b

    return add


@pytest.fixture
def heard(app: Flask) -> t.Iterator[list[Job]]:
    """The jobs that ``job_enqueued`` told of."""
    jobs: list[Job] = []

    def receiver(app: Flask, job: Job) -> None:
        jobs.append(job)

    with signals.job_enqueued.connected_to(receiver, app):
        yield jobs


def stored(jobs: HenriJobs, job: Job) -> dict[str, t.Any]:
    row = jobs.database["henri_jobs"].find_one({"_id": job.id})
    assert row is not None
    return row


def test_delay(jobs: HenriJobs, add: Task[..., int], heard: list[Job]) -> None:
    """``delay`` stores the document that a henri runner reads, and returns the job."""
    job = add.delay(1)

    row = stored(jobs, job)
    assert row == job.row
    assert set(row) == {
        *["_id", "name", "queue", "state", "priority", "run_at", "created_at", "updated_at"],
        *["started_at", "finished_at", "claimed_at", "claimed_by", "claim_token"],
        *["heartbeat_at", "attempts", "max_attempts", "timeout_ms", "duration_ms", "args"],
        *["error_message", "error_stack", "history"],
    }
    assert (row["name"], row["queue"], row["state"], row["args"]) == (
        *("add", "default", "pending"),
        '{"a":1}',
    )
    assert (job.created, job.attempts, job.max_attempts, job.priority) == (True, 0, 5, 0)
    assert job.run_at == job.created_at
    assert heard == [job]


def test_arguments_come_by_name(jobs: HenriJobs, add: Task[..., int]) -> None:
    """Q8: Positional arguments are stored under their names; defaults are left to the runner."""
    assert [add.delay(1, 2).args, add.delay(b=2, a=1).args] == [{"a": 1, "b": 2}] * 2
    assert add.delay(1).args == {"a": 1}


@pytest.mark.parametrize(("args", "kwargs", "message"), BAD_ARGUMENTS)
def test_bad_arguments(
    jobs: HenriJobs, args: tuple[t.Any, ...], kwargs: dict[str, t.Any], message: str
) -> None:
    """Q8: Bad arguments are refused at enqueue, with the path, and nothing is stored."""

    @jobs.task(name="mail")
    def mail(user_id: t.Any, *, subject: str = "Hello") -> None: ...

    with pytest.raises(InvalidArguments) as refused:
        t.cast("Task[..., None]", mail).delay(*args, **kwargs)

    assert str(refused.value) == message
    assert jobs.count() == 0


def test_options(jobs: HenriJobs) -> None:
    """An option of the enqueue wins over the task's, and the task's over the app's."""

    @jobs.task(queue="mail", priority=3, max_attempts=2)
    def mail() -> None: ...

    own, other = mail.delay(), mail.using(queue="low", priority=-1, max_attempts=9).delay()

    assert (own.queue, own.priority, own.max_attempts) == ("mail", 3, 2)
    assert (other.queue, other.priority, other.max_attempts) == ("low", -1, 9)
    assert mail.using(queue="low").using(queue=None).delay().queue == "mail"  # type: ignore[arg-type]


def test_chained_options(add: Task[..., int]) -> None:
    """``using`` may be chained; a later word wins, and the task itself stays as it was."""
    at = datetime(2030, 1, 1, tzinfo=UTC)
    low = add.using(queue="low", wait="5m")
    job = low.using(at=at, priority=1).delay(1)

    assert (job.queue, job.priority, job.run_at) == ("low", 1, at)
    assert low.delay(1).priority == 0
    assert add.delay(1).queue == "default"


def test_tags(jobs: HenriJobs, add: Task[..., int]) -> None:
    """A job is found by each of its tags; the field is absent where it has none."""
    tagged = add.using(tags=("order:42", "refund", "order:42")).delay(1)
    plain, taken_back = add.delay(2), add.using(tags=("refund",)).using(tags=()).delay(3)

    assert tagged.tags == ("order:42", "refund")
    assert "tags" not in plain.row.keys() | taken_back.row.keys()
    for tag in tagged.tags:
        assert jobs.list(tag=tag) == [tagged]
    assert jobs.count(tag="order:42") == 1
    assert jobs.count(tag="order:43") == 0


def test_what_is_done_by_tag(jobs: HenriJobs, add: Task[..., int]) -> None:
    """``retry_all`` and ``delete_all`` take the jobs that have the tag, and no other."""
    tagged = [add.using(tags=("order:42", f"item:{n}")).delay(n) for n in range(3)]
    others = [add.delay(n) for n in range(2)]
    rows = jobs.database["henri_jobs"]
    rows.update_many({}, {"$set": {"state": "dead", "dead_reason": "failed"}})

    assert jobs.retry_all(tag="order:42") == 3
    assert {job.id for job in jobs.list(state="pending")} == {job.id for job in tagged}
    assert jobs.delete_all(tag="item:1") == 1
    assert jobs.delete_all(tag="order:42", state="dead") == 0
    assert {job.id for job in jobs.list()} == {tagged[0].id, tagged[2].id, *(j.id for j in others)}


@pytest.mark.parametrize("wait", ["5m", 300, 300.0, timedelta(minutes=5)])
def test_wait(add: Task[..., int], wait: t.Any) -> None:
    """``wait`` counts from now, by the server's clock."""
    job = add.using(wait=wait).delay(1)

    assert job.run_at - job.created_at == 5 * MINUTE


def test_at(add: Task[..., int]) -> None:
    """``at`` is a moment, in whatever zone; one in the past is due at once."""
    zone = datetime.fromisoformat("2030-01-01T01:00:00+01:00")

    assert add.using(at=zone).delay(1).run_at == datetime(2030, 1, 1, tzinfo=UTC)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    assert add.using(at=past).delay(1).run_at == past


def test_expires(jobs: HenriJobs, add: Task[..., int]) -> None:
    """X3: A lifetime counts from when the job is due; a moment is that moment."""

    @jobs.task(expires="10m")
    def remind() -> None: ...

    job = remind.using(wait="5m").delay()
    assert job.expires_at == job.run_at + 10 * MINUTE
    job = remind.using(expires="1m").delay()
    assert job.expires_at == job.created_at + MINUTE
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert add.using(expires=at, wait="5m").delay(1).expires_at == at
    assert add.delay(1).expires_at is None


def test_apply_async(add: Task[..., int]) -> None:
    """``apply_async`` takes Celery's names, and ours beside them."""
    eta = datetime(2030, 1, 1, tzinfo=UTC)
    job = add.apply_async(args=(1,), kwargs={"b": 3}, countdown=60, queue="low")

    assert (job.args, job.queue) == ({"a": 1, "b": 3}, "low")
    assert job.run_at - job.created_at == MINUTE
    assert add.apply_async([1, 2], eta=eta).run_at == eta
    assert add.using(queue="low").apply_async((1,)).queue == "low"
    with pytest.raises(ConfigError, match="Both wait= and at= are given"):
        add.apply_async((1,), countdown=60, eta=eta)


def test_id(jobs: HenriJobs, add: Task[..., int], heard: list[Job]) -> None:
    """Q7: An id that exists returns its job, which is not announced as new."""
    first = add.using(id="order 42").delay(1)
    again = add.using(id="order 42").delay(2)

    assert (first.created, again.created) == (True, False)
    assert again.args == {"a": 1}
    assert (jobs.count(), heard) == (1, [first])


def test_ids_keep_the_order(add: Task[..., int]) -> None:
    """Q2: Ids grow in the order of the enqueues, within a millisecond too."""
    ids = [add.delay(number).id for number in range(50)]

    assert ids == sorted(ids)


def test_delay_many(jobs: HenriJobs, add: Task[..., int], heard: list[Job]) -> None:
    """``delay_many`` stores thousands in the order given, with the options of ``using``."""
    many = add.using(queue="low", wait="1m").delay_many({"a": number} for number in range(2500))

    assert [job.args["a"] for job in many] == list(range(2500))
    assert [job.id for job in many] == sorted(job.id for job in many)
    assert {(job.queue, job.run_at - job.created_at) for job in many} == {("low", MINUTE)}
    assert jobs.count(queue="low") == 2500
    assert heard == many
    assert add.delay_many([]) == []


@pytest.mark.parametrize(
    ("many", "message"),
    [
        ([{"a": 1}, 7], "Item 1 of delay_many is 7. Give a mapping of arguments for each job."),
        ({"a": 1}, "Item 0 of delay_many is 'a'. Give a mapping of arguments for each job."),
        (
            [{"a": 1}, {"c": 1}],
            (
                "The task add does not take these arguments: missing a required argument: 'a'."
                " It takes a, b."
            ),
        ),
        ([{"a": 1}, {"a": print}], "args.a is a function."),
    ],
)
def test_bad_many(jobs: HenriJobs, add: Task[..., int], many: t.Any, message: str) -> None:
    """One bad item stores none of them."""
    with pytest.raises(InvalidArguments) as refused:
        add.delay_many(many)

    assert str(refused.value).startswith(message)
    assert jobs.count() == 0


def test_many_with_one_id(add: Task[..., int]) -> None:
    """One id for many jobs is refused, since all but the first would be lost."""
    with pytest.raises(ConfigError, match="delay_many was given id=, and each job has its own"):
        add.using(id="a").delay_many([{"a": 1}])


@pytest.mark.parametrize(
    ("unique", "same", "another", "key"),
    [
        (True, {"b": 2, "a": 1}, {"a": 1, "b": 3}, 'sync:{"a": 1, "b": 2}'),
        ("a", {"a": 1, "b": 9}, {"a": 2, "b": 2}, "sync:1"),
        (("b", "a"), {"a": 1, "b": 2}, {"a": 2, "b": 2}, "sync:[2,1]"),
        (lambda a, c, **_: f"{a}/{c}", {"a": 1, "b": 9}, {"a": 2, "b": 2}, "sync:1/3"),
    ],
    ids=["all", "name", "tuple", "callable"],
)
def test_unique(
    jobs: HenriJobs,
    heard: list[Job],
    unique: t.Any,
    same: dict[str, int],
    another: dict[str, int],
    key: str,
) -> None:
    """Q7: At most one waiting job has a key; who comes second is handed the one that is there."""

    @jobs.task(name="sync", unique=unique)
    def sync(a: int, b: int, c: int = 3) -> None: ...

    first, second = sync.delay(1, 2), sync.delay(**same)
    other = sync.delay(**another)

    assert (first.unique_key, first.created) == (key, True)
    assert (second.id, second.created) == (first.id, False)
    assert other.created
    assert heard == [first, other]


def test_keys_of_a_tuple_are_not_mixed_up(jobs: HenriJobs) -> None:
    """Q7: Two jobs whose arguments only read alike when they are joined are two jobs."""

    @jobs.task(name="sync", unique=("a", "b"))
    def sync(a: str, b: str) -> None: ...

    assert sync.delay("x:y", "z").created
    assert sync.delay("x", "y:z").created


def test_callable_may_return_none(jobs: HenriJobs) -> None:
    """Q7: A job whose key is None is not unique, and a key that is no text is refused."""

    @jobs.task(name="sync", unique=lambda a: a)
    def sync(a: t.Any) -> None: ...

    assert [sync.delay(None).unique_key, sync.delay(None).created] == [None, True]
    for bad in ("", 7, ["a"]):
        with pytest.raises(InvalidArguments, match=r"unique= of the task sync returned .*"):
            sync.delay(bad)


def test_a_long_key_is_a_digest(jobs: HenriJobs) -> None:
    """Q7: A key that is too long for the index is stored as its digest, and is as unique."""

    @jobs.task(name="sync", unique="a")
    def sync(a: str) -> None: ...

    long, same, other = (sync.delay("x" * 600 + end) for end in ("1", "1", "2"))

    assert long.unique_key is not None
    assert long.unique_key.startswith("sync:sha256:")
    assert len(long.unique_key) == len("sync:sha256:") + 64
    assert (same.id, same.created, other.created) == (long.id, False, True)


def test_unique_option(jobs: HenriJobs) -> None:
    """Q7: ``using(unique=)`` gives the key itself, and None makes the job an ordinary one."""

    @jobs.task(name="sync", unique="a")
    def sync(a: int) -> None: ...

    first = sync.using(unique="sync:today").delay(1)
    assert first.unique_key == "sync:today"
    assert not sync.using(unique="sync:today").delay(2).created
    plain = sync.using(unique=None).using(queue="low")
    assert [plain.delay(1).unique_key, plain.delay(1).created] == [None, True]


def test_on_conflict(jobs: HenriJobs, add: Task[..., int]) -> None:
    """Q7: A conflict returns the holder, raises, or gives the holder new arguments."""
    keyed = add.using(unique="add:today")
    first = keyed.delay(1)

    assert keyed.using(on_conflict="return").delay(2).id == first.id
    with pytest.raises(UniqueKeyTaken, match=f"is held by job {first.id} of the task add"):
        keyed.using(on_conflict="raise").delay(2)
    replaced = keyed.using(on_conflict="replace", wait="1h").delay(3)
    assert (replaced.id, replaced.created, replaced.args) == (first.id, False, {"a": 3})
    assert stored(jobs, first)["args"] == '{"a":3}'
    assert replaced.run_at - replaced.created_at > 59 * MINUTE


def test_conflict_among_many(jobs: HenriJobs, add: Task[..., int]) -> None:
    """Q7: ``delay_many`` goes by ``on_conflict`` too."""
    add.using(unique="add:1").delay(1)

    with pytest.raises(UniqueKeyTaken):
        add.using(unique="add:1", on_conflict="raise").delay_many([{"a": 2}])
    [job] = add.using(unique="add:1", on_conflict="replace").delay_many([{"a": 3}])
    assert (job.created, job.args) == (False, {"a": 3})


def test_a_key_of_another_task(jobs: HenriJobs, add: Task[..., int]) -> None:
    """Q7: A key that a job of another task holds raises, whatever ``on_conflict`` says."""

    @jobs.task(name="other")
    def other() -> None: ...

    add.using(unique="today").delay(1)
    for choice in ("return", "raise", "replace"):
        with pytest.raises(UniqueKeyTaken, match="of the task add, which is pending"):
            other.using(unique="today", on_conflict=choice).delay()


def test_enqueue_by_name(jobs: HenriJobs, add: Task[..., int]) -> None:
    """``jobs.enqueue`` of a known task is ``delay``: options hold and arguments are bound."""

    @jobs.task(name="sync", queue="sync", unique="a")
    def sync(a: int, b: int = 2) -> None: ...

    job = jobs.enqueue("sync", {"a": 1}, priority=4)

    assert (job.queue, job.priority, job.unique_key) == ("sync", 4, "sync:1")
    assert jobs.enqueue("sync", 7).args == {"a": 7}
    with pytest.raises(InvalidArguments, match="The task sync does not take"):
        jobs.enqueue("sync")
    with pytest.raises(InvalidArguments, match="The task add does not take"):
        jobs.enqueue("add", {"c": 1})


@pytest.mark.parametrize(
    ("args", "text"), [(None, "null"), ({"id": 7}, '{"id":7}'), ([1, 2], "[1,2]"), ("a", '"a"')]
)
def test_enqueue_for_another_app(jobs: HenriJobs, args: t.Any, text: str) -> None:
    """A task that another app owns is enqueued by its name, with any JSON value."""
    job = jobs.enqueue("henri/task", args, queue="henri", unique="henri:7")

    row = stored(jobs, job)
    assert (row["name"], row["queue"], row["args"]) == ("henri/task", "henri", text)
    assert row["unique_key"] == "henri:7"


def test_perform_now(jobs: HenriJobs, add: Task[..., int]) -> None:
    """``perform_now`` performs a task through the codec and stores nothing."""

    @jobs.task(name="kind")
    async def kind(of: t.Any) -> str:
        return type(of).__name__

    assert jobs.perform_now("add", {"a": 1}) == 3
    assert jobs.perform_now("kind", {"of": (1, 2)}) == "tuple"
    assert jobs.perform_now("kind", "text") == "str"
    with pytest.raises(UnknownTask, match=r"No task is named 'ad'\. Did you mean 'add'\?"):
        jobs.perform_now("ad")
    with pytest.raises(InvalidArguments, match=r"args\.of is a function"):
        jobs.perform_now("kind", {"of": print})
    assert jobs.count() == 0


def test_too_large(make_app: Callable[..., Flask]) -> None:
    """Q8: ``HENRI_JOBS_MAX_ARGS_BYTES`` bounds what a job carries."""
    app = make_app(HENRI_JOBS_MAX_ARGS_BYTES=100)
    jobs = HenriJobs(app)

    with app.app_context():
        jobs.enqueue("a", "x" * 98)
        with pytest.raises(InvalidArguments, match="args takes 101 bytes as JSON, and at most 100"):
            jobs.enqueue("a", "x" * 99)
    jobs.state_of(app).close()


def test_what_travels_comes_back(jobs: HenriJobs) -> None:
    """Q8: What is stored reads back as what was given, from the database too."""
    values = {"at": datetime.now(UTC), "of": {1, 2}, "nested": [{"wait": MINUTE}], "none": None}
    job = jobs.enqueue("henri/task", values)

    found = jobs.get(job.id)
    assert found is not None
    assert found.args == job.args == values
    assert json.loads(found.row["args"])["none"] is None


def test_behind_a_transaction(make_app: Callable[..., Flask]) -> None:
    """Q11: Behind somebody's open transaction on its key an enqueue fails in time.

    It may be stored then, and enqueueing again under the id that the error has is safe.
    """
    app = make_app(HENRI_JOBS_ENQUEUE_TIMEOUT="1s")
    jobs = HenriJobs(app)
    with app.app_context(), jobs.client.start_session() as session:
        session.start_transaction()
        jobs.database["henri_jobs"].insert_one({"unique_key": "a:1"}, session=session)
        with pytest.raises(StoreUnavailable) as refused:
            jobs.enqueue("a", unique="a:1")
        session.abort_transaction()

        maybe_stored = refused.value.maybe_stored
        assert maybe_stored is not None
        assert maybe_stored in refused.value.hint
        assert jobs.enqueue("a", unique="a:1", id=maybe_stored).id == maybe_stored
        assert jobs.count() == 1
    jobs.state_of(app).close()


def test_coroutine_of_a_wrapper(jobs: HenriJobs) -> None:
    """W9: a plain wrapper around an ``async def`` is awaited as the function itself would be."""

    async def add(a: int, b: int) -> int:
        return a + b

    @jobs.task(name="wrapped")
    def wrapped(a: int, b: int) -> t.Any:
        return add(a, b)

    assert jobs.perform_now(wrapped.name, {"a": 1, "b": 2}) == 3
