"""Which queues a worker takes from, and whose turn it is."""

from __future__ import annotations

import typing as t
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.queues import MOST_REMEMBERED, MOST_SHARES, QueueSelection, QueueTurns, Turn

SHARES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1)


def read(value: object) -> QueueSelection:
    return QueueSelection.read(value, "queues")


def with_work() -> list[str]:
    return ["default", "low", "mail"]


def turns(value: object) -> QueueTurns:
    return QueueTurns(read(value))


def served(turns: QueueTurns, waiting: t.Iterable[str], times: int) -> str:
    """Return whose turn it was, so many times, one letter each."""
    shares = list(waiting)
    return "".join(serve(turns, shares)[0] for _ in range(times))


def serve(turns: QueueTurns, waiting: t.Collection[str]) -> str:
    share = turns.next(waiting)
    turns.served(share, waiting)
    return share


@pytest.mark.parametrize(
    ("value", "names", "weights"),
    [
        ("high,low", ("high", "low"), None),
        (" high , low ", ("high", "low"), None),
        (["high", "low", "high"], ("high", "low"), None),
        ("*", ("*",), None),
        ("mail:4,*:1", ("mail", "*"), (4, 1)),
        (["mail:4", "*:1"], ("mail", "*"), (4, 1)),
        ({"mail": 4, "*": 1}, ("mail", "*"), (4, 1)),
        ("mail:4,low", ("mail", "low"), (4, 1)),
        ("acme:mail", ("acme:mail",), None),
        ("acme:mail:2,low:1", ("acme:mail", "low"), (2, 1)),
        ({"acme:7": 2}, ("acme:7",), (2,)),
        (read("mail:4"), ("mail",), (4,)),
    ],
)
def test_what_is_read(value: object, names: tuple[str, ...], weights: tuple[int, ...]) -> None:
    """Q2: names, and weights behind their last colons, come as text, list or mapping."""
    assert read(value) == QueueSelection(names, weights)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "queues[0] is empty."),
        ("high,", "queues[1] is empty."),
        ([], "queues names no queue."),
        ({}, "queues names no queue."),
        (5, "queues is an int, and queues are due."),
        ([5], "queues[0] is an int, and text is due."),
        ("mail:", "queues[0] is 'mail:'."),
        (":4", "queues[0] is ':4'."),
        ("mail:-1", "queues[0] is 'mail:-1'."),
        ("mail:0.5", "queues[0] is 'mail:0.5'."),
        ("mail:0", "The weight in queues[0] is 0."),
        ("mail:101", "The weight in queues[0] is 101."),
        ("mail:\u0664", "queues[0] is 'mail:\u0664'."),
        ({"mail": "4"}, "queues['mail'] is '4'."),
        ({"mail": True}, "queues['mail'] is True."),
        ({5: 1}, "A name in queues is an int, and text is due."),
        ("mail:4,mail:2", "queues has two weights for the queue 'mail'."),
        ("high,*", "queues names queues beside '*', which takes from all."),
        (
            [f"queue-{number}:1" for number in range(MOST_SHARES + 1)],
            "queues has weights for 17 queues.",
        ),
    ],
)
def test_what_is_refused(value: object, message: str) -> None:
    """Q2: nonsense is refused with the place and the remedy."""
    with pytest.raises(ConfigError) as refused:
        read(value)

    assert refused.value.message == message
    assert refused.value.hint


@pytest.mark.parametrize("text", ["*", "high,low", "mail:4,*:1", "acme:mail:2"])
def test_it_is_written_as_it_is_read(text: str) -> None:
    """The text of a selection stands for that selection, as a supervisor hands it on."""
    assert str(read(text)) == text
    assert read(str(read(text))) == read(text)


@pytest.mark.parametrize(
    ("value", "covered"),
    [("*", True), ("mail", True), ("low", False), ("low:2,*:1", True), ("low:2,high:1", False)],
)
def test_what_is_covered(value: str, covered: bool) -> None:
    """A selection says whether jobs of a queue are taken."""
    assert read(value).covers("mail") is covered


@pytest.mark.parametrize(
    ("value", "shares"),
    [
        ("*", {"*": ["default", "low", "mail"]}),
        ("high,low", {"": ("high", "low")}),
        ("mail:4,*:1", {"mail": ("mail",), "*": ["default", "low"]}),
        ("mail:4,low:1", {"mail": ("mail",), "low": ("low",)}),
    ],
)
def test_what_is_served_together(value: str, shares: dict[str, t.Sequence[str]]) -> None:
    """Q2: queues without weights are one share, and ``*`` is all that are not named."""
    assert read(value).shares(with_work) == shares


