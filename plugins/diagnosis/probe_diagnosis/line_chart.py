"""Line charts over steps as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360, 130
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 16, 18
COLORS = ("#1f6feb", "#e08600")
MARK_COLOR = "#c0392b"
MAX_POINTS = 2000
"""Number of points of a line; of longer lines every n-th point is drawn."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of a chart: its title, and a value for each step; None and NaN leave a gap."""

    title: str
    values: Sequence[float | None]


def draw_chart(
    steps: Sequence[int], lines: Sequence[ChartLine], mark: int | None = None, *, is_logarithmic: bool = False
) -> str:
    """Return a chart of lines over steps.

    Args:
        steps: The numbers of the steps, ascending.
        lines: The lines.
        mark: The step to mark; None for none.
        is_logarithmic: True for a logarithmic axis that fits the values; otherwise the axis ends at 0 and 1.
    """
    heights = [[_compute_height(value, is_logarithmic) for value in line.values] for line in lines]
    known = [height for line in heights for height in line if height is not None]
    if not known:
        return ""
    low, high = (min(known), max(known)) if is_logarithmic else (0.0, 1.0)
    if low == high:
        low, high = low - 1, high + 1
    first, last = steps[0], max(steps[-1], steps[0] + 1)

    def place(step: int, height: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - height) / (high - low)
        return round(x, 1), round(y, 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', *_draw_axes(steps, (low, high), is_logarithmic)]
    for number, (line, points) in enumerate(zip(lines, heights)):
        color = COLORS[number % len(COLORS)]
        placed = [None if height is None else place(step, height) for step, height in zip(steps, points)]
        parts.append(_draw_path(placed, color))
        place_of_title = f'x="{LEFT + 110 * number}" y="11" font-size="10"'
        parts.append(f'<text {place_of_title} fill="{color}">{escape(line.title)}</text>')
        if mark is not None and mark in steps and (dot := placed[list(steps).index(mark)]) is not None:
            parts.append(f'<circle cx="{dot[0]}" cy="{dot[1]}" r="4" fill="{MARK_COLOR}"/>')
    return "".join([*parts, "</svg>"])


def _compute_height(value: float | None, is_logarithmic: bool) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    if not is_logarithmic:
        return value
    return math.log10(value) if value > 0 else None


def _draw_axes(steps: Sequence[int], limits: tuple[float, float], is_logarithmic: bool) -> list[str]:
    bottom = HEIGHT - BOTTOM
    labels = [f"{10**limit:.1e}" if is_logarithmic else f"{limit:g}" for limit in limits]
    common = 'font-size="10" fill="#5a6472"'
    return [
        f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#b9c0ca"/>',
        f'<text x="{LEFT - 4}" y="{bottom}" text-anchor="end" {common}>{labels[0]}</text>',
        f'<text x="{LEFT - 4}" y="{TOP + 8}" text-anchor="end" {common}>{labels[1]}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 4}" {common}>step {steps[0]}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end" {common}>{steps[-1]}</text>',
    ]


def _draw_path(points: Sequence[tuple[float, float] | None], color: str) -> str:
    stride = max(1, -(-len(points) // MAX_POINTS))
    commands, is_pen_down = [], False
    for point in points[::stride]:
        if point is not None:
            commands.append(f"{'L' if is_pen_down else 'M'}{point[0]} {point[1]}")
            if not is_pen_down:
                commands.append("h0")  # shows a single point as a dot
        is_pen_down = point is not None
    look = f'fill="none" stroke="{color}" stroke-width="1.5" stroke-linecap="round"'
    return f'<path d="{"".join(commands)}" {look}/>'
