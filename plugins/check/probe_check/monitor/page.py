"""The page of a monitored training: one file with inline SVG, without scripts and external resources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from probe_diagnosis.chart_page import escape_text, render_chart_page, render_figure
from probe_diagnosis.line_chart import ChartLine, draw_chart

from probe_check.monitor import sentences
from probe_check.monitor.run_reader import MonitoredRun, Series, select_magnitude
from probe_check.monitor.tasks import Task
from probe_check.monitor.verdict import MonitorFinding, MonitorVerdict
from probe_core.errors import format_count

MAX_CHARTS = 60
"""Maximum number of charts per task and rank. Suspicious values are drawn first, then the values with the largest
growth."""

LEGEND = (
    "Each curve shows the norm of a value, or its largest absolute value if no norm was recorded, on a logarithmic "
    "axis. If a step has several micro-batches, the curve shows the largest of their values. A dot marks the first "
    "suspicious step."
)

Curve = list[tuple[int, float]]
"""Pairs of a step and a value."""
ValueKey = tuple[int, str]
"""The number of a model and the name of a value."""


def render_page(run: MonitoredRun, verdict: MonitorVerdict) -> str:
    """Return the page as HTML.

    Args:
        run: The monitored run with its series of figures.
        verdict: The verdict on the run.
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
    yield f'<p class="legend">{LEGEND}</p>'
    for task in Task:
        series_by_value: dict[ValueKey, list[Series]] = {}
        for series in run.series:
            if series.rank == rank and series.task is task and select_magnitude(series) is not None:
                series_by_value.setdefault((series.model, series.name), []).append(series)
        findings = [
            finding for finding in verdict.findings if finding.series.rank == rank and finding.series.task is task
        ]
        if series_by_value:
            yield from _render_task(task, series_by_value, findings)


def _render_task(
    task: Task, series_by_value: dict[ValueKey, list[Series]], findings: Sequence[MonitorFinding]
) -> Iterator[str]:
    suspicious_steps: dict[ValueKey, int] = {}
    for finding in findings:
        suspicious_steps.setdefault((finding.series.model, finding.series.name), finding.step)
    curves = {key: _compute_curve(value_series) for key, value_series in series_by_value.items()}
    ranked = sorted(series_by_value, key=lambda key: (key not in suspicious_steps, -_compute_growth(curves[key])))
    drawn = set(ranked[:MAX_CHARTS])
    yield f'<h3>{task.value}</h3><div class="charts">'
    for key, value_series in series_by_value.items():
        if key not in drawn:
            continue
        curve = curves[key]
        operation, _ = select_magnitude(value_series[0]) or ("", ())
        steps = [step for step, _ in curve]
        line = ChartLine(operation, [value for _, value in curve])
        drawing = draw_chart(steps, [line], suspicious_steps.get(key), is_logarithmic=True) if steps else ""
        model, name = key
        yield render_figure(f"{model}:{name}" if model else name, drawing, is_suspicious=key in suspicious_steps)
    yield "</div>"
    if len(series_by_value) > len(drawn):
        omitted = format_count(len(series_by_value) - len(drawn), "value")
        yield f"<p>Not drawn: {omitted} with less growth.</p>"


def _compute_curve(micro_batch_series: Sequence[Series]) -> Curve:
    """Return the largest magnitude of each step over all micro-batches; nan if a magnitude is nan."""
    largest_by_step: dict[int, float] = {}
    for series in micro_batch_series:
        _, values = select_magnitude(series) or ("", ())
        for step, value in zip(series.steps, values):
            previous = largest_by_step.get(step, -math.inf)
            largest_by_step[step] = math.nan if math.isnan(value) or math.isnan(previous) else max(previous, value)
    return sorted(largest_by_step.items())


def _compute_growth(curve: Curve) -> float:
    """Return the ratio of the largest to the smallest positive, finite magnitude; 0 if there is no such magnitude."""
    magnitudes = [value for _, value in curve if value > 0 and math.isfinite(value)]
    return max(magnitudes) / min(magnitudes) if magnitudes else 0.0
