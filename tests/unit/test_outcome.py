"""What follows from what an attempt raised."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from flask_henri_jobs.backoff import Backoff
from flask_henri_jobs.errors import (
    Discard,
    JobCancelled,
    JobTimeout,
    Retry,
    Snooze,
    TransactionAborted,
)
from flask_henri_jobs.job import Job
from flask_henri_jobs.outcome import (
    AFTER_ABORT,
    MOST_ABORTED,
    MOST_MESSAGE_BYTES,
    MOST_STACK_BYTES,
    Again,
    Attempt,
    Dead,
    Done,
    Failure,
    Outcome,
    RetryPolicy,
    Snoozed,
    cut,
    decide,
    expired,
)
from flask_henri_jobs.settings import LONGEST_TRANSACTION

NOW = 1_800_000_000_000
POLICY = RetryPolicy(backoff=Backoff(base=timedelta(seconds=5), factor=4, jitter=0))


def decided(
    raised: BaseException | None, policy: RetryPolicy = POLICY, attempts: int = 1, most: int = 3
) -> Outcome:
    job = Job({"_id": "a", "attempts": attempts, "max_attempts": most})
    return decide(job, Attempt(at=NOW, duration=20, raised=raised), policy)


class Hopeless(Exception):
    """An error that no further attempt would mend."""

    retryable = False


class HopelessTimeout(TimeoutError):
    """A kind of an error that is retried, and is not."""


def test_done() -> None:
    """A task that returned is done."""
    assert decided(None) == Done(at=NOW, duration=20)


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 5), (2, 20), (3, 80)])
def test_failure_goes_back(attempts: int, seconds: int) -> None:
    """Q5: A failure goes back after ``base * factor^(attempt-1)``, with its message and stack."""
    outcome = decided(ValueError("no"), attempts=attempts, most=4)

    assert isinstance(outcome, Again)
    assert outcome.run_at == NOW + seconds * 1000
    assert outcome.failure.message == "ValueError: no"
    assert "ValueError: no" in (outcome.failure.stack or "")


DEAD: list[tuple[str, BaseException, RetryPolicy, int, str]] = [
    ("out of attempts", ValueError("no"), POLICY, 3, "failed"),
    ("more than its attempts", ValueError("no"), POLICY, 4, "failed"),
    ("out of attempts by timeout", JobTimeout("30 s"), POLICY, 3, "timeout"),
    ("asked for another attempt too many", Retry(wait=1), POLICY, 3, "failed"),
    ("not retryable", Hopeless(), POLICY, 1, "failed"),
    ("discarded", Discard("gone"), POLICY, 1, "discarded"),
    ("discarded at last", Discard("gone"), POLICY, 3, "discarded"),
    ("cancelled", JobCancelled(), POLICY, 1, "cancelled"),
    ("discard_on", KeyError("a"), RetryPolicy(discard_on=(LookupError,)), 1, "failed"),
    ("not in retry_on", KeyError("a"), RetryPolicy(retry_on=(OSError,)), 1, "failed"),
    (
        "in retry_on and in discard_on",
        HopelessTimeout(),
        RetryPolicy(retry_on=(TimeoutError,), discard_on=(HopelessTimeout,)),
        1,
        "failed",
    ),
    ("in retry_on and not retryable", Hopeless(), RetryPolicy(retry_on=(Exception,)), 1, "failed"),
]


@pytest.mark.parametrize(
    ("raised", "policy", "attempts", "reason"), [row[1:] for row in DEAD], ids=[r[0] for r in DEAD]
)
def test_dead(raised: BaseException, policy: RetryPolicy, attempts: int, reason: str) -> None:
    """Q5: These are dead at once, for this reason."""
    outcome = decided(raised, policy, attempts)

    assert isinstance(outcome, Dead)
    assert outcome.reason == reason


AGAIN: list[tuple[str, BaseException, RetryPolicy]] = [
    ("any error", ValueError(), POLICY),
    ("an exit", SystemExit(1), POLICY),
    ("an interrupt", KeyboardInterrupt(), POLICY),
    ("a timeout", JobTimeout(), POLICY),
    ("a timeout that retry_on does not name", JobTimeout(), RetryPolicy(retry_on=(OSError,))),
    ("in retry_on", ConnectionError(), RetryPolicy(retry_on=(OSError,))),
    ("asked for, though not in retry_on", Retry(wait=1), RetryPolicy(retry_on=(OSError,))),
    ("a group of one error", ExceptionGroup("g", [ValueError()]), POLICY),
    ("two verdicts", BaseExceptionGroup("g", [Snooze(1), Discard()]), POLICY),
    ("a verdict and an error", BaseExceptionGroup("g", [Discard(), ValueError()]), POLICY),
]


@pytest.mark.parametrize(
    ("raised", "policy"), [row[1:] for row in AGAIN], ids=[row[0] for row in AGAIN]
)
def test_again(raised: BaseException, policy: RetryPolicy) -> None:
    """Q5: These cost an attempt, and the job is performed again."""
    assert isinstance(decided(raised, policy), Again)


def test_retry_without_a_wait() -> None:
    """Q5: ``Retry()`` waits by the task's backoff, also where ``retry_on`` is given."""
    policy = RetryPolicy(backoff=POLICY.backoff, retry_on=(OSError,))

    outcome = decided(Retry("not yet"), policy, attempts=2)

    assert isinstance(outcome, Again)
    assert outcome.run_at == NOW + 20_000
    assert outcome.failure.message == "not yet"


