"""Search for the first difference in the files of all ranks (docs/first-difference.md#search)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_core.files.atomic import write_text
from probe_core.model import Side
from probe_core.model.messages import NOT_AVAILABLE
from probe_core.model.plan import Plan
from probe_core.store.layout import RunPair
from probe_diagnosis.difference.rank_file import Item, items_at, read
from probe_diagnosis.difference.search import first_differences
from probe_diagnosis.difference.walking import Node
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.value_table import UNJUDGED_CODE

SHOWN = (
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "NPU MD5", "BENCH MD5", "NPU P2POp peer",
)  # fmt: skip
"""Columns of a value that ``diff_analyze`` repeats; msprobe has only those of the target."""


@dataclass(frozen=True, slots=True)
class Found:
    """An op where the runs diverge, with its rows from the file of its rank."""

    node: Node
    items: tuple[Item, ...]

    @property
    def stack(self) -> tuple[str, ...]:
        """Frames of the call, innermost first; empty if they were not recorded."""
        return next((item.stack for item in self.items if item.stack), ())


@dataclass(frozen=True, slots=True)
class Analysis:
    """Result of the search among the ranks of one step.

    Attributes:
        part: The directory of the step below the output; empty for the output itself.
        ranks: The ranks that were searched.
        found: The ops that no other difference explains, earliest first.
        judged: Number of values that could be judged.
        unjudged: Number of values that could not: without a partner, not recorded, or uninitialised.
        file: The ``diff_analyze`` file; None if no op was found.
    """

    part: str
    ranks: tuple[int, ...]
    found: tuple[Found, ...]
    judged: int
    unjudged: int
    file: Path | None


def rank_file_of(plan: Plan, pair: RunPair) -> Path:
    """Return the path of the file that ``-da`` writes for one rank."""
    return plan.output / pair.part / f"compare_result_rank{pair.rank}_{plan.time_stamp}.json"


def analyze(plan: Plan, pairs: Sequence[RunPair]) -> list[Analysis]:
    """Search the ranks of each step for the first difference, and write the result.

    Args:
        plan: The comparison, which is finished.
        pairs: Its pairs of runs; those that could not be compared have no file and are left out.

    Returns:
        One result for each step.

    Raises:
        UserError: A rank's file is damaged, or the output directory cannot be written to.
    """
    steps: dict[str, dict[int, Path]] = {}
    for pair in pairs:
        path = rank_file_of(plan, pair)
        if path.is_file():
            steps.setdefault(pair.part, {})[pair.rank] = path
    return [_analyze(plan, part, ranks) for part, ranks in steps.items()]


def _analyze(plan: Plan, part: str, ranks: Mapping[int, Path]) -> Analysis:
    """Search one step, whose ranks have these files."""
    calls = {rank: CallColumns.of(read(path)) for rank, path in ranks.items()}
    nodes = first_differences(calls)
    states = [columns.table.lines["state"] for columns in calls.values()]
    unjudged = sum(int((state == UNJUDGED_CODE).sum()) for state in states)
    differences = tuple(Found(node, items_at(ranks[node.rank], node.facts.place)) for node in nodes)
    file = plan.output / part / f"diff_analyze_{plan.time_stamp}.json" if differences else None
    if file is not None:
        write_text(file, json.dumps(_content(differences), indent=2) + "\n")
    return Analysis(part, tuple(ranks), differences, sum(map(len, states)) - unjudged, unjudged, file)


def _content(differences: Sequence[Found]) -> dict[str, list[dict[str, Any]]]:
    """Return the content of ``diff_analyze`` (docs/first-difference.md#files).

    ``reason`` and ``module`` are additions to msprobe's file.
    """
    content: dict[str, list[dict[str, Any]]] = {}
    for difference in differences:
        data = {
            side: {
                _row_name(item): {column: item.cells[column] for column in SHOWN if column in item.cells}
                for item in difference.items
                if (item.apart.side in (Side.INPUT, Side.PARAMETERS)) is (side == "input")
            }
            for side in ("input", "output")
        }
        content.setdefault(f"rank_{difference.node.rank}", []).append(
            {
                "op_name": difference.node.facts.op,
                "reason": difference.node.why,
                "data_info": data,
                "module": list(difference.node.facts.within),
                "stack_info": list(difference.stack),
            }
        )
    return content


def _row_name(item: Item) -> str:
    """Return the name of the target's value; that of the golden's if the target has none."""
    return item.golden if item.apart.row == NOT_AVAILABLE else item.apart.row
