"""``make bench``: measure, and print each figure beside what it must reach.

``python -m benchmarks drain latency`` measures these only, ``--on standalone`` on this deployment
only. ``--plot`` writes the plots of ``docs/explanation/performance.md`` as well.

Figures differ between machines and hours; ratios of one run hardly do. Each is the median of three
to seven rounds, in which the two sides of a ratio take turns, so that a busy minute meets both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mongod import replica_set, standalone

from . import plot
from .table import MEASURES, REPLICA_SET, STANDALONE, Line, Measure

DEPLOYMENTS = {STANDALONE: standalone, REPLICA_SET: replica_set}


def main() -> int:
    """Measure what is asked for. Return 1 where something falls short."""
    asked = read_command_line()
    measures = [one for one in MEASURES if one.name in asked.measures or not asked.measures]
    print(f"{'median (lowest to highest)':38} {'must':>12} {'measured':>26}")
    is_met = True
    for kind, deployment in DEPLOYMENTS.items():
        if asked.on not in {None, kind}:
            continue
        with deployment() as servers:
            began = time.monotonic()
            print(f"--- {kind}")
            for measure in [one for one in measures if kind in one.lines[0].must]:
                is_met &= tell(measure, kind, servers.uri, plots=asked.plot)
            print(f"    {time.monotonic() - began:.0f} s", flush=True)
            if asked.plot and kind == STANDALONE:
                plot.write_rates(servers.uri)
    return 0 if is_met else 1


def read_command_line() -> argparse.Namespace:
    """Return what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    names = [measure.name for measure in MEASURES]
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(names))
    parser.add_argument("--on", choices=[*DEPLOYMENTS])
    parser.add_argument("--plot", action="store_true")
    asked = parser.parse_args()
    if unknown := {*asked.measures} - {*names}:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    return asked


def tell(measure: Measure, kind: str, uri: str, *, plots: bool) -> bool:
    """Measure, and print a line for each figure. Return whether all are met."""
    rounds = measure.measured(uri)
    if plots and measure.name == "latency":
        plot.write_latencies(kind, [ms for one in rounds for ms in one.since_return])
    is_met = True
    for line in measure.lines:
        is_met &= tell_line(line, kind, [line.of(one) for one in rounds])
    return is_met


def tell_line(line: Line, kind: str, values: list[float]) -> bool:
    """Print a figure. Return whether it is met."""
    median = statistics.median(values)
    is_met = line.is_met(kind, median)
    must = f"{'≥' if line.at_least else '≤'} {line.must[kind]:g}"
    spread = f"({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    short = "" if is_met else "  falls short"
    print(f"{line.name:38} {must:>12} {median:8.2f} {spread:>17}{short}", flush=True)
    return is_met


if __name__ == "__main__":
    sys.exit(main())
