"""The answer of ``compare -da``: the first difference over all ranks (docs/first-difference.md#files)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from probe_reporters.api import ReasonTexts, Table

from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import AllResults, OpenComparison
from probe_core.store.layout import RunPair
from probe_diagnosis.asking import NAME, create_conflict_error
from probe_diagnosis.first_difference.analysis import analyze_steps, build_rank_file_path, write_step_analysis
from probe_diagnosis.first_difference.rank_file import RankFile
from probe_diagnosis.first_difference.rank_printing import FirstDifferenceConclusion


class FirstDifferences:
    """Answer that writes a file for each rank during the comparison, and searches all files at the end."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> RankFile | None:
        """Return the writer of one rank's file.

        It is None for a debug.json, because saved variables have no order of cause and effect.
        """
        if opened.is_debug:
            return None
        find = opened.target.find
        path = build_rank_file_path(opened.plan, pair)
        return RankFile(path, _create_table(opened), lambda op: find(op) is not None)

    def conclude(self, compared: AllResults) -> list[FirstDifferenceConclusion]:
        """Write the first differences of each step, and return them, ready to be printed."""
        analyses = analyze_steps(compared)
        for analysis in analyses:
            write_step_analysis(analysis)
        return [FirstDifferenceConclusion(analysis) for analysis in analyses]


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """Return the plan with ``-da`` added; tables and advice are written only if ``--format`` was given.

    Args:
        plan: The plan without ``-da``.
        values: The values of the option's flags.
        asked: The names of the options that the user gave.

    Raises:
        UserError: ``--baseline`` or ``--reference`` is set as well.
    """
    for name in ("baseline", "reference"):
        if plan.options.get(name) is not None:
            raise create_conflict_error(f"--{name}")
    formats = plan.formats if "formats" in asked else ()
    answers = (*plan.answers, NAME)
    return replace(plan, answers=answers, formats=formats, advise=plan.advise and bool(formats))


def _create_table(opened: OpenComparison) -> Table:
    """Return the columns of a rank's file: statistics or checksums, and for tensors their metrics as well."""
    texts = ReasonTexts.load(opened.manager)
    if opened.mode is not Mode.TENSOR:
        return Table(opened.mode, opened.columns(opened.mode), texts, stack=opened.has_stacks)
    columns = opened.columns(Mode.STATISTICS)
    return Table(Mode.STATISTICS, columns, texts, stack=opened.has_stacks, extra=opened.shown)
