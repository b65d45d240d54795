"""The head of a page for a notebook, in elements that every notebook shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from probe_core.errors import printable

if TYPE_CHECKING:
    from probe_core.library import Comparison
    from probe_core.model.answers import Answer

SHOWN = 5
"""Largest number of causes that a notebook shows."""


def notebook_head(comparison: Comparison) -> str:
    """Return the verdict of a comparison, its causes, what was covered, and problems."""
    answer, counts = comparison.answer, comparison.counts
    levels = ", ".join(f"{count:,} {level.value}" for level, count in counts.levels.items() if count)
    lines = [answer.sentence if answer else "No verdict."]
    lines += _covered(answer)
    lines += [
        f"{comparison.plan.target} compared with {comparison.plan.golden}: {counts.rows:,} rows ({levels})."
    ]
    lines += [*comparison.problems, *(text for report in comparison.reports for text in report.problems)]
    text = "".join(f"<p>{_shown(line)}</p>" for line in lines)
    for cause in answer.causes[:SHOWN] if answer else ():
        parts = [f"<code>{_shown(cause.row or cause.op)}</code> {_shown(cause.reason.detail)}"]
        parts += [_shown(part) for part in (cause.where, *cause.modules[:1]) if part]
        text += f"<p>{'<br>'.join(parts)}</p>"
    return text


def _covered(answer: Answer | None) -> list[str]:
    if answer is None:
        return []
    coverage = answer.coverage
    return [f"{coverage.compared:,} of {coverage.recorded:,} recorded values compared."]


def _shown(text: str) -> str:
    return escape(printable(text))