def test_named_queues_ask_for_no_others() -> None:
    """A worker of given queues does not even look which others there are."""

    def asked() -> list[str]:
        raise AssertionError

    assert read("mail:4,low:1").shares(asked) == {"mail": ("mail",), "low": ("low",)}


def test_turns_are_spread() -> None:
    """Q2: a share of one in five comes once in any five starts, and not in a burst."""
    assert served(turns("mail:4,low:1"), ["mail", "low"], 10) == "mmlmmmmlmm"


def test_turns_of_the_idle_go_to_the_others() -> None:
    """Q2: a share without due work gives its turns away, and has saved up none when it is back."""
    queues = turns("mail:1,low:1")

    assert served(queues, ["mail"], 50) == "m" * 50
    assert served(queues, ["low"], 50) == "l" * 50
    assert Counter(served(queues, ["mail", "low"], 10)) == {"m": 5, "l": 5}


def test_turn_waits_for_its_start() -> None:
    """Q2: a share whose turn comes while nothing of it can begin has its turn still."""
    queues = turns("mail:4,low:1")
    served(queues, ["mail", "low"], 2)

    assert {queues.next(["mail", "low"]) for _ in range(9)} == {"low"}


@given(SHARES, st.integers(0, 60))
def test_everybody_gets_the_weight(weights: dict[str, int], before: int) -> None:
    """Q2: of any so many starts as the weights come to, each share has its weight's number."""
    queues = turns(weights)
    served(queues, weights, before)

    assert Counter(served(queues, weights, sum(weights.values()))) == weights


@given(SHARES, st.lists(st.lists(st.sampled_from("abcdef"), min_size=1), max_size=30))
def test_nobody_starves(weights: dict[str, int], comings: list[list[str]]) -> None:
    """Q2: whoever came and went before, a share that has work is served within twice a round."""
    queues = turns(weights)
    for coming in comings:
        if present := set(coming) & weights.keys():
            serve(queues, present)

    assert set(served(queues, weights, 2 * sum(weights.values()))) == weights.keys()


def test_plan_changes_nothing() -> None:
    """Q2: turns that are planned for jobs which others may get are not counted."""
    turns_ = turns("mail:2,low:1")

    assert served(turns_.plan(), ["mail", "low"], 3) == served(turns_.plan(), ["mail", "low"], 3)
    assert served(turns_, ["mail", "low"], 3) == "mlm"


@given(st.data(), SHARES)
def test_turns_that_are_handed_back(data: st.DataObject, weights: dict[str, int]) -> None:
    """Q2, W4: jobs that were claimed and handed back have had no turn: the starts are those that
    they would have been without them."""
    shares = data.draw(st.sets(st.sampled_from(sorted(weights)), min_size=1))
    kept, back = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    disturbed, calm = turns(weights), turns(weights)
    plan = disturbed.plan()
    starts = {}
    for number in range(kept + back):
        starts[str(number)] = Turn(serve(plan, shares), frozenset(shares))
    disturbed.take(starts)
    disturbed.hand_back([str(number) for number in range(kept, kept + back)])

    served(calm, shares, kept)

    assert served(disturbed, shares, 10) == served(calm, shares, 10)


@given(st.data(), SHARES)
def test_turns_handed_back_from_among_others(data: st.DataObject, weights: dict[str, int]) -> None:
    """Q2, X4: a job that was refused as it was to begin has had no turn, and those that were
    claimed after it keep theirs."""
    disturbed, calm = turns(weights), turns(weights)
    some = st.sets(st.sampled_from(sorted(weights)), min_size=1)
    refused = data.draw(st.lists(st.booleans(), max_size=20))
    starts = {}
    for number in range(len(refused)):
        waiting = data.draw(some)
        starts[str(number)] = Turn(data.draw(st.sampled_from(sorted(waiting))), frozenset(waiting))
    disturbed.take(starts)

    for number, is_refused in enumerate(refused):
        if is_refused:
            disturbed.hand_back([str(number)])
        else:
            calm.take({str(number): starts[str(number)]})

    assert served(disturbed, weights, 10) == served(calm, weights, 10)


def test_turns_are_remembered_for_a_while() -> None:
    """Q2: what is remembered of jobs that began long ago is bounded."""
    turns_ = turns("mail:2,low:1")
    for number in range(MOST_REMEMBERED + 10):
        turns_.take({str(number): Turn("mail", frozenset(["mail"]))})

    assert len(turns_._taken) == MOST_REMEMBERED
    turns_.hand_back(["0"])
