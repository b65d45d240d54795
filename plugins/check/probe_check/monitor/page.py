"""The page of a monitored training: one file with inline SVG, without scripts and external resources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from probe_diagnosis import ChartLine, draw_chart, escape_text, render_chart_page, render_figure

from probe_check.monitor import sentences
from probe_check.monitor.run_reader import MonitoredRun, Series, select_magnitude
from probe_check.monitor.tasks import Task
from probe_check.monitor.verdict import MonitorFinding, MonitorVerdict
from probe_core.errors import format_count

MAX_CHARTS = 60
"""Number of charts per task and rank: suspicious values first, then those that grew most."""


Curve = list[tuple[int, float]]
"""Pairs of a step and a value."""


def render_page(run: MonitoredRun, verdict: MonitorVerdict) -> str:
    """Return the page as HTML.

    Args:
        run: The figures.
        verdict: The verdict on them.
    """
    body = [
        *(f"<p>{escape_text(directory.path)}</p>" for directory in run.directories),
        "<ul>",
        *(f"<li>{escape_text(line)}</li>" for line in sentences.format_details(run, verdict)),
        "</ul>",
        *(line for rank in run.ranks for line in _render_rank(rank, run, verdict)),
    ]
    return render_chart_page("Monitored training", sentences.format_verdict(run, verdict), body)


def _render_rank(rank: int, run: MonitoredRun, verdict: MonitorVerdict) -> Iterator[str]:
    yield f"<h2>Rank {rank}</h2>"
    yield '<p class="legend">The curves show norms, or else the largest sizes, on a logarithmic axis; for '
    yield "several micro-batches the largest. A dot marks the first suspicious step.</p>"
    for task in Task:
        members: dict[tuple[int, str], list[Series]] = {}
        for series in run.series:
            if series.rank == rank and series.task is task and select_magnitude(series) is not None:
                members.setdefault((series.model, series.name), []).append(series)
        findings = [f for f in verdict.findings if f.series.rank == rank and f.series.task is task]
        if members:
            yield from _render_task(task, members, findings)


def _render_task(
    task: Task, members: dict[tuple[int, str], list[Series]], findings: Sequence[MonitorFinding]
) -> Iterator[str]:
    first: dict[tuple[int, str], MonitorFinding] = {}
    for finding in findings:
        first.setdefault((finding.series.model, finding.series.name), finding)
    curves = {key: _compute_curve(listed) for key, listed in members.items()}
    ranked = sorted(members, key=lambda key: (key not in first, -_compute_growth(curves[key])))
    drawn = set(ranked[:MAX_CHARTS])
    yield f'<h3>{task.value}</h3><div class="charts">'
    for key in members:
        if key not in drawn:
            continue
        curve = curves[key]
        operation, _ = select_magnitude(members[key][0]) or ("", ())
        mark = first[key].step if key in first else None
        steps, line = [step for step, _ in curve], ChartLine(operation, [value for _, value in curve])
        drawing = draw_chart(steps, [line], mark, is_logarithmic=True) if steps else ""
        yield render_figure(f"{key[0]}:{key[1]}" if key[0] else key[1], drawing, is_suspicious=key in first)
    yield "</div>"
    if len(members) > len(drawn):
        omitted = format_count(len(members) - len(drawn), "value")
        yield f"<p>{omitted} that grew less are not drawn.</p>"


def _compute_curve(listed: Sequence[Series]) -> Curve:
    """Return the largest size of each step over all micro-batches."""
    largest: dict[int, float] = {}
    for series in listed:
        sizes = select_magnitude(series)
        for step, value in zip(series.steps, sizes[1] if sizes else ()):
            before = largest.get(step, -math.inf)
            largest[step] = value if math.isnan(value) or math.isnan(before) else max(before, value)
    return sorted(largest.items())


def _compute_growth(curve: Curve) -> float:
    """Return the ratio of the largest to the smallest positive size."""
    sizes = [value for _, value in curve if value > 0 and math.isfinite(value)]
    return max(sizes) / min(sizes) if sizes else 0.0