@pytest.mark.parametrize(
    ("wait", "ms"), [(1, 1000), ("250ms", 250), (timedelta(minutes=5), 300_000), (0, 0)]
)
def test_verdicts_with_a_wait(wait: str | float | timedelta, ms: int) -> None:
    """Q5: ``Retry`` and ``Snooze`` wait for what they say, in any way that says how long."""
    again, snoozed = decided(Retry(wait=wait)), decided(Snooze(wait))

    assert isinstance(again, Again)
    assert isinstance(snoozed, Snoozed)
    assert again.run_at == snoozed.run_at == NOW + ms


def test_snooze_until_a_moment() -> None:
    """Q5: ``Snooze`` takes an aware moment."""
    until = datetime.fromtimestamp(NOW / 1000 + 60, UTC)

    assert decided(Snooze(until)) == Snoozed(at=NOW, run_at=NOW + 60_000)


def test_snooze_out_of_attempts() -> None:
    """Q5: A snooze costs no attempt, so there is always one left for it."""
    assert isinstance(decided(Snooze(1), attempts=3), Snoozed)


NONSENSE: list[t.Any] = [
    *["soon", -1, float("nan"), float("inf"), [], "1e400s"],
    pytest.param(object(), id="object"),
]
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize("wait", [*NONSENSE, NAIVE, None], ids=repr)
def test_snooze_with_a_nonsense_wait(wait: t.Any) -> None:
    """Q5: A wait that cannot be understood fails the attempt, and the reason says why."""
    outcome = decided(Snooze(wait))

    assert isinstance(outcome, Again)
    assert outcome.failure.message.startswith("ConfigError: ")


@pytest.mark.parametrize("wait", NONSENSE, ids=repr)
def test_retry_with_a_nonsense_wait(wait: t.Any) -> None:
    """Q5: A wait that cannot be understood fails the attempt; at the last the job is dead."""
    assert isinstance(decided(Retry(wait=wait)), Again)
    assert isinstance(decided(Retry(wait=wait), attempts=3), Dead)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_group_with_one_verdict(depth: int) -> None:
    """B11: A verdict that comes alone in a group, as a ``TaskGroup`` raises it, is that verdict."""
    raised: BaseException = Snooze("1s")
    for _ in range(depth):
        raised = BaseExceptionGroup("unhandled", [raised])

    assert decided(raised) == Snoozed(at=NOW, run_at=NOW + 1000)


