"""Jobs of tenants, from their enqueue to their end."""

from __future__ import annotations

import threading
import typing as t

import pytest
from flask import Flask, request

from flask_henri_jobs import (
    ConfigError,
    HenriJobs,
    HenriJobsError,
    UniqueKeyTaken,
    current_job,
    current_tenant,
)
from flask_henri_jobs.errors import InvalidFilter, UnknownBatch, UnknownJob

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from flask_henri_jobs import Job, Task


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> Flask:
    app = Flask("shop")
    app.config.update(
        HENRI_JOBS_URI=mongo_uri,
        HENRI_JOBS_DATABASE=database_name,
        HENRI_JOBS_THREADS=1,
        HENRI_JOBS_TENANT=lambda: request.headers.get("X-Tenant"),
    )
    return app


@pytest.fixture
def jobs(app: Flask) -> Iterator[HenriJobs]:
    jobs = HenriJobs(app)
    with app.app_context():
        yield jobs
    jobs.state_of(app).close()


@pytest.fixture
def seen() -> list[tuple[str, str | None]]:
    """What was performed, and for whom."""
    return []


@pytest.fixture
def see(jobs: HenriJobs, seen: list[tuple[str, str | None]]) -> Task[[str], None]:
    @jobs.task(name="see", max_attempts=1)
    def see(what: str) -> None:
        seen.append((what, current_tenant()))
        if what == "fail":
            raise ValueError(what)

    return see


def in_request(app: Flask, tenant: str, function: t.Callable[[], Job]) -> Job:
    with app.test_request_context(headers={"X-Tenant": tenant}):
        return function()


def test_job_is_stamped_and_performed_for_its_tenant(
    app: Flask, jobs: HenriJobs, see: Task[[str], None], seen: list[tuple[str, str | None]]
) -> None:
    """T1: the scope, the request or the option says whose a job is; its task runs for that one."""
    with jobs.tenant("acme"):
        stored = [see.delay("scope"), see.using(tenant=None).delay("none")]
        stored += see.delay_many([{"what": "many"}])
        stored += [jobs.enqueue("see", {"what": "name"})]
    stored += [in_request(app, "globex", lambda: see.delay("request"))]
    stored += [see.using(tenant="initech").delay("option"), see.delay("nobody")]

    jobs.run_worker(once=True)

    expected = ["acme", None, "acme", "acme", "globex", "initech", None]
    assert [job.tenant for job in stored] == expected
    assert ["tenant" in job.row for job in stored] == [name is not None for name in expected]
    assert [tenant for _, tenant in seen] == expected


def test_tenant_leaks_into_no_other_job(jobs: HenriJobs) -> None:
    """T1, W9: what a task does to its scope, the next job in its thread knows nothing of."""
    seen: list[str | None] = []

    @jobs.task(max_attempts=1)
    def enter() -> None:
        seen.append(current_tenant())
        scope = jobs.tenant("left open")
        scope.__enter__()
        kept.append(scope)
        raise SystemExit

    kept: list[object] = []
    enter.delay()
    enter.delay()
    jobs.run_worker(once=True)

    assert seen == [None, None]
    assert not current_tenant


def test_task_enqueues_for_its_tenant(jobs: HenriJobs, see: Task[[str], None]) -> None:
    """T1: a job enqueued by a task is its tenant's; for another one it is refused in a task too."""
    raised: list[HenriJobsError] = []

    @jobs.task
    def follow() -> None:
        see.delay("next")
        try:
            see.using(tenant="globex").delay("other")
        except ConfigError as error:
            raised.append(error)

    with jobs.tenant("acme"):
        follow.delay()
    jobs.run_worker(once=True)

    assert [job.tenant for job in jobs.list(name="see")] == ["acme"]
    assert str(raised[0]) == (
        "using(tenant=) names the tenant 'globex', and this code runs for 'acme'."
        " Code that works across tenants says so first: with jobs.tenant(None): ..."
    )


