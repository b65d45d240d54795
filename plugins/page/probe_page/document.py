"""The document of a page: a single file that contains its style, script and data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from markupsafe import Markup

from probe_core.errors import make_printable
from probe_core.model.report import Report
from probe_page.columns import Columns
from probe_page.head import Head, create_head
from probe_page.language import load_words
from probe_page.ops import Ops
from probe_page.rows import LEVELS
from probe_page.templates import compress_json, render_page

if TYPE_CHECKING:
    from probe_page.ranks import Exchanges

SCRIPTS = (
    "base.js", "data.js", "rows.js", "pictures.js", "inputs.js", "details.js", "regions.js", "chart.js",
    "tree.js", "ranks.js", "address.js", "main.js",
)  # fmt: skip
"""The parts of the script, in order."""


class Document(NamedTuple):
    """The contents of a page of one comparison.

    Attributes:
        lang: The language that it opens in.
        report: The outcome of the comparison; None of a table without one.
        rows: The rows.
        ops: The calls that they belong to.
        percent: The headers of columns whose numbers are shown as percentages.
        left_out: Number of rows that the page leaves out.
        pictures: The pictures of rows, by the rows' numbers.
        limits: Sentences on the limits of metrics, by their columns.
    """

    lang: str
    report: Report | None
    rows: Columns
    ops: Ops
    percent: set[str]
    left_out: int
    pictures: Mapping[int, Mapping[str, Any]]
    limits: Mapping[str, str]


class OverviewEntry(NamedTuple):
    """A comparison of a page over several.

    Attributes:
        step: The directory of its step; empty if there is only one.
        name: The name of the rank.
        outcome: The verdict; empty without one.
        sentence: The verdict as a sentence, or the error.
        link: The path of its page relative to this page; empty if it has no page.
        worst: The largest relative distance beyond rounding; 0 for none.
    """

    step: str
    name: str
    outcome: str
    sentence: str
    link: str
    worst: float = 0.0

    @property
    def size(self) -> str:
        """The largest distance beyond rounding, as text; empty for none."""
        return "≠" if self.worst == math.inf else f"{self.worst:.2g}" if self.worst else ""

    @property
    def shade(self) -> int:
        """The shade of that distance, from 1 to 5: a shade for two powers of ten."""
        return 5 if self.worst >= 1 else max(1, 5 + math.ceil(math.log10(self.worst) / 2)) if self.worst else 1


def write_page(file: BinaryIO, document: Document) -> None:
    """Write the page of one comparison."""
    report, calls = document.report, document.ops.finish_columns()
    blocks = {
        "rows": document.rows.encode_blocks(),
        "ops": calls.encode_blocks(),
        "pictures": [compress_json(document.pictures)] if document.pictures else [],
    }
    data = {
        "rows": _describe_columns(document.rows),
        "ops": _describe_columns(calls),
        "percent": sorted(document.percent),
        "leftOut": document.left_out,
        "causes": [cause.op for cause in report.answer.causes] if report and report.answer else [],
        "causeRow": _find_first_cause_row(report),
        "levels": LEVELS,
        "limits": dict(document.limits),
        "mode": report.mode.value if report else "",
    }
    file.write(_render_page(document.lang, create_head(report), data, blocks))


def _find_first_cause_row(report: Report | None) -> str:
    """Return the name of the first cause's row, or of its call; empty without a cause."""
    causes = report.answer.causes if report and report.answer else ()
    return causes[0].row or causes[0].op if causes else ""


def write_overview(
    file: BinaryIO,
    lang: str,
    head: Head,
    parts: Sequence[OverviewEntry],
    chart: Mapping[str, Any] | None,
    exchanges: Exchanges | None,
) -> None:
    """Write the page over several comparisons, with the lines of their calls and who sent to whom."""
    file.write(_render_page(lang, head, None, {}, parts, chart, exchanges))


def _describe_columns(columns: Columns) -> dict[str, Any]:
    return {"names": [make_printable(name, 200) for name in columns.names], "count": columns.count}


def _render_page(
    lang: str,
    head: Head,
    data: dict[str, Any] | None,
    blocks: dict[str, list[str]],
    parts: Sequence[OverviewEntry] = (),
    chart: Mapping[str, Any] | None = None,
    exchanges: Exchanges | None = None,
) -> bytes:
    meta = dict(data or {})
    if chart is not None:
        causes = head.answer.causes if head.answer is not None else ()
        first = next((f"{cause.step} rank{cause.rank}".strip() for cause in causes), "")
        meta |= {"lines": chart, "causes": [cause.op for cause in causes], "first": first}
    return render_page(
        "page.html",
        lang,
        load_words,
        styles=["page.css"],
        scripts=SCRIPTS,
        meta=meta,
        head=head,
        has_rows=data is not None,
        is_judged=head.answer is not None,
        blocks={kind: list(map(Markup, texts)) for kind, texts in blocks.items()},
        parts=parts,
        steps=list(dict.fromkeys(part.step for part in parts)),
        ranks=list(dict.fromkeys(part.name for part in parts)),
        cell={(part.step, part.name): part for part in parts},
        lines=chart,
        exchanges=exchanges,
    )
