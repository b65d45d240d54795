"""The page over several ranks and steps: the verdict on all of them, and the way to the page of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from probe_core import console
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_atomically
from probe_core.model.answers import Answer
from probe_core.plugins.parameters import split_parameters
from probe_core.plugins.protocols import AllResults, PairResult
from probe_page.language import FORMAT

if TYPE_CHECKING:
    from probe_diagnosis.api import CallDepth

    from probe_core.plugins.protocols import OpenComparison
    from probe_core.store.layout import RunPair
    from probe_page.document import OverviewEntry


class Overview:
    """Answer of a comparison of several ranks or steps whose plan writes pages."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> None:
        """Observe nothing; the reports say all."""

    def conclude(self, results: AllResults) -> Iterator[OverviewPage]:
        """Write the page, and yield it ready to be printed; nothing of a single comparison.

        Raises:
            UserError: The page cannot be written.
        """
        formats = dict(split_parameters(name) for name in results.plan.formats)
        if len(results.pairing.pairs) > 1 and FORMAT in formats and results.finished:
            yield OverviewPage(_write_overview_page(results, formats[FORMAT].get("lang", "en")))


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The page over several comparisons, whose path can be printed.

    Attributes:
        path: Its path.
        is_judged: Always True, because the reports state whether they were judged.
    """

    path: Path
    is_judged: bool = True
    answer: Answer | None = None

    def show(self, *, brief: bool = False) -> None:
        """Print its path."""
        console.show(f"  wrote {self.path}")


def _write_overview_page(compared: AllResults, lang: str) -> Path:
    from probe_diagnosis.api import build_overall_answer, list_call_depths

    from probe_page.document import write_overview
    from probe_page.head import Head
    from probe_page.ranks import draw_lines, find_exchanges

    plan = compared.plan
    calls = [list_call_depths(result) for result in compared.finished]
    parts = [_create_entry(result, plan.output, call_depths) for result, call_depths in zip(compared.finished, calls)]
    answer = build_overall_answer(compared)
    steps: dict[str, dict[int, list[CallDepth]]] = {}
    for result, call_depths in zip(compared.finished, calls):
        steps.setdefault(result.pair.part, {}).setdefault(result.pair.rank, call_depths)
    first = answer.causes[0].step if answer is not None and answer.causes else ""
    chart = draw_lines(
        [(part.step, part.name, part.link, call_depths) for part, call_depths in zip(parts, calls) if call_depths]
    )
    make_directory(plan.output)
    path = plan.output / f"compare_summary_{plan.time_stamp}.html"
    with write_atomically(path, "The page") as temporary, temporary.open("wb") as stream:
        head = Head.from_answer(answer, str(plan.target), str(plan.golden))
        write_overview(stream, lang, head, parts, chart if chart["lines"] else None, find_exchanges(steps, first))
    return path


def _create_entry(result: PairResult, output: Path, calls: Sequence[CallDepth]) -> OverviewEntry:
    from probe_page.document import OverviewEntry
    from probe_page.ranks import find_worst_distance

    report = result.report
    rank = f"rank{result.pair.rank}" + (" debug" if result.pair.target.name.startswith("debug") else "")
    if report is None:
        message = result.error.what if isinstance(result.error, UserError) else ""
        return OverviewEntry(result.pair.part, rank, "", message, "")
    page = next((path for path in report.files if path.suffix == f".{FORMAT}"), None)
    link = quote(os.path.relpath(page, output).replace(os.sep, "/")) if page is not None else ""
    answer = report.answer
    outcome, sentence = (answer.outcome.value, answer.sentence) if answer is not None else ("", "")
    return OverviewEntry(result.pair.part, rank, outcome, sentence, link, find_worst_distance(calls))
