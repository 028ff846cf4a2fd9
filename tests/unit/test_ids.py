"""Ids that sort by time."""

from __future__ import annotations

import os
import uuid

from flask_henri_jobs.ids import IdMaker, new_runner_id, new_token

NOW = 1_800_000_000_000


def test_id_is_a_uuid7() -> None:
    """An id is a UUID of version 7 whose first 48 bits are the moment."""
    made = uuid.UUID(IdMaker()(NOW))

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == NOW


def test_ids_of_one_millisecond_keep_their_order() -> None:
    """Q2: Jobs of one millisecond keep the order in which they were enqueued, 20,000 of them."""
    make = IdMaker()

    ids = [make(NOW) for _ in range(20_000)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 20_000


def test_ids_sort_by_their_moments() -> None:
    """Q2: The id of a later moment is greater; a clock that stands still or lags is no matter."""
    make = IdMaker()

    ids = [make(NOW + moved) for moved in (0, 1, 1, 0, 2, 1000, 999, 1001)]

    assert ids == sorted(ids)


def test_full_counter_borrows_from_the_next_millisecond() -> None:
    """More ids than a millisecond has room for still grow and are still distinct."""
    make = IdMaker()
    first = make(NOW)
    make._counter = (1 << 26) - 1

    second, third = make(NOW), make(NOW)

    assert first < second < third
    assert uuid.UUID(second).int >> 80 == NOW + 1


def test_child_of_a_fork_makes_other_ids() -> None:
    """A forked child does not repeat the ids of its parent."""
    make = IdMaker()
    make(NOW)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, "\n".join(make(NOW) for _ in range(20)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = set(os.read(read_end, 4096).decode().split())
    os.close(read_end)
    os.close(write_end)

    ours = {make(NOW) for _ in range(20)}

    assert len(theirs) == len(ours) == 20
    assert not theirs & ours
    # Not by their random ends alone: the counter is another.
    assert not {one[:22] for one in theirs} & {one[:22] for one in ours}


def test_tokens_and_runner_ids_are_distinct() -> None:
    """No two claims have one token, and no two runners one id, within a process too."""
    assert len({new_token() for _ in range(1000)}) == 1000
    assert new_runner_id() != new_runner_id()
    host, pid, suffix = new_runner_id().rsplit(":", 2)
    assert host
    assert pid == str(os.getpid())
    assert len(suffix) == 8
