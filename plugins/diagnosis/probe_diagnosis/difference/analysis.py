"""The first difference of a comparison that is finished: found in its ranks' files, and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_core.files.atomic import write_text
from probe_core.model import Side
from probe_core.model.messages import NOT_AVAILABLE
from probe_core.model.plan import Plan
from probe_core.store.layout import RunPair
from probe_diagnosis.difference.facts import UNJUDGED
from probe_diagnosis.difference.rank_file import Item, items_at, read
from probe_diagnosis.difference.search import Node, first_differences

SHOWN = (
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "NPU MD5", "BENCH MD5", "NPU P2POp peer",
)  # fmt: skip
"""The columns of a value that ``diff_analyze`` repeats; of the golden's, which the seed's file lacks, too."""


@dataclass(frozen=True, slots=True)
class Found:
    """An op where the runs part, with its rows as its rank's file has them."""

    node: Node
    items: tuple[Item, ...]

    @property
    def stack(self) -> tuple[str, ...]:
        """Where the op was called, innermost first; empty where that is not on record."""
        return next((item.stack for item in self.items if item.stack), ())


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found among the ranks of one step.

    Attributes:
        part: The directory of the step below the output; empty for the output itself.
        ranks: The ranks that were searched.
        found: The ops that no other difference explains, earliest first.
        judged: How many values could be judged.
        unjudged: How many could not: without a partner, not recorded, not computed yet.
        file: The file that says so; None where nothing was found.
    """

    part: str
    ranks: tuple[int, ...]
    found: tuple[Found, ...]
    judged: int
    unjudged: int
    file: Path | None


def rank_file_of(plan: Plan, pair: RunPair) -> Path:
    """The file that ``-da`` writes for one rank."""
    return plan.output / pair.part / f"compare_result_rank{pair.rank}_{plan.time_stamp}.json"


def analyze(plan: Plan, pairs: Sequence[RunPair]) -> list[Analysis]:
    """Search the ranks that were compared, step by step, and write what was found.

    Args:
        plan: The comparison, which has been made.
        pairs: Its pairs; those without a file, which could not be compared, are left out.

    Raises:
        UserError: A file that is damaged, or an output directory that takes none.
    """
    steps: dict[str, dict[int, Path]] = {}
    for pair in pairs:
        path = rank_file_of(plan, pair)
        if path.is_file():
            steps.setdefault(pair.part, {})[pair.rank] = path
    return [_analyze(plan, part, ranks) for part, ranks in steps.items()]


def _analyze(plan: Plan, part: str, ranks: Mapping[int, Path]) -> Analysis:
    ops = {rank: list(read(path)) for rank, path in ranks.items()}
    nodes = first_differences(ops)
    states = Counter(value.state == UNJUDGED for own in ops.values() for op in own for value in op.values)
    found = tuple(Found(node, items_at(ranks[node.rank], node.facts.place)) for node in nodes)
    file = plan.output / part / f"diff_analyze_{plan.time_stamp}.json" if found else None
    if file is not None:
        write_text(file, json.dumps(_content(found), indent=2) + "\n")
    return Analysis(part, tuple(ranks), found, states[False], states[True], file)


def _content(found: Sequence[Found]) -> dict[str, list[dict[str, Any]]]:
    """The file's content (spec/compare 12.3), with the reason and the modules around the op added."""
    content: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        data = {
            side: {
                _row_name(item): {column: item.cells[column] for column in SHOWN if column in item.cells}
                for item in one.items
                if (item.apart.side in (Side.INPUT, Side.PARAMETERS)) is (side == "input")
            }
            for side in ("input", "output")
        }
        content.setdefault(f"rank_{one.node.rank}", []).append(
            {
                "op_name": one.node.facts.op,
                "reason": one.node.why,
                "data_info": data,
                "module": list(one.node.facts.within),
                "stack_info": list(one.stack),
            }
        )
    return content


def _row_name(item: Item) -> str:
    return item.golden if item.apart.row == NOT_AVAILABLE else item.apart.row
