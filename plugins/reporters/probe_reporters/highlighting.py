"""Marks of rows by highlighters (``-hl``, docs/tables.md#highlighting)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from probe_core.flow.judging import RowChain, find_unique_specs
from probe_core.model import Mode
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.report import ReportDraft
from probe_core.plugins.manager import Manager
from probe_core.plugins.parameters import split_parameters
from probe_core.plugins.protocols import OpenComparison
from probe_core.plugins.specs import MetricSpec, Needs
from probe_reporters.protocols import Highlighter
from probe_reporters.specs import HighlightSpec
from probe_reporters.text import MAX_SHEET_ROWS

OPTION = "highlight"
"""The name in ``Plan.options`` of the option ``-hl``."""


def set_highlight(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan of a comparison whose suspicious rows are marked."""
    return plan.with_options(**values)


def find_highlighter_metrics(plan: Plan, manager: Manager, mode: Mode) -> list[str]:
    """Return the metrics that highlighters read and that can measure the data in the runs."""
    if not plan.options.get(OPTION) or mode is Mode.MD5:
        return []
    measurable = {
        spec.name
        for spec in manager.specs("metrics", MetricSpec)
        if mode is Mode.TENSOR or spec.needs is not Needs.TENSOR
    }
    names = (name for spec in manager.specs("highlighters", HighlightSpec) for name in spec.metrics)
    return [name for name in names if split_parameters(name)[0] in measurable]


def create_highlighter_chain(opened: OpenComparison, draft: ReportDraft) -> RowChain:
    """Return the highlighters of a comparison; none if the plan requests none, or no mark can be shown."""
    is_marked = bool(opened.plan.options.get(OPTION)) and opened.mode is not Mode.MD5 and not opened.is_debug
    if is_marked and draft.row_count > MAX_SHEET_ROWS:
        draft.notes.append(f"{draft.row_count:,} rows do not fit into one sheet, so nothing is highlighted.")
        is_marked = False
    specs = find_unique_specs(opened.manager, "highlighters", HighlightSpec, opened.note_failure) if is_marked else []
    return RowChain(specs, _mark, "mark any row", opened.note_failure)


def _mark(name: str, highlighter: Highlighter, batch: RowBatch) -> None:
    """Apply the marks of a highlighter to the rows of a batch."""
    for number, (_, rows) in enumerate(batch.all_rows()):
        lines = batch.lines(number)
        for place, mark in highlighter.mark(rows).items():
            batch.mark(lines[place], mark)
