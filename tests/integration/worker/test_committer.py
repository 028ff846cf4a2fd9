"""Group commit: outcomes that are ready go in one write, and are announced when they stand."""

from __future__ import annotations

import threading
import typing as t
from functools import partial

import pytest
from pymongo.errors import OperationFailure

from faults import CLOSED, LOST_REPLY, failing
from flask_henri_jobs import HenriJobs, Job, signals
from flask_henri_jobs.errors import StoreUnavailable
from flask_henri_jobs.outcome import Again, Dead, Done, Failure, HandedBack, Outcome, Snoozed
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker import committer as committer_module, loop
from flask_henri_jobs.worker.committer import (
    MOST_AT_ONCE,
    MOST_REFUSALS,
    Announcer,
    Committer,
    Settled,
)
from flask_henri_jobs.worker.execution import Ending
from flask_henri_jobs.worker.loop import Outages
from mongod import wait_until

if t.TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flask import Flask
    from pymongo import MongoClient
    from pymongo.collection import Collection

    from flask_henri_jobs.store import Store
    from hearing import Heard

Document: t.TypeAlias = dict[str, t.Any]

PATIENCE = 20.0
FAILURE = Failure(message="ValueError: no", stack="Traceback …")


class Commit:
    """A committer at work, what it follows up and lets go of, and the jobs that it writes of."""

    def __init__(self, app: Flask, store: Store) -> None:
        self.store = store
        self.followed: list[str] = []
        self.let_go: list[str] = []
        self.groups: list[int] = []
        self.in_hand = 0
        self.refuse: Exception | None = None
        self.announcer = Announcer(app)
        self.committer = Committer(
            store.outcomes,
            self.announcer,
            self._follow_up,
            self._note,
            Outages(),
            in_hand=lambda: self.in_hand,
        )

    def start(self) -> None:
        self.announcer.start()
        self.committer.start()

    def finish(self) -> None:
        """Write and announce all that was handed over."""
        assert self.committer.finish(PATIENCE)
        assert self.announcer.finish(PATIENCE)

    def hand_over(self, *endings: Ending) -> None:
        for ending in endings:
            self.committer.hand_over(ending)

    def _follow_up(self, group: list[Settled]) -> None:
        self.followed += [settled.ending.job.id for settled in group]
        if self.refuse is not None:
            raise self.refuse

    def _note(self, group: list[Settled]) -> None:
        self.let_go += [settled.ending.job.id for settled in group]
        self.groups.append(len(group))


@pytest.fixture
def commit(app: Flask, store: Store, monkeypatch: pytest.MonkeyPatch) -> Commit:
    """A committer that the test starts. It is tried again at once where something fails."""
    monkeypatch.setattr(loop, "SHORTEST_PAUSE", 0.001)
    return Commit(app, store)


@pytest.fixture
def claimed(jobs: HenriJobs, store: Store) -> Callable[[int], list[Job]]:
    """Jobs that this runner has claimed."""

    @jobs.task(name="work")
    def work() -> None: ...

    def claim(count: int) -> list[Job]:
        work.delay_many([{}] * count)
        return store.claims.take(Wish(runner="host:1:us", at_most=count))

    return claim


def done(jobs: Sequence[Job]) -> list[Ending]:
    return [Ending(job, Done(at=store_time(job), duration=20)) for job in jobs]


def store_time(job: Job) -> int:
    return int(job.row["started_at"]) + 20


def endings_of_every_kind(jobs: Sequence[Job]) -> list[Ending]:
    """Return one ending of each kind for four jobs."""
    at = store_time(jobs[0])
    outcomes: list[Outcome] = [
        Done(at=at, duration=20),
        Again(at=at, duration=20, run_at=at + 5000, failure=FAILURE),
        Snoozed(at=at, run_at=at + 5000),
        Dead(at=at, duration=20, reason="failed", failure=FAILURE),
    ]
    return [
        Ending(job, outcome, None if isinstance(outcome, Done | Snoozed) else ValueError("no"))
        for job, outcome in zip(jobs, outcomes, strict=True)
    ]


def states(stored: Collection[Document]) -> list[str]:
    return [row["state"] for row in stored.find().sort("_id")]


