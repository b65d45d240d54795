"""The head of a page for a notebook, in elements that every notebook shows."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from probe_core.errors import counted, printable
from probe_page.head import Head, Shown
from probe_page.language import words

if TYPE_CHECKING:
    from probe_core.library import Comparison

SHOWN = 5
"""Largest number of causes that a notebook shows."""


def notebook_head(comparison: Comparison) -> str:
    """Return the verdict of a comparison, its causes, what was covered, and problems.

    It is the head of the page (``probe_page.head``) without its pictures: the same sentences, lines of code
    and numbers, in elements without attributes.
    """
    answer, counts = comparison.answer, comparison.counts
    plan = comparison.plan
    head = Head.of(answer, str(plan.target), str(plan.golden))
    levels = ", ".join(f"{count:,} {level.value}" for level, count in counts.levels.items() if count)
    lines = [answer.sentence if answer else "No verdict."]
    if answer is not None:
        coverage = answer.coverage
        lines.append(f"{coverage.compared:,} of {coverage.recorded:,} recorded values compared.")
    lines.append(f"{head.target} compared with {head.golden}: {counted(counts.rows, 'row')} ({levels}).")
    lines += [*comparison.problems, *(text for report in comparison.reports for text in report.problems)]
    text = "".join(f"<p>{_shown(line)}</p>" for line in lines)
    text += "".join(f"<p>{'<br>'.join(_cause(one))}</p>" for one in head.causes[:SHOWN])
    steps = answer.next if answer is not None else ()
    return text + "".join(f"<p><code>{_shown(step)}</code></p>" for step in steps)


def _cause(one: Shown) -> Iterator[str]:
    """Yield the lines on a cause: its reason, its line of code, its module, and its distance."""
    cause, frame = one.cause, one.frame
    yield f"<code>{_shown(cause.row or cause.op)}</code> {_shown(cause.reason.detail)}"
    if frame is not None:
        place = f"{frame.file}:{frame.line}" if frame.line else frame.file
        yield _shown(f"{place} in {frame.function}" if frame.function else place)
        if frame.source:
            yield f"<code>{_shown(frame.source)}</code>"
    if cause.modules:
        yield _shown(cause.modules[0])
    if one.bars:
        yield _shown(", ".join(f"{words()[bar.key]['en']}: {bar.value}" for bar in one.bars))


def _shown(text: str) -> str:
    return escape(printable(text))
