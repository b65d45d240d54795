"""The page of a comparison of gradients: one file with inline SVG, without scripts and external resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from probe_diagnosis import ChartLine, draw_chart

from probe_core.errors import format_count
from probe_core.safe_text import escape_invisible
from probe_watch.grad_probe import sentences
from probe_watch.grad_probe.rules import GradientSuspect, load_rules
from probe_watch.grad_probe.similarity import ParameterSeries, RankComparison

MAX_CHARTS = 100
"""Number of charts of parameters per rank: suspicious ones first, then those of the lowest similarity."""

_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:74em;padding:0 1em;color:#1c2430}
h1{font-size:1.25em}h2{font-size:1.1em;margin-top:2em}h3{font-size:.95em;margin:.2em 0;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(21em,1fr));gap:1em}
.chart{border:1px solid #d5dae1;border-radius:4px;padding:.6em}.suspicious{border-color:#c0392b}
svg{width:100%;height:auto}.legend{font-size:.8em;color:#5a6472}li{overflow-wrap:anywhere}
"""


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
    verdict = sentences.format_verdict(ranks, main)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Comparison of gradients</title>',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{_escape(verdict)}</h1>",
            f"<p>Target: {_escape(runs[0])}<br>Golden run: {_escape(runs[1])}</p>",
            *_render_details(suspects, main),
            *(line for rank in ranks for line in _render_rank(rank, [s for s in suspects if s.rank == rank.rank])),
            "</body></html>",
            "",
        ]
    )


def _render_details(suspects: Sequence[GradientSuspect], main: GradientSuspect | None) -> Iterator[str]:
    if main is None:
        return
    yield "<ul>"
    for line in sentences.iterate_details(suspects, main, load_rules()):
        yield f"<li>{_escape(line)}</li>"
    yield "</ul>"


def _render_rank(rank: RankComparison, suspects: Sequence[GradientSuspect]) -> Iterator[str]:
    yield f"<h2>Rank {rank.rank}</h2>"
    yield '<p class="legend">Similarity is the share of gradient signs that are equal. A dot marks the first '
    yield "suspicious step.</p>"
    yield '<div class="charts">'
    summary = [rank.compute_summary(step).similarity for step in rank.steps]
    yield _render_figure("Summary of all parameters", draw_chart(rank.steps, [ChartLine("similarity", summary)]))
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
        yield _render_figure(series.parameter, drawing, is_suspicious=suspect is not None)
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


def _render_figure(title: str, drawing: str, *, is_suspicious: bool = False) -> str:
    kind = "chart suspicious" if is_suspicious else "chart"
    return f'<div class="{kind}"><h3>{_escape(title)}</h3>{drawing}</div>'


def _escape(value: object) -> str:
    return escape(escape_invisible(str(value)))