def test_every_kind_of_ending(
    commit: Commit,
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
    heard: Heard,
) -> None:
    """W2: What is ready goes in one write, and is announced in the order of the writes."""
    jobs = claimed(4)
    commit.hand_over(*endings_of_every_kind(jobs))
    heard.all.clear()
    commit.start()
    commit.finish()

    assert states(stored) == ["done", "pending", "pending", "dead"]
    assert commit.followed == commit.let_go == [job.id for job in jobs]
    assert [(name, facts["job"].id) for name, facts in heard.all] == [
        ("job_succeeded", jobs[0].id),
        ("job_failed", jobs[1].id),
        ("job_retried", jobs[1].id),
        ("job_snoozed", jobs[2].id),
        ("job_failed", jobs[3].id),
        ("job_died", jobs[3].id),
    ]


def test_a_slow_receiver_holds_up_no_commit(
    app: Flask,
    commit: Commit,
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
) -> None:
    """W2: While a receiver stands still, outcomes are written; it is told of all, in order."""
    jobs = claimed(300)
    told: list[str] = []
    entered, go_on = threading.Event(), threading.Event()

    def slow(_app: Flask, job: Job, **_facts: t.Any) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)
        told.append(job.id)

    with signals.job_succeeded.connected_to(slow, app):
        commit.start()
        commit.hand_over(*done(jobs))
        assert entered.wait(PATIENCE)
        wait_until(lambda: stored.count_documents({"state": "done"}) == 300, "the outcomes")
        assert told == []
        go_on.set()
        commit.finish()

    assert told == [job.id for job in jobs]


@pytest.fixture
def _far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "SPACING_SECONDS", 3600.0)


@pytest.mark.usefixtures("_far_apart")
@pytest.mark.parametrize("how", ["permit", "handed back", "finish"])
def test_outcomes_share_a_write(
    commit: Commit, claimed: Callable[[int], list[Job]], stored: Collection[Document], how: str
) -> None:
    """W2: Soon after a write the next one waits for more, until something is handed over that frees
    what others wait for, or the end comes."""
    first, *others = endings = done(claimed(4))
    commit.in_hand = 9
    commit.start()
    commit.hand_over(first)
    wait_until(lambda: commit.groups == [1], "the first outcome, which waits for nothing")

    if how == "permit":
        others[-1].job.permit = "key#0"
    elif how == "handed back":
        others[-1].outcome = HandedBack(at=store_time(others[-1].job))
    commit.hand_over(*others)
    if how != "finish":
        wait_until(lambda: len(commit.groups) == 2, "the others")
    commit.finish()

    assert commit.groups == [1, 3]
    assert commit.let_go == [ending.job.id for ending in endings]
    assert states(stored)[:3] == ["done"] * 3


@pytest.mark.usefixtures("_far_apart")
def test_the_last_in_hand_waits_for_none(
    commit: Commit, claimed: Callable[[int], list[Job]]
) -> None:
    """W2: Where no other outcome is to come, none is waited for."""
    commit.start()
    commit.in_hand = 1
    for ending in done(claimed(3)):
        commit.hand_over(ending)
        wait_until(partial(commit.let_go.__contains__, ending.job.id), "each by itself")
    commit.finish()

    assert commit.groups == [1, 1, 1]


def test_one_lost_claim_among_others(
    commit: Commit,
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
    heard: Heard,
) -> None:
    """Q3: An outcome whose token is gone is dropped and ``job_lost`` sent, for that one alone."""
    jobs = claimed(5)
    stored.update_one({"_id": jobs[2].id}, {"$set": {"claim_token": "another's"}})

    commit.hand_over(*done(jobs))
    commit.start()
    commit.finish()

    others = [job.id for job in jobs if job is not jobs[2]]
    assert heard.ids("job_lost") == [jobs[2].id]
    assert heard.ids("job_succeeded") == others
    assert states(stored) == ["done", "done", "running", "done", "done"]
    assert commit.let_go == [job.id for job in jobs]