def test_async_task_runs_for_its_tenant(jobs: HenriJobs) -> None:
    """T1: a coroutine runs for the tenant as a function does."""
    seen: list[str | None] = []

    @jobs.task
    async def see_async() -> None:
        seen.append(current_tenant())

    with jobs.tenant("acme"):
        see_async.delay()
    jobs.run_worker(once=True)

    assert seen == ["acme"]


def test_job_without_tenant_asks_no_function(
    app: Flask, jobs: HenriJobs, see: Task[[str], None], seen: list[tuple[str, str | None]]
) -> None:
    """T1: a job of no tenant runs for none, in a request context that its task makes as well."""

    @jobs.task
    def render() -> None:
        with app.test_request_context(headers={"X-Tenant": "acme"}):
            see.delay("rendered")

    render.delay()
    jobs.run_worker(once=True)

    assert seen == [("rendered", None)]


@pytest.fixture
def three(jobs: HenriJobs, see: Task[[str], None]) -> dict[str, Job]:
    """A dead job of acme's, one of globex's, and one of nobody's, by their tenants."""
    dead = {
        "acme": see.using(tenant="acme").delay("fail"),
        "globex": see.using(tenant="globex").delay("fail"),
        "nobody": see.delay("fail"),
    }
    jobs.run_worker(once=True)
    return dead


@pytest.mark.parametrize("in_scope", [True, False])
def test_a_tenant_sees_its_own_jobs(jobs: HenriJobs, three: dict[str, Job], in_scope: bool) -> None:
    """T2: listing, counting, retrying and deleting by tenant, in its scope or by name, see its."""
    own = [three["acme"].id]
    with jobs.tenant("acme" if in_scope else None):
        which: dict[str, t.Any] = {} if in_scope else {"tenant": "acme"}

        assert [job.id for job in jobs.list(**which)] == own
        assert [job.id for job in jobs.dead(**which)] == own
        assert jobs.count(**which) == 1
        assert jobs.count_retried(**which) == 1
        assert jobs.retry_all(**which) == 1
        assert [job.state for job in three.values() if job.refresh()] == ["pending", "dead", "dead"]
        assert jobs.delete_all(**which, state="pending") == 1
    assert {job.id for job in jobs.list()} == {three["globex"].id, three["nobody"].id}


@pytest.mark.parametrize("other", ["globex", "nobody"])
def test_jobs_of_others_are_not_there(jobs: HenriJobs, three: dict[str, Job], other: str) -> None:
    """T2: in a tenant's scope, the job of another or of nobody is found by no id."""
    theirs = three[other].id
    with jobs.tenant("acme"):
        assert jobs.get(theirs) is None
        with pytest.raises(UnknownJob, match=f"There is no job {theirs}"):
            jobs.retry(theirs)
        with pytest.raises(UnknownJob, match=f"There is no job {theirs}"):
            jobs.delete(theirs)
        with pytest.raises(UnknownJob, match=f"There is no job {theirs}"):
            jobs.cancel(theirs)
        assert jobs.retry(three["acme"].id).state == "pending"
        assert jobs.delete(three["acme"].id).tenant == "acme"
    assert three[other].refresh().state == "dead"


def test_filters_name_no_other_tenant(jobs: HenriJobs, three: dict[str, Job]) -> None:
    """T2: in a tenant's scope another one's jobs are refused, and read once it was left."""
    with jobs.tenant("acme"):
        with pytest.raises(
            InvalidFilter, match="tenant is 'globex', and this code runs for 'acme'"
        ):
            jobs.list(tenant="globex")
        with jobs.tenant(None):
            assert jobs.count(tenant="globex") == 1
            assert jobs.count() == 3


def test_scope_alone_deletes_nothing(jobs: HenriJobs, three: dict[str, Job]) -> None:
    """T2: delete_all wants to be told which jobs, in a tenant's scope as well."""
    with jobs.tenant("acme"), pytest.raises(InvalidFilter):
        jobs.delete_all()

    assert jobs.count() == len(three)


