"""The soak, as short as it makes sense: what it finds in 20 minutes is in the guarantees."""

from __future__ import annotations

import typing as t

import pytest

from benchmarks.soak.run import soak
from mongod import replica_set

if t.TYPE_CHECKING:
    from pathlib import Path

SECONDS = 15.0

pytestmark = pytest.mark.faults


@pytest.mark.timeout(240)
def test_mixed_load_with_kills(has_mongod: None, tmp_path: Path) -> None:
    """Q1 to Q10, L2, B2, S1, W6: Under jobs of every kind, with runners and workers killed every
    few seconds, no job is lost, and permits, batches, keys, slots and histories are right."""
    with replica_set() as deployment:
        report = soak(deployment, SECONDS, tmp_path)
    print(report.counts)

    assert not {promise: broken for promise, broken in report.violations.items() if broken}
    assert not report.lost
    assert report.counts["jobs acknowledged"] > 20 * SECONDS
