"""Taking jobs for the threads of a runner, and putting back what cannot begin."""

from __future__ import annotations

import typing as t
from collections import deque

from .alarm import YIELD_SECONDS
from .apart import Apart
from .marks import Stage
from .pace import LONGEST_WAIT

if t.TYPE_CHECKING:
    from ..job import Job
    from ..queues import QueueTurns
    from ..store import Store
    from .aftermath import Aftermath
    from .alarm import Alarm
    from .appetite import Appetite
    from .holdings import Holdings
    from .loop import Outages
    from .post import Post
    from .strangers import Strangers
    from .threads import Threads
    from .turnstile import Turnstile


class Feeder:
    """Claims jobs as threads are free, and has the threads perform them.

    :param queues: Whose turn it is.
    :param names: The tasks that the application knows at its start.
    :param longest_wait: Seconds between two looks for a suspect.
    :ivar taken: How many jobs it has claimed.
    """

    def __init__(
        self,
        store: Store,
        queues: QueueTurns,
        names: list[str],
        *,
        post: Post,
        threads: Threads,
        appetite: Appetite,
        strangers: Strangers,
        turnstile: Turnstile,
        holdings: Holdings,
        alarm: Alarm,
        outages: Outages,
        aftermath: Aftermath,
        longest_wait: float,
    ) -> None:
        self.taken = 0
        self._refused: deque[str] = deque()
        self._store = store
        self._queues = queues
        self._names = names
        self._post = post
        self._threads = threads
        self._appetite = appetite
        self._strangers = strangers
        self._turnstile = turnstile
        self._holdings = holdings
        self._alarm = alarm
        self._outages = outages
        self._aftermath = aftermath
        self._longest_wait = min(longest_wait, LONGEST_WAIT)
        self._apart = Apart(post, self._are_suspects_due)

    def feed(self) -> float:
        """Take a job for every idle thread. Return the seconds until the next look (W1)."""
        if self._apart.is_turn(has_none=self.has_none):
            return self._feed_suspect()
        self._take_turns_back()
        if self._post.wear.is_worn(self.taken):
            self._post.marks.stage = Stage.WORN
        free = self._appetite.free_threads()
        if not free and not self._appetite.runs_dry:
            return self._wait_for_threads()
        rung = self._alarm.answer()
        if self._alarm.is_last:
            # What came in the same burst is found by this look, or by a poll.
            self._store.claims.look_for_new()
        wish = self._appetite.wish(free, rung)
        known_at = self._holdings.now()
        with self._outages.asking():
            jobs = self._store.claims.take(wish)
            self._begin(jobs, known_at)
            self._aftermath.bury(self._strangers.send_away(self._store.claims))
        self._alarm.looked(rung, found=bool(jobs))
        self._appetite.took(jobs, free)
        if jobs and self._threads.idle:
            # The thread that has the job gets the interpreter before the next look does.
            return YIELD_SECONDS if rung else 0.0
        return min(self._until_next_look, self._store.claims.look_in())

    @property
    def has_none(self) -> bool:
        """Whether every job that was taken is performed, and its outcome written."""
        return self._threads.is_empty and not len(self._holdings)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do for a process that is for suspects only."""
        return self._apart.is_over

    def look_again(self) -> None:
        """Forget what is remembered of earlier looks, so that the next sees all there is."""
        self._store.claims.look_again()
        self._apart.look_again()

    def refused(self, job: Job) -> None:
        """Note a job that was not let begin; any thread may. Its queue's turn is given back."""
        self._refused.append(job.row["_id"])

    def give_back(self) -> None:
        """Put back what has not begun (W5), what was taken by claims whose replies were lost, and
        the strangers that are left."""
        jobs = self._threads.take_back()
        if jobs:
            with self._outages.tolerated():
                self._hand_back(jobs)
        self._forget(jobs)
        with self._outages.tolerated():
            self._hand_back(self._store.claims.doubts.late())
            self._aftermath.bury(self._strangers.send_away(self._store.claims))

    def _take_turns_back(self) -> None:
        refused = [self._refused.popleft() for _ in range(len(self._refused))]
        self._queues.hand_back(refused)

    def _feed_suspect(self) -> float:
        """Take one suspect, once nothing else is in hand. Return the seconds until the next look.

        It is performed alone: if it ends the process, no other job is to blame or to suffer (W6).
        """
        if self.has_none:
            known_at = self._holdings.now()
            with self._outages.asking():
                jobs = self._store.claims.take_suspect(self._appetite.wish(1), self._names)
                self._begin(jobs, known_at)
            self._apart.took(bool(jobs))
        return self._longest_wait

    def _are_suspects_due(self) -> bool:
        with self._outages.asking():
            return bool(self._store.claims.due_suspects(self._queues, self._names))

    def _begin(self, jobs: list[Job], known_at: float) -> None:
        """Have the threads perform claimed jobs; strangers among them are kept to be sent away."""
        self.taken += len(jobs)
        known = self._strangers.taken_from(jobs)
        self._holdings.add(known, known_at - self._oldest(known))
        for job in known:
            self._turnstile.expect(job.row["_id"])
            self._threads.perform(job)

    def _oldest(self, jobs: list[Job]) -> float:
        """Return how many seconds ago the first of some jobs was claimed.

        That is long where the reply was lost, and its database away since: such a job is begun
        only after a heartbeat (W4).
        """
        now = self._store.clock.now()
        return max((now - job.row["heartbeat_at"] for job in jobs), default=0) / 1000

    def _wait_for_threads(self) -> float:
        """Give back what was claimed ahead and cannot begin soon. Return the seconds to wait."""
        if self._appetite.has_too_many:
            self._give_back_ahead(self._threads.take_back())
        return self._until_next_look

    def _give_back_ahead(self, jobs: list[Job]) -> None:
        is_answered = False
        try:
            with self._outages.asking():
                self._hand_back(jobs)
            is_answered = True
        finally:
            if is_answered:
                self._forget(jobs)
            else:
                # They are still ours, or not: a thread asks before it begins one.
                self._holdings.doubt(jobs)
                for job in jobs:
                    self._threads.perform(job)

    def _hand_back(self, jobs: list[Job]) -> None:
        self._aftermath.bury(self._store.claims.hand_back(jobs).cancelled)

    def _forget(self, jobs: list[Job]) -> None:
        self._turnstile.leave(job.row["_id"] for job in jobs)
        self._queues.hand_back(job.row["_id"] for job in jobs)
        self._holdings.drop(jobs)

    @property
    def _until_next_look(self) -> float:
        seconds = self._alarm.seconds()
        return min(seconds, LONGEST_WAIT) if self._threads.waiting else seconds