def test_request_sees_its_tenants_jobs(app: Flask, jobs: HenriJobs, three: dict[str, Job]) -> None:
    """T2: what a request asks for is narrowed to the tenant that it has."""
    with app.test_request_context(headers={"X-Tenant": "acme"}):
        assert [job.id for job in jobs.list()] == [three["acme"].id]
        assert jobs.get(three["globex"].id) is None


def test_unique_jobs_are_unique_by_tenant(jobs: HenriJobs) -> None:
    """T2, Q7: what one tenant has waiting is no reason to leave out another's job."""

    @jobs.task(name="sync", unique=True)
    def sync(account: int) -> None: ...

    made = []
    for tenant in ("acme", "globex", None, "acme"):
        with jobs.tenant(tenant):
            made.append(sync.delay(7))

    assert [job.created for job in made] == [True, True, True, False]
    assert made[3].id == made[0].id
    assert made[0].unique_key == 'sync:acme:{"account": 7}'


@pytest.mark.parametrize("on_conflict", ["return", "raise", "replace"])
def test_nobody_is_handed_anothers_job(
    jobs: HenriJobs, see: Task[[str], None], on_conflict: t.Any
) -> None:
    """T2, Q7: a key or an id that another tenant's job has is refused, whatever is asked for."""
    with jobs.tenant("acme"):
        theirs = see.using(unique="see:1", id="mine").delay("acme's")

    with jobs.tenant("globex"):
        by_key = see.using(unique="see:1", on_conflict=on_conflict)
        with pytest.raises(UniqueKeyTaken, match=r"^A job of another tenant has the unique key"):
            by_key.delay("globex's")
        with pytest.raises(UniqueKeyTaken, match=r"^A job of another tenant has the unique key"):
            by_key.delay_many([{"what": "globex's"}])
        with pytest.raises(UniqueKeyTaken, match=r"^A job of another tenant has the id 'mine'"):
            see.using(id="mine", on_conflict=on_conflict).delay("globex's")
    assert theirs.refresh().args == {"what": "acme's"}


def test_limit_counts_by_tenant(jobs: HenriJobs) -> None:
    """L1, T1: with current_tenant as its key, a limit holds for each tenant on its own."""
    both_inside = threading.Barrier(2, timeout=20)
    inside: list[str] = []
    most: list[int] = []

    @jobs.task(name="report", concurrency={"limit": 1, "key": current_tenant})
    def report() -> None:
        inside.append(current_job.tenant or "")
        most.append(len(inside) - len(set(inside)))
        # It is passed by two at a time only: one of each tenant, as the limit is one.
        both_inside.wait()
        inside.remove(current_job.tenant or "")
        both_inside.wait()

    for _ in range(2):
        for tenant in ("acme", "globex"):
            with jobs.tenant(tenant):
                report.delay()
    keys = {(job.tenant, job.concurrency_key) for job in jobs.list()}
    jobs.run_worker(once=True, threads=4)

    assert keys == {("acme", "report:acme"), ("globex", "report:globex")}
    assert most == [0, 0, 0, 0]
    assert jobs.count(state="done") == 4


def test_key_is_made_for_the_jobs_tenant(jobs: HenriJobs) -> None:
    """L1, T1: a key's callable sees the tenant that the job has, not the one around the enqueue."""

    @jobs.task(name="report", concurrency={"limit": 1, "key": lambda: str(current_tenant) or "all"})
    def report() -> None: ...

    with jobs.tenant("acme"):
        assert report.delay().concurrency_key == "report:acme"
        assert report.using(tenant=None).delay().concurrency_key == "report:all"
    assert report.using(tenant="globex").delay().concurrency_key == "report:globex"


def test_tenant_is_asked_for_once_for_many(app: Flask, jobs: HenriJobs) -> None:
    """T1: the function that finds a request's tenant is called once for delay_many."""
    asked: list[str] = []

    @jobs.task(name="count")
    def count(number: int) -> None: ...

    def find() -> str:
        asked.append("asked")
        return "acme"

    app.extensions["henri_jobs_tenant"] = find
    with app.test_request_context():
        stored = count.delay_many([{"number": number} for number in range(50)])

    assert {job.tenant for job in stored} == {"acme"}
    assert asked == ["asked"]


