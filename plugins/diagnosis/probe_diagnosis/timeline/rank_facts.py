"""Facts about one rank, collected batch by batch: the basis of its verdict and of that over all ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe_core.model import MatchKind, Pair, Record, Side
from probe_core.model.batches import MATCH_KINDS, RowBatch
from probe_core.model.columns import SIDES, Array
from probe_core.model.report import LineNumbers
from probe_core.store.names import is_backward
from probe_diagnosis.collectives.calls import find_api, parse_call
from probe_diagnosis.frames import find_own_frame
from probe_diagnosis.timeline.batch_values import build_value_table
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import ValueComparison
from probe_diagnosis.timeline.corrections import mark_one_sided_arguments, rescale_quotients
from probe_diagnosis.timeline.coverage import CoverageTally
from probe_diagnosis.timeline.floors import apply_floors
from probe_diagnosis.timeline.order import OPTIMIZER, is_dividing, is_in_place
from probe_diagnosis.timeline.value_table import (
    DIFFERS_CODE,
    IS_IN_REGION,
    NO_QUANTITY,
    UNJUDGED_CODE,
    ValueTable,
)

MISPAIRED_EVIDENCE = "this call may be paired with the wrong call"
"""Evidence of an unjudged value of a call that one run makes more often."""

_OP_PATTERN = re.compile(r"(.+?\.(?:forward|backward)(?:\.\d+)?|.+?\.parameters_grad)\b")


def find_op(name: str) -> str:
    """Return the key of the op in the name of a row; empty if there is none."""
    match = _OP_PATTERN.match(name)
    return match[1] if match else ""


@dataclass(slots=True)
class RankFacts:
    """Facts about one rank.

    Attributes:
        rank: The number of the rank.
        ops: The calls, with the differences of their values.
        tally: The values that were compared, and those that were not.
        target_only: The ops that only the target has, or that do not line up.
        golden_only: The same of the golden.
        is_shifted: True if calls are paired by numbers that do not line up.
        start: The ops of the target at the start of a resumed process, which are not compared.
    """

    rank: int = 0
    ops: CallColumns = field(default_factory=CallColumns)
    tally: CoverageTally = field(default_factory=CoverageTally)
    target_only: dict[str, None] = field(default_factory=dict)
    golden_only: dict[str, None] = field(default_factory=dict)
    is_shifted: bool = False
    start: frozenset[str] = frozenset()

    def add(self, batch: RowBatch, positions: LineNumbers | None = None) -> ValueTable:
        """Add the rows of a batch after all judges, and return their differences, one line per row.

        Args:
            batch: The rows.
            positions: Their positions in the result file; None without a file.
        """
        table = build_value_table(batch)
        if positions is not None:
            table.lines["row"] = np.arange(len(batch)) + positions.first
            table.get_row_position = self.ops.table.get_row_position = positions.line
        else:
            table.lines["row"] = -1
        apply_floors(batch, table)
        described = [batch.op(number) for number in range(len(batch.ops))]
        self.rank = described[0].rank if described else self.rank
        shifted = {number for number, op in enumerate(described) if op.shifted}
        self.is_shifted = self.is_shifted or bool(shifted)
        op_of = np.repeat(np.arange(len(batch.ops)), np.diff(batch.starts))
        is_shifted = np.isin(op_of, [*shifted])
        is_start = np.isin(op_of, [number for number, key in enumerate(batch.ops) if key in self.start])
        self.tally.add(batch, table, is_shifted, is_start)
        table.lines["state"][is_start] = UNJUDGED_CODE
        for line in np.flatnonzero(is_shifted).tolist():
            table.texts[line] = MISPAIRED_EVIDENCE
        table.lines["state"][is_shifted] = UNJUDGED_CODE
        table.lines["quantity"][is_shifted] = NO_QUANTITY
        table.lines["flags"][is_shifted] &= 0xFF ^ IS_IN_REGION
        goldens = _list_golden_keys(batch)
        is_own = self._select_target_rows(batch, goldens)
        modules = [op.ancestors for op in described]
        self._correct(batch, table, is_own, modules)
        self._add_calls(batch, table, is_own, goldens, shifted, [*map(tuple, modules)])
        return table

    def _select_target_rows(self, batch: RowBatch, goldens: Sequence[str]) -> Array:
        """Return False for rows of other ops, which only the golden has; these ops are noted."""
        is_own, region_code = np.ones(len(batch), bool), MATCH_KINDS.index(MatchKind.REGION)
        is_region = (batch.match_codes == region_code) & batch.golden.is_present
        for number in batch.find_ops(~batch.target.is_present | is_region):
            lines = batch.lines(number)
            before = goldens[number - 1] if number else self.ops.golden_ops.get(len(self.ops) - 1, "")
            names = batch.golden.columns.row_names(np.maximum(batch.golden.lines[lines.start : lines.stop], 0))
            keys = {line: find_op(name) for line, name in zip(lines, names) if batch.golden.is_present[line]}
            for line, key in keys.items():
                is_golden_only = not batch.target.is_present[line]
                if is_golden_only and key and key != batch.ops[number] and not (before and before == key):
                    is_own[line] = False
                    self.golden_only[key] = None
            for line, key in keys.items():
                if is_own[line] and is_region[line]:
                    self.golden_only[key] = None
        return is_own

    def _correct(self, batch: RowBatch, table: ValueTable, is_own: Array, modules: Sequence[Sequence[str]]) -> None:
        """Correct the differences of calls whose values must be seen together."""
        lines = table.lines
        is_lacking = is_own & (lines["state"] == UNJUDGED_CODE) & (lines["side"] == SIDES.index(Side.INPUT))
        is_of_one = is_lacking & ~batch.is_matched
        is_paired = np.zeros(len(batch.ops), bool)
        is_paired[batch.find_ops(batch.is_matched & (batch.match_codes != MATCH_KINDS.index(MatchKind.REGION)))] = True
        has_both = [np.zeros(len(batch.ops), bool) for _ in range(2)]
        for has, side in zip(has_both, (batch.target, batch.golden)):
            has[batch.find_ops(is_of_one & side.is_present)] = True
        for number in batch.find_ops(is_of_one):
            if is_paired[number] or (has_both[0][number] and has_both[1][number]):
                self._replace(batch, table, is_own, number, mark_one_sided_arguments)
            if is_backward(batch.ops[number]):
                self._withdraw_gradients(batch, table, number)
        for number, key in enumerate(batch.ops):
            if is_dividing(key) and (OPTIMIZER in modules[number] or is_in_place(key)):
                self._replace(batch, table, is_own, number, rescale_quotients)

    def _withdraw_gradients(self, batch: RowBatch, table: ValueTable, number: int) -> None:
        """Leave differing gradients of a call unjudged that receives another number of them in each run.

        A gradient belongs to an output of the forward call. If the runs return different outputs, such as
        intermediate results of a module, those at the same place do not belong together.
        """
        lines = table.lines[batch.lines(number).start : batch.lines(number).stop]
        is_input = lines["side"] == SIDES.index(Side.INPUT)
        is_apart = is_input & (lines["state"] == DIFFERS_CODE)
        lines["state"][is_apart] = UNJUDGED_CODE
        lines["flags"][is_apart] |= IS_IN_REGION

    def _replace(self, batch: RowBatch, table: ValueTable, is_own: Array, number: int, correct: Any) -> None:
        """Set the differences of the own rows of an op to those that a correction returns."""
        lines = [line for line in batch.lines(number) if is_own[line]]
        key = batch.ops[number]
        values: list[ValueComparison] = [table.create_comparisons(line, line + 1, key)[0] for line in lines]
        pairs: list[Pair] = [batch.pair(line) for line in lines]
        for line, before, value in zip(lines, values, correct(pairs, values)):
            if value is not before:
                table.set_line(line, key, value)

    def _add_calls(
        self, batch: RowBatch, table: ValueTable, is_own: Array, goldens: Sequence[str],
        shifted: set[int], modules: Sequence[tuple[str, ...]],
    ) -> None:  # fmt: skip
        """Append the ops of a batch that have rows of their own."""
        sums = np.concatenate(([0], np.cumsum(is_own)))[batch.starts]
        counts = np.diff(sums)
        numbers = np.flatnonzero(counts).tolist()
        lacks_partner = ~batch.golden.is_present | (batch.match_codes == MATCH_KINDS.index(MatchKind.REGION))
        has_partner = np.zeros(len(batch.ops), bool)
        has_partner[batch.find_ops(is_own & ~lacks_partner)] = True
        first = len(self.ops)
        self.ops.extend(
            [batch.ops[number] for number in numbers], [modules[number] for number in numbers],
            counts[counts > 0].tolist(), table, np.flatnonzero(is_own),
        )  # fmt: skip
        for place, number in enumerate(numbers, first):
            key = batch.ops[number]
            if goldens[number]:
                self.ops.golden_ops[place] = goldens[number]
            if number in shifted:
                self.ops.shifted_numbers.add(place)
            if not has_partner[number]:
                self.target_only[key] = None
            if find_api(key) is not None:
                pairs = [batch.pair(line) for line in batch.lines(number) if is_own[line]]
                call = parse_call(Record(0, key, tuple(pair.target for pair in pairs if pair.target is not None)))
                if call is not None:
                    self.ops.communication[place] = call
                    self.ops.code_lines[place] = find_own_frame(batch.stack(number) or ())

    def plain(self) -> dict[str, Any]:
        """Return the facts as JSON data."""
        return {
            "rank": self.rank,
            "ops": self.ops.plain(),
            "tally": self.tally.plain(),
            "target_only": list(self.target_only),
            "golden_only": list(self.golden_only),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> RankFacts:
        """Return the facts that ``plain`` returned.

        Raises:
            LookupError, TypeError, ValueError: The data is something else.
        """
        return cls(
            int(plain["rank"]),
            CallColumns.from_plain(plain["ops"]),
            CoverageTally.from_plain(plain["tally"]),
            dict.fromkeys(plain["target_only"]),
            dict.fromkeys(plain["golden_only"]),
        )


def _list_golden_keys(batch: RowBatch) -> list[str]:
    """Return the golden's key of each op where it is another one; empty for all others."""
    matched = np.flatnonzero(batch.is_matched)
    places = np.searchsorted(matched, batch.starts)
    has_any = places[1:] > places[:-1]
    lines = matched[places[:-1][has_any]]
    names = [side.columns.row_names(side.lines[lines]) for side in (batch.target, batch.golden)]
    goldens = [""] * len(batch.ops)
    for number, target, golden in zip(np.flatnonzero(has_any).tolist(), *names):
        key = "" if target == golden else find_op(golden)
        goldens[number] = "" if key == batch.ops[number] else key
    return goldens
