"""``make soak``: mixed load on workers that are killed every few seconds, for 20 minutes.

``SOAK_MINUTES`` says for how many. Printed are what each long-lived process held in its second and
its last quarter, and what is true of the queue at the end; the exit code is 1 where a process has
grown by more than it may, or a promise is broken.
"""

from __future__ import annotations

import os
import sys
import tempfile
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from mongod import replica_set

from .run import soak

if t.TYPE_CHECKING:
    from .probe import Growth
    from .run import Report

MOST_TOLD = 5


def main() -> int:
    """Soak. Return 1 where something grew, or was broken."""
    minutes = float(os.environ.get("SOAK_MINUTES", "20"))
    folder = Path(tempfile.mkdtemp(prefix="henri-soak-"))
    print(f"{minutes:g} minutes; what is seen goes to {folder}", flush=True)
    with replica_set() as deployment:
        report = soak(deployment, minutes * 60, folder)
    tell(report)
    return 0 if report.all_is_well else 1


def tell(report: Report) -> None:
    """Print what was seen."""
    print(f"\n{'process':38} {'figure':8} {'2nd quarter':>12} {'last':>8} {'grown':>7} {'may':>4}")
    for growth in report.growths:
        tell_growth(growth)
    for name in report.lost:
        print(f"{name} did not go on to the end")
    print()
    for name, count in report.counts.items():
        print(f"{name:44} {count:>8}")
    print()
    for promise, broken in report.violations.items():
        print(f"{promise:56} {'broken' if broken else 'kept'}")
        for line in broken[:MOST_TOLD]:
            print(f"    {line}")
        if len(broken) > MOST_TOLD:
            print(f"    and {len(broken) - MOST_TOLD} more")


def tell_growth(growth: Growth) -> None:
    """Print a line of the table."""
    print(
        f"{growth.process:38} {growth.figure:8} {growth.second:12.1f} {growth.last:8.1f}"
        f" {growth.by:+7.1f} {growth.bound:4g}{'' if growth.is_kept else '  exceeded'}"
        f"   ({growth.lowest:.1f} to {growth.highest:.1f})"
    )


if __name__ == "__main__":
    sys.exit(main())
