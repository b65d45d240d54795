"""The page of a comparison of gradients: one file with inline SVG, without scripts and external resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from probe_diagnosis.chart_page import escape_text, render_chart_page, render_figure
from probe_diagnosis.line_chart import ChartLine, draw_chart

from probe_core.errors import format_count
from probe_watch.grad_probe import sentences
from probe_watch.grad_probe.rules import GradientSuspect, load_rules
from probe_watch.grad_probe.similarity import ParameterSeries, RankComparison

MAX_CHARTS = 100
"""Number of charts of parameters per rank: suspicious ones first, then those of the lowest similarity."""


def render_page(
    ranks: Sequence[RankComparison],
    suspects: Sequence[GradientSuspect],
    main: GradientSuspect | None,
    runs: tuple[Path, Path],
) -> str:
    """Return the page as HTML.

    Args:
        ranks: The comparison of each rank.
        suspects: The first suspicious gradient of each parameter.
        main: The suspect that the verdict names; None if there are none.
        runs: The directories of the target and of the golden run.
    """
    body = [
        f"<p>Target: {escape_text(runs[0])}<br>Golden run: {escape_text(runs[1])}</p>",
        *_render_details(suspects, main),
        *(line for rank in ranks for line in _render_rank(rank, [s for s in suspects if s.rank == rank.rank])),
    ]
    return render_chart_page("Comparison of gradients", sentences.format_verdict(ranks, main), body)


def _render_details(suspects: Sequence[GradientSuspect], main: GradientSuspect | None) -> Iterator[str]:
    if main is None:
        return
    yield "<ul>"
    for line in sentences.iterate_details(suspects, main, load_rules()):
        yield f"<li>{escape_text(line)}</li>"
    yield "</ul>"


def _render_rank(rank: RankComparison, suspects: Sequence[GradientSuspect]) -> Iterator[str]:
    yield f"<h2>Rank {rank.rank}</h2>"
    yield '<p class="legend">Similarity is the share of gradient signs that are equal. A dot marks the first '
    yield "suspicious step.</p>"
    yield '<div class="charts">'
    summary = [rank.compute_summary(step).similarity for step in rank.steps]
    yield render_figure("Summary of all parameters", draw_chart(rank.steps, [ChartLine("similarity", summary)]))
    first = {suspect.parameter: suspect for suspect in suspects}
    shown = _select_parameters(rank.series, first)
    for series in shown:
        suspect = first.get(series.parameter)
        values = [a.similarity if (a := series.pairs[step].agreement) else None for step in rank.steps]
        drawing = draw_chart(rank.steps, [ChartLine("similarity", values)], suspect.step if suspect else None)
        norms = [
            ChartLine("target norm", [series.pairs[step].target_norm for step in rank.steps]),
            ChartLine("golden run norm", [series.pairs[step].golden_norm for step in rank.steps]),
        ]
        drawing += draw_chart(rank.steps, norms, suspect.step if suspect else None, is_logarithmic=True)
        yield render_figure(series.parameter, drawing, is_suspicious=suspect is not None)
    yield "</div>"
    if len(shown) < len(rank.series):
        omitted = format_count(len(rank.series) - len(shown), "parameter")
        yield f"<p>{omitted} of higher similarity are not drawn; similarities.csv holds all.</p>"


def _select_parameters(series: Sequence[ParameterSeries], first: dict[str, GradientSuspect]) -> list[ParameterSeries]:
    """Return the parameters to draw, in the order of the model."""

    def rank_series(each: ParameterSeries) -> tuple[bool, float]:
        values = [pair.agreement.similarity for pair in each.pairs.values() if pair.agreement]
        return each.parameter not in first, min(values, default=1.0)

    drawn = {each.parameter for each in sorted(series, key=rank_series)[:MAX_CHARTS]}
    return [each for each in series if each.parameter in drawn]