def test_inline_job_runs_for_its_tenant(mongo_uri: str) -> None:
    """T1: HENRI_JOBS_INLINE performs a job for its tenant, as a runner does."""
    app = Flask("inline")
    app.config.update(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_INLINE=True)
    jobs = HenriJobs(app)
    seen: list[str | None] = []

    @jobs.task(name="see")
    def see() -> None:
        seen.append(current_tenant())

    with app.app_context():
        with jobs.tenant("acme"):
            assert see.delay().tenant == "acme"
        see.delay()

    assert seen == ["acme", None]


def test_batch_carries_its_tenant(
    jobs: HenriJobs, see: Task[[str], None], seen: list[tuple[str, str | None]]
) -> None:
    """T1: a batch's members and its callback are its tenant's, in whatever scope they are added."""

    @jobs.task(name="finished")
    def finished(batch: dict[str, t.Any]) -> None:
        seen.append((batch["name"], current_tenant()))

    with jobs.tenant("acme"):
        batch = jobs.batch(callback=finished, name="import")
    with batch:
        batch.add(see, "one")
        batch.add_many(see, [{"what": "two"}])
        with pytest.raises(ConfigError, match="this code runs for 'acme'"):
            batch.add(see.using(tenant="globex"), "other")
    jobs.run_worker(once=True)

    assert batch.tenant == "acme"
    assert seen == [("one", "acme"), ("two", "acme"), ("import", "acme")]


@pytest.mark.parametrize(
    ("scope", "options", "tenant"),
    [
        ("acme", {}, "acme"),
        ("acme", {"tenant": None}, None),
        (None, {"tenant": "acme"}, "acme"),
        (None, {}, None),
    ],
)
def test_whose_batch_it_is(
    jobs: HenriJobs, scope: str | None, options: t.Any, tenant: str | None
) -> None:
    """T1: a batch is the tenant's in scope, or of one that is named, and None is for none."""
    with jobs.tenant(scope):
        assert jobs.batch(**options).tenant == tenant


def test_batch_of_nobody_has_members_of_many(jobs: HenriJobs, see: Task[[str], None]) -> None:
    """T1: in a batch without a tenant each member is whose it would be without the batch."""
    with jobs.batch() as batch:
        for tenant in ("acme", "globex", None):
            with jobs.tenant(tenant):
                batch.add(see, "each")

    assert {job.tenant for job in batch.jobs()} == {"acme", "globex", None}


def test_a_tenant_sees_its_own_batches(jobs: HenriJobs) -> None:
    """T2: in a tenant's scope the batches of others are not there, and not named."""
    own, other = jobs.batch(tenant="acme"), jobs.batch(tenant="globex")

    assert [batch.id for batch in jobs.batches.list(tenant="acme")] == [own.id]
    with jobs.tenant("acme"):
        assert [batch.id for batch in jobs.batches.list()] == [own.id]
        assert jobs.batches.get(own.id) is not None
        assert jobs.batches.get(other.id) is None
        for act in (jobs.batches.cancel, jobs.batches.delete, jobs.batches.jobs):
            with pytest.raises(UnknownBatch):
                act(other.id)
        with pytest.raises(InvalidFilter, match="tenant is 'globex'"):
            jobs.batches.list(tenant="globex")
        with pytest.raises(ConfigError, match=r"^jobs\.batch\(tenant=\) names the tenant"):
            jobs.batch(tenant="globex")
    assert other.refresh().state == "open"


def test_recurring_job_has_no_tenant(app: Flask, jobs: HenriJobs, see: Task[[str], None]) -> None:
    """T1: a schedule's job is nobody's, even where somebody's code has it run now."""

    @jobs.task(name="nightly", every="1h")
    def nightly() -> None: ...

    jobs.run_worker(once=True)
    with jobs.tenant("acme"):
        assert jobs.schedules.run_now("nightly").tenant is None
