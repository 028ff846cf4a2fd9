"""Runners of one app, in parts, on one database and on a clock that a test moves."""

from __future__ import annotations

import contextlib
import itertools
import typing as t
from dataclasses import dataclass, field, replace

from flask import Flask

from flask_henri_jobs import HenriJobs
from flask_henri_jobs.batch_operations import BatchOperations
from flask_henri_jobs.building import OpenBatch, open_batch
from flask_henri_jobs.enqueueing import Enqueuer
from flask_henri_jobs.finishing import Finisher
from flask_henri_jobs.options import Overrides
from flask_henri_jobs.queues import QueueTurns
from flask_henri_jobs.store import Store
from flask_henri_jobs.store.connection import Connection
from flask_henri_jobs.store.wish import Wish
from flask_henri_jobs.worker.aftermath import Aftermath
from flask_henri_jobs.worker.committer import Announcer, Settled
from flask_henri_jobs.worker.execution import Ending
from flask_henri_jobs.worker.loop import Outages
from flask_henri_jobs.worker.scheduling import Scheduling

if t.TYPE_CHECKING:
    from pymongo import MongoClient

    from flask_henri_jobs import Job
    from flask_henri_jobs.app_state import AppState
    from flask_henri_jobs.clock import Clock
    from flask_henri_jobs.job import Document
    from flask_henri_jobs.outcome import Outcome
    from flask_henri_jobs.store.schedules import Schedules
    from flask_henri_jobs.worker.losses import Loss
    from server_time import ServerTime

LIMITS = {"single": 1, "keyed": 2}
TASKS = ("plain", "once", *LIMITS)
QUEUES = ("default", "low")
MOST_ATTEMPTS = 3
STUCK_SECONDS = 30


class Killed(BaseException):
    """Raised where a process is killed: nothing after it is done."""


def declared(uri: str, database: str) -> tuple[Flask, HenriJobs]:
    """Return an app and its tasks, one of every kind."""
    app = Flask("model")
    app.config.update(
        HENRI_JOBS_URI=uri,
        HENRI_JOBS_DATABASE=database,
        HENRI_JOBS_STUCK_AFTER=STUCK_SECONDS,
        HENRI_JOBS_MAX_ATTEMPTS=MOST_ATTEMPTS,
        HENRI_JOBS_SCHEDULES={"tick": {"task": "plain", "every": "10s", "args": {"n": 0}}},
    )
    jobs = HenriJobs(app)
    options: dict[str, dict[str, t.Any]] = {
        "plain": {},
        "once": {"unique": "n"},
        "single": {"concurrency": LIMITS["single"]},
        "keyed": {"concurrency": {"limit": LIMITS["keyed"], "key": "n"}},
    }
    for name, given in options.items():
        _declare(jobs, name, given)

    @jobs.task(name="finished")
    def finished(batch: Document) -> None:
        """Do nothing: what counts is what is stored of it."""

    return app, jobs


def _declare(jobs: HenriJobs, name: str, options: dict[str, t.Any]) -> None:
    @jobs.task(name=name, **options)
    def task(n: int) -> None:
        """Do nothing: what counts is what is stored of it."""


