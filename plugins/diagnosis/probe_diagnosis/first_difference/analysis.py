"""The causes of the verdict with the rows of their calls (docs/first-difference.md#files)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_reporters.api import NOT_AVAILABLE

from probe_core.files.atomic import write_text
from probe_core.model import Side
from probe_core.model.answers import Finding
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import AllResults
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.verdict.answerer import find_agreeing_ranks, find_step_causes
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.first_difference.rank_file import RankFileRow, read_items, read_rank_file
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.value_table import UNJUDGED_CODE

DATA_COLUMNS = (
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "NPU MD5", "BENCH MD5", "NPU P2POp peer",
)  # fmt: skip
"""Columns of a value that ``diff_analyze`` repeats; msprobe has only those of the target."""


@dataclass(frozen=True, slots=True)
class DivergingCall:
    """A cause with the rows of its call, from the file of its rank.

    If the cause is a phase of the step, for example, and not a call, the rows are those of the first call that differs
    as a consequence.
    """

    cause: Finding
    items: tuple[RankFileRow, ...]

    @property
    def stack(self) -> tuple[str, ...]:
        """Frames of the call, innermost first; the line of the cause if none were recorded."""
        frames = next((item.stack for item in self.items if item.stack), ())
        return frames or ((self.cause.where,) if self.cause.where else ())


@dataclass(frozen=True, slots=True)
class StepAnalysis:
    """Causes among the ranks of one step.

    Attributes:
        part: The directory of the step below the output; empty for the output itself.
        ranks: The ranks that were compared.
        causes: The causes with their rows, in the order of cause and effect.
        judged_count: Number of values that could be judged.
        unjudged_count: Number of values that could not be judged: without a partner, not recorded, or uninitialized.
        file: The path of the ``diff_analyze`` file; None without a cause.
    """

    part: str
    ranks: tuple[int, ...]
    causes: tuple[DivergingCall, ...]
    judged_count: int
    unjudged_count: int
    file: Path | None


def build_rank_file_path(plan: Plan, pair: RunPair) -> Path:
    """Return the path of the file that ``-da`` writes for one rank."""
    return plan.output / pair.part / f"compare_result_rank{pair.rank}_{plan.time_stamp}.json"


def analyze_steps(compared: AllResults) -> list[StepAnalysis]:
    """Return the causes of each step with the rows of their calls.

    Args:
        compared: The finished comparisons; ranks that could not be compared have no file and are left out.

    Raises:
        UserError: A rank's file is damaged.
    """
    steps: dict[str, dict[int, Path]] = {}
    for pair in compared.pairing.pairs:
        path = build_rank_file_path(compared.plan, pair)
        if path.is_file():
            steps.setdefault(pair.part, {})[pair.rank] = path
    return [_analyze_step(compared, part, ranks) for part, ranks in steps.items()]


def write_step_analysis(analysis: StepAnalysis) -> None:
    """Write the ``diff_analyze`` file of a step, if it has a cause.

    Raises:
        UserError: The output directory cannot be written to.
    """
    if analysis.file is not None:
        write_text(analysis.file, json.dumps(_build_content(analysis.causes), indent=2) + "\n")


def _analyze_step(compared: AllResults, part: str, ranks: Mapping[int, Path]) -> StepAnalysis:
    """Return the causes of one step. ``ranks`` maps each rank to its file."""
    plan = compared.plan
    calls = {rank: CallColumns.from_calls(read_rank_file(path)) for rank, path in ranks.items()}
    states = [columns.table.lines["state"] for columns in calls.values()]
    unjudged_count = sum(int((state == UNJUDGED_CODE).sum()) for state in states)
    judged_count = sum(map(len, states)) - unjudged_count
    causes = tuple(
        DivergingCall(cause, _read_items(cause, calls[cause.rank], ranks[cause.rank]))
        for cause in _select_decisive_causes(compared, part)
        if cause.rank in calls
    )
    file = plan.output / part / f"diff_analyze_{plan.time_stamp}.json" if causes else None
    return StepAnalysis(part, tuple(ranks), causes, judged_count, unjudged_count, file)


def _select_decisive_causes(compared: AllResults, part: str) -> list[Finding]:
    """Return the first cause, and all others but calls that were only called differently.

    The first cause is the one that the verdict names, even if its output agrees.
    """
    agreeing = find_agreeing_ranks(compared, part)
    causes = [cause for cause in find_step_causes(compared, part) if cause.rank not in agreeing]
    return causes[:1] + [cause for cause in causes[1:] if cause.reason.code != CauseKind.ALTERED_CALL.value]


def _read_items(cause: Finding, calls: CallColumns, path: Path) -> tuple[RankFileRow, ...]:
    """Return the rows of the call of a cause, or of the first call that differs as a consequence."""
    call_numbers = (calls.numbers_by_key[op] for op in (cause.op, *cause.consequences) if op in calls.numbers_by_key)
    number = next(call_numbers, None)
    return () if number is None else read_items(path, calls.file_ranges[number])


def _build_content(differences: Sequence[DivergingCall]) -> dict[str, list[dict[str, Any]]]:
    """Return the content of ``diff_analyze`` (docs/first-difference.md#files).

    ``reason`` and ``module`` are additions to msprobe's file.
    """
    content: dict[str, list[dict[str, Any]]] = {}
    for difference in differences:
        data = {
            side: {
                _get_row_name(item): {column: item.cells[column] for column in DATA_COLUMNS if column in item.cells}
                for item in difference.items
                if (item.comparison.side in (Side.INPUT, Side.PARAMETERS)) is (side == "input")
            }
            for side in ("input", "output")
        }
        content.setdefault(f"rank_{difference.cause.rank}", []).append(
            {
                "op_name": difference.cause.op,
                "reason": difference.cause.reason.detail,
                "data_info": data,
                "module": list(difference.cause.modules),
                "stack_info": list(difference.stack),
            }
        )
    return content


def _get_row_name(item: RankFileRow) -> str:
    """Return the name of the target's value; that of the golden's if the target has none."""
    return item.golden if item.comparison.row == NOT_AVAILABLE else item.comparison.row
