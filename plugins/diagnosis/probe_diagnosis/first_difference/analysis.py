"""The causes of the verdict with the rows of their calls (docs/first-difference.md#files)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_reporters.messages import NOT_AVAILABLE

from probe_core.files.atomic import write_text
from probe_core.model import Side
from probe_core.model.answers import Finding
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import AllResults
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.verdict.answerer import find_agreeing_ranks, find_step_causes
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.first_difference.rank_file import Item, read_items, read_rank_file
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.value_table import UNJUDGED_CODE

DATA_COLUMNS = (
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "NPU MD5", "BENCH MD5", "NPU P2POp peer",
)  # fmt: skip
"""Columns of a value that ``diff_analyze`` repeats; msprobe has only those of the target."""


@dataclass(frozen=True, slots=True)
class DivergingCall:
    """A call where the runs diverge, with its rows from the file of its rank.

    If the cause is not a call but, for example, a phase of the step, the rows are those of the first call that differs
    because of it.
    """

    cause: Finding
    items: tuple[Item, ...]

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
        found: The causes with their rows, in the order of cause and effect.
        judged: Number of values that could be judged.
        unjudged: Number of values that could not: without a partner, not recorded, or uninitialised.
        file: The ``diff_analyze`` file; None without a cause.
    """

    part: str
    ranks: tuple[int, ...]
    found: tuple[DivergingCall, ...]
    judged: int
    unjudged: int
    file: Path | None


def build_rank_file_path(plan: Plan, pair: RunPair) -> Path:
    """Return the path of the file that ``-da`` writes for one rank."""
    return plan.output / pair.part / f"compare_result_rank{pair.rank}_{plan.time_stamp}.json"


def analyze(compared: AllResults) -> list[StepAnalysis]:
    """Write the causes of each step with the rows of their calls, and return them.

    Args:
        compared: The finished comparisons; ranks that could not be compared have no file and are left out.

    Raises:
        UserError: A rank's file is damaged, or the output directory cannot be written to.
    """
    steps: dict[str, dict[int, Path]] = {}
    for pair in compared.pairing.pairs:
        path = build_rank_file_path(compared.plan, pair)
        if path.is_file():
            steps.setdefault(pair.part, {})[pair.rank] = path
    return [_analyze(compared, part, ranks) for part, ranks in steps.items()]


def _analyze(compared: AllResults, part: str, ranks: Mapping[int, Path]) -> StepAnalysis:
    """Write the causes of one step, whose ranks have these files."""
    plan = compared.plan
    calls = {rank: CallColumns.from_calls(read_rank_file(path)) for rank, path in ranks.items()}
    states = [columns.table.lines["state"] for columns in calls.values()]
    unjudged = sum(int((state == UNJUDGED_CODE).sum()) for state in states)
    differences = tuple(
        DivergingCall(cause, _read_items(cause, calls[cause.rank], ranks[cause.rank]))
        for cause in _select_decisive_causes(compared, part)
        if cause.rank in calls
    )
    file = plan.output / part / f"diff_analyze_{plan.time_stamp}.json" if differences else None
    if file is not None:
        write_text(file, json.dumps(_build_content(differences), indent=2) + "\n")
    return StepAnalysis(part, tuple(ranks), differences, sum(map(len, states)) - unjudged, unjudged, file)


def _select_decisive_causes(compared: AllResults, part: str) -> list[Finding]:
    """Return the first cause, and all others but calls that were only called differently.

    The first cause is the one that the verdict names, even if its output agrees.
    """
    agreeing = find_agreeing_ranks(compared, part)
    causes = [cause for cause in find_step_causes(compared, part) if cause.rank not in agreeing]
    return causes[:1] + [cause for cause in causes[1:] if cause.reason.code != Cause.DIFFERENTLY.value]


def _read_items(cause: Finding, calls: CallColumns, path: Path) -> tuple[Item, ...]:
    """Return the rows of the call of a cause, or of the first call that differs by it."""
    numbers = (calls.numbers[op] for op in (cause.op, *cause.consequences) if op in calls.numbers)
    number = next(numbers, None)
    return () if number is None else read_items(path, calls.places[number])


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
                if (item.apart.side in (Side.INPUT, Side.PARAMETERS)) is (side == "input")
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


def _get_row_name(item: Item) -> str:
    """Return the name of the target's value; that of the golden's if the target has none."""
    return item.golden if item.apart.row == NOT_AVAILABLE else item.apart.row
