"""``-da``: the first difference over all ranks, as an answer that ``compare`` can be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from probe_core.flow.table import Table
from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Opened
from probe_core.store.layout import RunPair
from probe_diagnosis.difference.analysis import analyze, rank_file_of
from probe_diagnosis.difference.printing import Shown
from probe_diagnosis.difference.rank_file import RankFile


class FirstDifferences:
    """Writes a file a rank while rows pass by, and searches the files of all ranks at the end."""

    def witness(self, opened: Opened, pair: RunPair) -> RankFile | None:
        """The file of one rank; variables saved on their own have no first one."""
        if opened.is_debug:
            return None
        find = opened.target.find
        path = rank_file_of(opened.plan, pair)
        return RankFile(path, _table(opened), lambda op: find(op) is not None)

    def conclude(self, plan: Plan, pairs: Sequence[RunPair]) -> list[Shown]:
        """The first differences of each step."""
        return [Shown(analysis) for analysis in analyze(plan, pairs)]


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """The plan with ``-da``: tables and advice only where a format was asked for."""
    formats = plan.formats if "formats" in asked else ()
    answers = (*plan.answers, "first_difference")
    return replace(plan, answers=answers, formats=formats, advise=plan.advise and bool(formats))


def _table(opened: Opened) -> Table:
    """The columns of the file: those of statistics or checksums, and with tensors their metrics."""
    if opened.mode is not Mode.TENSOR:
        return Table(opened.mode, opened.columns(opened.mode), stack=opened.has_stacks)
    columns = opened.columns(Mode.STATISTICS)
    return Table(Mode.STATISTICS, columns, stack=opened.has_stacks, extra=opened.shown)
