"""The head of a page for a notebook, in elements that every notebook shows."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from probe_core.errors import format_count, make_printable
from probe_page.head import Head, PageCause
from probe_page.language import load_words

if TYPE_CHECKING:
    from probe_core.library import Comparison

MAX_NOTEBOOK_CAUSES = 5
"""Largest number of causes that a notebook shows."""


def render_notebook_head(comparison: Comparison) -> str:
    """Return the verdict of a comparison, its causes, its coverage, and problems.

    The text is that of the head of the page (``probe_page.head``) without its pictures. Elements have no attributes,
    because notebooks remove them.
    """
    answer, counts = comparison.answer, comparison.counts
    plan = comparison.plan
    head = Head.from_answer(answer, str(plan.target), str(plan.golden))
    levels = ", ".join(f"{count:,} {level.value}" for level, count in counts.levels.items() if count)
    lines = [answer.sentence if answer else "No verdict."]
    if answer is not None:
        coverage = answer.coverage
        lines.append(f"{coverage.compared:,} of {coverage.recorded:,} recorded values compared.")
    lines.append(f"{head.target} compared with {head.golden}: {format_count(counts.rows, 'row')} ({levels}).")
    lines += [*comparison.problems, *(text for report in comparison.reports for text in report.problems)]
    text = "".join(f"<p>{_escape_text(line)}</p>" for line in lines)
    text += "".join(
        f"<p>{'<br>'.join(_iterate_cause_lines(page_cause))}</p>" for page_cause in head.causes[:MAX_NOTEBOOK_CAUSES]
    )
    steps = answer.next if answer is not None else ()
    return text + "".join(f"<p><code>{_escape_text(step)}</code></p>" for step in steps)


def _iterate_cause_lines(page_cause: PageCause) -> Iterator[str]:
    """Yield the lines on a cause: its reason, its line of code, its module, and its distance."""
    cause, frame = page_cause.cause, page_cause.frame
    yield f"<code>{_escape_text(cause.row or cause.op)}</code> {_escape_text(cause.reason.detail)}"
    if frame is not None:
        place = f"{frame.file}:{frame.line}" if frame.line else frame.file
        yield _escape_text(f"{place} in {frame.function}" if frame.function else place)
        if frame.source:
            yield f"<code>{_escape_text(frame.source)}</code>"
    if cause.modules:
        yield _escape_text(cause.modules[0])
    if page_cause.bars:
        words = load_words()
        yield _escape_text(", ".join(f"{words[bar.key]['en']}: {bar.value}" for bar in page_cause.bars))


def _escape_text(text: str) -> str:
    return escape(make_printable(text))