@dataclass(eq=False, slots=True)
class Runner:
    """One runner, whose parts are called step by step and may be left out.

    :param hand: The jobs that it believes it has.
    """

    app: Flask
    jobs: HenriJobs
    store: Store
    number: int
    hand: list[Job] = field(default_factory=list)
    lives: t.Iterator[int] = field(default_factory=itertools.count)
    id: str = ""
    aftermath: Aftermath = field(init=False)
    scheduling: Scheduling = field(init=False)

    @classmethod
    def start(
        cls,
        app: Flask,
        jobs: HenriJobs,
        client: MongoClient[t.Any],
        time: ServerTime,
        number: int,
    ) -> Runner:
        """Return a runner with a store of its own, whose every clock is the test's."""
        settings = jobs.state_of(app).settings
        connection = Connection(client, settings.database, settings.collection)
        connection.clock = time.another_clock()
        store = Store.open(settings, connection)
        for part in (
            store.claims.doubts,
            store.permits,
            store.claims.candidates,
            store.claims.limited.keys,
        ):
            part.steady = lambda: time.seconds
        # One that has lost a race takes the first part of what is next, too, and none at random.
        store.claims.spread.chance = lambda _parts: 0
        runner = cls(app, jobs, store, number)
        runner.begin()
        return runner

    def begin(self) -> None:
        """Come to life, under a new id."""
        self.id = f"host:{self.number}:{next(self.lives):08x}"
        self.hand = []
        state = self.state
        self.aftermath = Aftermath(
            self.store, state.settings, Announcer(self.app), Outages(), lambda: None
        )
        self.scheduling = self._scheduling(self.store)

    @property
    def state(self) -> AppState:
        """What the runner has of the extension: the app's settings, and its own store."""
        return t.cast("AppState", _State(self.jobs.state_of(self.app), self.store))

    @property
    def clock(self) -> Clock:
        """The server's time."""
        return self.store.clock

    @property
    def batches(self) -> BatchOperations:
        """What an operator does to batches."""
        return BatchOperations(self.state, lambda job: job)

    def enqueue(self, task: str, n: int, batch: OpenBatch | None, **options: t.Any) -> Job:
        """Store a job, in a batch if there is one."""
        known = self.jobs.tasks[task]
        if batch is not None:
            return batch.add(known.using(**options), n=n)
        return self.state.enqueuer.add(known, {"n": n}, Overrides.read(options))

    def open_batch(self) -> OpenBatch:
        """Begin a batch that calls back."""
        return open_batch(self.state, lambda job: job, {"callback": self.jobs.tasks["finished"]})

    def take(self, at_most: int) -> list[Job]:
        """Claim what is next. Forget before what was remembered of earlier looks."""
        self.store.claims.look_again()
        jobs = self.store.claims.take(self._wish(at_most))
        self.hand += jobs
        return jobs

    def take_suspect(self) -> list[Job]:
        """Claim a job that is performed alone."""
        self.store.claims.look_again()
        jobs = self.store.claims.take_suspect(self._wish(1), list(self.jobs.tasks))
        self.hand += jobs
        return jobs

    def write(self, job: Job, outcome: Outcome) -> Settled:
        """Store an outcome, and do nothing of what follows."""
        return Settled(Ending(job, outcome), self.store.outcomes.write(job, outcome))

    def follow_up(self, settled: Settled) -> None:
        """Do what follows from an outcome, in the order in which a runner does it."""
        self.store.permits.give_back([settled.ending.job])
        self.aftermath.follow([settled])

    def put_back(self, loss: Loss) -> None:
        """Do what a supervisor does for a runner that is gone."""
        self.store.leases.hand_back_from(loss.runner, loss.begun)
        for job_id in loss.begun:
            self.store.leases.recover_from(loss.runner, loss.reason, [job_id], suspect=loss.suspect)
        self.store.permits.release_all_of(loss.runner)

    def fire(self, *, is_killed: bool) -> None:
        """Fire what is due; one that is killed does not get to move the schedule on."""
        if not is_killed:
            self.scheduling.round()
            return
        # Nobody who is killed advances, whatever else of the schedules it reads.
        dying = t.cast("Schedules", _Dying(self.store.schedules))
        with contextlib.suppress(Killed):
            self._scheduling(replace(self.store, schedules=dying)).round()

    def _scheduling(self, store: Store) -> Scheduling:
        settings = self.jobs.state_of(self.app).settings
        return Scheduling.of(self.app, self.jobs.tasks, store, settings, Outages())

    def _wish(self, at_most: int) -> Wish:
        return Wish(
            runner=self.id,
            at_most=at_most,
            queues=QueueTurns(),
            # A suspect is performed alone, and never beside what an ordinary claim brings (W6).
            wanted=lambda row: not row.get("suspect"),
            lanes={name: lane for name in LIMITS if (lane := self.jobs.tasks[name].lane)},
        )


class _State:
    """An app's state with another store."""

    def __init__(self, state: AppState, store: Store) -> None:
        self.settings = state.settings
        self.tasks = state.tasks
        self.store = store
        self.enqueuer = Enqueuer(state.settings, store)
        self.finisher = Finisher(state.settings, store, state.tasks)


class _Dying:
    """The schedules, in the hands of a process that is killed before it moves one on."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._schedules, name)

    def advance(self, *_: t.Any, **__: t.Any) -> bool:
        """Do not return."""
        raise Killed