def test_outstanding_outcomes_are_bounded(
    app: Flask, commit: Commit, claimed: Callable[[int], list[Job]], store: Store
) -> None:
    """W2, A8: At most two groups are outstanding; a thread that has one more waits."""
    jobs = claimed(3 * MOST_AT_ONCE)
    handed_over: list[str] = []
    writing, go_on = threading.Event(), threading.Event()

    class Standing:
        """Outcomes that wait for the test before they are written."""

        def write_many(self, endings: t.Any) -> t.Any:
            writing.set()
            assert go_on.wait(PATIENCE)
            return store.outcomes.write_many(endings)

    def hand_over() -> None:
        for ending in done(jobs):
            committer.hand_over(ending)
            handed_over.append(ending.job.id)

    committer = Committer(
        t.cast("t.Any", Standing()),
        commit.announcer,
        lambda _: None,
        lambda _: None,
        Outages(),
        in_hand=lambda: 0,
    )
    commit.announcer.start()
    hander = threading.Thread(target=hand_over)
    hander.start()
    wait_until(lambda: len(handed_over) >= MOST_AT_ONCE, "the first group")
    committer.start()
    assert writing.wait(PATIENCE)
    wait_until(lambda: len(handed_over) >= 2 * MOST_AT_ONCE, "the second group")

    hander.join(0.1)
    assert len(handed_over) == 2 * MOST_AT_ONCE

    go_on.set()
    hander.join(PATIENCE)
    assert committer.finish(PATIENCE)
    assert commit.announcer.finish(PATIENCE)
    assert len(handed_over) == len(jobs)


@pytest.mark.parametrize("how", [LOST_REPLY, CLOSED], ids=["lost reply", "closed"])
def test_a_group_is_repeated(
    commit: Commit,
    client: MongoClient[Document],
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
    heard: Heard,
    how: Document,
) -> None:
    """W2, A10: A group whose reply is lost is written again, and stands once, whatever it is."""
    jobs = claimed(4)
    commit.hand_over(*endings_of_every_kind(jobs))
    heard.all.clear()

    with failing(client, "update", times=3, **how):
        commit.start()
        commit.finish()

    rows = list(stored.find().sort("_id"))
    assert [row["state"] for row in rows] == ["done", "pending", "pending", "dead"]
    assert [row["attempts"] for row in rows] == [1, 1, 0, 1]
    assert [row["history"].count('"attempt"') for row in rows] == [0, 1, 0, 1]
    assert heard.names() == [
        "job_succeeded",
        "job_failed",
        "job_retried",
        "job_snoozed",
        "job_failed",
        "job_died",
    ]
    assert commit.let_go == [job.id for job in jobs]


def test_repeated_after_the_next_claim(
    commit: Commit,
    client: MongoClient[Document],
    claimed: Callable[[int], list[Job]],
    store: Store,
    stored: Collection[Document],
    heard: Heard,
) -> None:
    """A10: An outcome that is repeated after another runner began the next attempt still stands."""
    (job,) = claimed(1)
    at = store_time(job)
    commit.hand_over(
        Ending(job, Again(at=at, duration=20, run_at=0, failure=FAILURE), ValueError("no"))
    )

    # Its first write, without the committer: the fail point loses this reply.
    with failing(client, "update", times=1, **LOST_REPLY), pytest.raises(StoreUnavailable):
        store.outcomes.write(job, Again(at=at, duration=20, run_at=0, failure=FAILURE))
    (again,) = store.claims.take(Wish(runner="host:2:them", at_most=1))
    commit.start()
    commit.finish()

    assert heard.ids("job_retried") == [job.id]
    assert not heard.of("job_lost")
    assert stored.find_one() == again.row


@pytest.fixture
def refusing(stored: Collection[Document], jobs: HenriJobs) -> Callable[[Job], None]:
    """Have the database refuse whatever ends one job."""

    def refuse(job: Job) -> None:
        rule = {"$nor": [{"_id": job.id, "state": {"$ne": "running"}}]}
        jobs.database.command("collMod", stored.name, validator=rule)

    return refuse