def test_verdict_with_a_reason_that_is_no_text() -> None:
    """Q5: A verdict may be given whatever explains it, such as another exception."""
    outcome = decided(Discard(KeyError("account")))

    assert isinstance(outcome, Dead)
    assert outcome.failure == Failure(message="'account'")


def test_expired() -> None:
    """Q5: A job past its ``expires_at`` is dead as expired."""
    assert expired(NOW).reason == "expired"


class Unprintable(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Exiting(Exception):
    """An error whose text ends the interpreter."""

    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("raised", [Unprintable(), Exiting()], ids=["error", "exit"])
def test_exception_whose_str_raises(raised: Exception) -> None:
    """W10: An exception that cannot say what it is is recorded by its type."""
    failure = Failure.of(raised)

    assert failure.message == f"{type(raised).__name__}: <exception str() failed>"
    assert type(raised).__name__ in (failure.stack or "")


def test_huge_exception() -> None:
    """A message of 5 MB is recorded cut, and says so; start and end are kept."""
    failure = Failure.of(ValueError(f"start {'é' * 2_500_000} end"))

    assert len(failure.message.encode()) <= MOST_MESSAGE_BYTES
    assert len((failure.stack or "").encode()) <= MOST_STACK_BYTES
    assert failure.message.startswith("ValueError: start éé")
    assert failure.message.endswith("éé end")
    assert "bytes cut" in failure.message


def test_endless_recursion() -> None:
    """The stack of an endless recursion is recorded by its end."""

    def again() -> None:
        again()

    with pytest.raises(RecursionError) as caught:
        again()

    assert len((Failure.of(caught.value).stack or "").encode()) <= MOST_STACK_BYTES


@pytest.mark.parametrize("text", ["", "a" * 100, "é" * 50, "\ud800", "x" * 101, "€" * 1000])
def test_cut(text: str) -> None:
    """A cut text is UTF-8 of at most so many bytes, whatever was cut through."""
    short = cut(text, 100)

    assert len(short.encode()) <= 100
    assert short == text or "bytes cut" in short or "\\ud800" in short


def test_policy_without_a_backoff() -> None:
    """A job that fails waits by the default backoff where its task has none."""
    outcome = decided(ValueError(), RetryPolicy())

    assert isinstance(outcome, Again)
    assert 0 < outcome.run_at - NOW <= 5000


@pytest.mark.parametrize("before", [None, 0, 4, 9, 10])
def test_aborted_transaction(before: int | None) -> None:
    """X2: an abort costs no attempt, ten times; then the task has failed of what aborted it."""
    row = {"_id": "a", "attempts": 3, "max_attempts": 3, "aborted_transactions": before}
    job = Job({name: value for name, value in row.items() if value is not None})
    raised = TransactionAborted(ValueError("conflict"), "conflict")

    outcome = decide(job, Attempt(at=NOW, duration=20, raised=raised), POLICY)

    if before == 10:
        assert isinstance(outcome, Dead)
        assert outcome.failure.message == "ValueError: conflict"
    else:
        assert isinstance(outcome, Again)
        times = (before or 0) + 1
        assert outcome.aborted == times
        usual = min(100 * 2.5 ** (times - 1), 30_000)
        assert usual * 0.8 - 1 <= outcome.run_at - NOW <= usual + 1


def test_waits_after_aborts() -> None:
    """X2: before its aborts count as failures, a job has outlasted what a killed process left."""
    shortest = replace(AFTER_ABORT, jitter=0).wait_after
    waits = [shortest(times) * (1 - AFTER_ABORT.jitter) for times in range(1, MOST_ABORTED + 1)]

    assert sum(waits, timedelta()) > LONGEST_TRANSACTION + timedelta(seconds=5)
