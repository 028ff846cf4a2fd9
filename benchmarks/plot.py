"""The plots of ``docs/explanation/performance.md``, as SVG, drawn from what was just measured."""

from __future__ import annotations

import itertools
from pathlib import Path

from .drain import rates_by_backlog

FOLDER = Path(__file__).parents[1] / "docs" / "explanation"
WIDTH, HEIGHT, MARGIN = 640, 300, 56
BIN_MS, LAST_MS = 0.5, 12.0


def write_rates(uri: str) -> None:
    """Draw the rate against the backlog."""
    rates = rates_by_backlog(uri)
    highest = max(rate for _, rate in rates)
    largest = max(size for size, _ in rates)
    points = [(size / largest, rate / (1.2 * highest)) for size, rate in rates]
    marks = [
        f'<circle cx="{_x(x):.0f}" cy="{_y(y):.0f}" r="4"/>'
        f'<text x="{_x(x):.0f}" y="{_y(y) - 10:.0f}" text-anchor="middle">{rate:,.0f}</text>'
        for (x, y), (_, rate) in zip(points, rates, strict=True)
    ]
    line = " ".join(f"{_x(x):.0f},{_y(y):.0f}" for x, y in points)
    drawn = f'<polyline points="{line}" fill="none" stroke="currentColor"/>{"".join(marks)}'
    ticks = [(size / largest, f"{size:,}") for size, _ in rates]
    _write("performance-rate.svg", drawn, ticks, "jobs a second, by how many are pending")


def write_latencies(kind: str, milliseconds: list[float]) -> None:
    """Draw how often each latency was measured."""
    edges = [number * BIN_MS for number in range(int(LAST_MS / BIN_MS) + 1)]
    counts = [
        sum(low <= ms < high for ms in milliseconds) for low, high in itertools.pairwise(edges)
    ]
    counts[-1] += sum(ms >= LAST_MS for ms in milliseconds)
    highest = max(counts)
    width = (WIDTH - 2 * MARGIN) / len(counts)
    drawn = "".join(
        f'<rect x="{MARGIN + number * width:.1f}" y="{_y(count / highest):.1f}"'
        f' width="{width - 1:.1f}" height="{_y(0) - _y(count / highest):.1f}"/>'
        for number, count in enumerate(counts)
    )
    ticks = [(ms / LAST_MS, f"{ms:g}") for ms in range(0, int(LAST_MS) + 1, 2)]
    title = f"milliseconds from enqueue to first line, {len(milliseconds)} jobs, {kind}"
    _write(f"performance-latency-{kind.replace(' ', '-')}.svg", drawn, ticks, title)


def _write(name: str, drawn: str, ticks: list[tuple[float, str]], title: str) -> None:
    axis = f'<path d="M{MARGIN} {_y(0):.0f}H{WIDTH - MARGIN}" stroke="currentColor"/>'
    labels = "".join(
        f'<text x="{_x(at):.0f}" y="{_y(0) + 18:.0f}" text-anchor="middle">{text}</text>'
        for at, text in ticks
    )
    (FOLDER / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="currentColor" color="#345">'
        f'<text x="{MARGIN}" y="24" font-size="14">{title}</text>{axis}{labels}{drawn}</svg>\n'
    )


def _x(share: float) -> float:
    return MARGIN + share * (WIDTH - 2 * MARGIN)


def _y(share: float) -> float:
    return HEIGHT - MARGIN + share * (2 * MARGIN - HEIGHT)