def test_an_outcome_that_the_database_refuses(
    commit: Commit,
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
    refusing: Callable[[Job], None],
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W2: An outcome with a write error of its own is dropped, and takes no other with it."""
    jobs = claimed(6)
    refusing(jobs[2])

    commit.hand_over(*done(jobs[:4]))
    commit.start()
    commit.hand_over(*done(jobs[4:]))
    commit.finish()

    assert states(stored) == ["done", "done", "running", "done", "done", "done"]
    assert heard.ids("job_succeeded") == [job.id for job in jobs if job is not jobs[2]]
    assert heard.ids("job_lost") == [jobs[2].id]
    assert commit.let_go == [job.id for job in jobs]
    assert f"The ending of <Job {jobs[2].id} work running> cannot be stored" in caplog.text


def test_an_outcome_that_is_too_large(
    commit: Commit,
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
    heard: Heard,
) -> None:
    """W2: A row that no stack fits into any more is the trouble of its own job alone."""
    jobs = claimed(3)
    row = {**jobs[1].row, "args": "x" * (16 * 1024 * 1024 - 20_000)}
    stored.replace_one({"_id": jobs[1].id}, row)
    at = store_time(jobs[0])
    failure = Failure(message="ValueError: no", stack="x" * 32_000)

    commit.hand_over(
        *[
            Ending(job, Again(at=at, duration=1, run_at=at, failure=failure), ValueError("no"))
            for job in jobs
        ]
    )
    commit.start()
    commit.finish()

    assert states(stored) == ["pending", "running", "pending"]
    assert heard.ids("job_retried") == [jobs[0].id, jobs[2].id]
    assert heard.ids("job_lost") == [jobs[1].id]


def test_what_follows_is_refused(
    commit: Commit,
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
    heard: Heard,
) -> None:
    """W2: Where the database refuses what follows from an outcome, the outcome is announced, and
    the next are written."""
    jobs = claimed(2)
    commit.refuse = OperationFailure("no such command")

    commit.hand_over(*done(jobs[:1]))
    commit.start()
    wait_until(lambda: heard.ids("job_succeeded") == [jobs[0].id], "the first outcome")
    commit.refuse = None
    commit.hand_over(*done(jobs[1:]))
    commit.finish()

    assert states(stored) == ["done", "done"]
    assert heard.ids("job_succeeded") == [job.id for job in jobs]
    assert commit.let_go == [job.id for job in jobs]


def test_what_follows_is_repeated(
    commit: Commit, claimed: Callable[[int], list[Job]], heard: Heard
) -> None:
    """W10: What follows from an outcome waits for a database that is away, however long."""
    jobs = claimed(1)
    commit.refuse = StoreUnavailable("away")

    commit.hand_over(*done(jobs))
    commit.start()
    wait_until(lambda: len(commit.followed) > 2 * MOST_REFUSALS, "several tries")
    assert not heard.of("job_succeeded")
    assert commit.let_go == []
    commit.refuse = None
    commit.finish()

    assert heard.ids("job_succeeded") == commit.let_go == [jobs[0].id]


def test_finish_without_a_database(
    commit: Commit,
    client: MongoClient[Document],
    claimed: Callable[[int], list[Job]],
    stored: Collection[Document],
) -> None:
    """W5: A stop does not wait for a database that is away, and says that it left something."""
    jobs = claimed(1)
    with failing(client, "update", times=10_000, **CLOSED):
        commit.hand_over(*done(jobs))
        commit.start()
        assert not commit.committer.finish(0.3)
        assert states(stored) == ["running"]
    commit.finish()
    assert states(stored) == ["done"]


def test_finish_with_a_receiver_that_stands_still(app: Flask, commit: Commit) -> None:
    """W5: A stop waits for a receiver no longer than it is told, however much waits behind it."""
    entered, go_on = threading.Event(), threading.Event()

    def stand_still(_app: Flask, **_facts: t.Any) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    lost = Settled(Ending(Job({"_id": "a"}), Snoozed(at=0, run_at=0)), None)
    with signals.job_lost.connected_to(stand_still, app):
        commit.announcer.start()
        commit.announcer.announce(lost)
        assert entered.wait(PATIENCE)
        for _ in range(2 * MOST_AT_ONCE):
            commit.announcer.announce(lost)

        assert not commit.announcer.finish(0.05)

        go_on.set()
        assert commit.announcer.finish(PATIENCE)
