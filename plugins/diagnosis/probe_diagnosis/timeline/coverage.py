"""Counts of the recorded values that were compared, and of the others by the reason why they were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe_core.errors import format_count
from probe_core.model import SEVERITIES, Level, MatchKind
from probe_core.model.answers import Coverage
from probe_core.model.batches import MATCH_KINDS, RowBatch
from probe_core.model.columns import NULL, TENSOR, Array
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.values import OMISSIONS
from probe_diagnosis.judges.uninitialized import NOT_COMPUTED
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.value_table import (
    HAS_MASKED_DIFFERENCE,
    IS_EQUAL,
    IS_SCALAR,
    IS_SOURCE,
    SAME_CODE,
    UNJUDGED_CODE,
    ValueTable,
)

TARGET_ONLY, GOLDEN_ONLY, SHIFTED = "target_only", "golden_only", "shifted"
REGION = "region"
UNINITIALIZED, EMPTY, NOT_RECORDED, ONE_NONE = "uninitialised", "empty", "not_recorded", "one_none"
LEFT_OUT = "left_out"
PROCESS_START = "process_start"
ROW_SHARED, ROW_REDUCED, ROW_SIZE, ROW_AXIS = OMISSIONS

REASON_PHRASES = {
    TARGET_ONLY: "recorded in the target only",
    GOLDEN_ONLY: "recorded in the golden only",
    SHIFTED: "in calls that one run makes more often, which may be paired incorrectly",
    UNINITIALIZED: "in uninitialized memory, whose content is arbitrary",
    EMPTY: "without elements",
    REGION: "in calls that could not be aligned and may be paired incorrectly",
    ONE_NONE: "that one run recorded as None",
    LEFT_OUT: "that the judge of a plugin excluded",
    PROCESS_START: "from before the model was first called in the resumed process",
    ROW_SHARED: "that all rows of a batch share, such as weights",
    ROW_REDUCED: "over all rows of a batch, such as the loss and the gradients of parameters",
    ROW_SIZE: "that are sizes of a batch",
    ROW_AXIS: "whose axis of samples is unknown",
    NOT_RECORDED: "without a tensor, checksum or statistics in both runs",
    "unreadable": "whose tensor file is missing or cannot be read",
    "no_target_file": "without a tensor file in the target",
    "no_golden_file": "without a tensor file in the golden",
    "unreadable_data": "whose data are not numbers",
    "metric_failed": "on which a metric failed",
}
"""Phrases for the reasons why values were not compared, to be placed after a number of values."""

HARMLESS_REASONS = frozenset({UNINITIALIZED, EMPTY, PROCESS_START, ROW_SHARED, ROW_REDUCED, ROW_SIZE})
"""Reasons of values without anything to compare, or that do not belong to the compared rows of a batch."""

NAMED_REASONS = frozenset({NOT_RECORDED, LEFT_OUT, ROW_AXIS})
"""Reasons that an agreement must state: a judge left the value out, or neither run has data of it."""

NO_TENSOR_REASONS = frozenset({"unreadable", "no_target_file", "no_golden_file"})
"""Reasons of values whose statistics may be compared although a tensor is missing."""

ONE_SIDED_REASONS = frozenset({TARGET_ONLY, GOLDEN_ONLY, ONE_NONE, REGION})
"""Reasons of values that only one run recorded."""


@dataclass(slots=True)
class CoverageTally:
    """Counts of values.

    Attributes:
        both: Number of values that both runs recorded.
        compared: Number of values in ``both`` that were compared.
        floats: Number of floating-point tensors of the target and of the golden.
        floats_compared: Number of tensors in ``floats`` that were compared.
        lacking: Number of values that were not compared, by the code of the reason.
        first: Name of the first value that was not compared, by the code of the reason.
        by_statistics: Number of values without a readable tensor file that were compared by their statistics,
            by the code of the reason.
        failing_at: Distance of each tensor that agrees within rounding although its verdict in the table is an
            error, by the name of its row. A difference of a single rounding does not count.
        stood_for: Number of tensors in ``floats``, of the target and of the golden, of calls that only this run
            made and whose results were compared with results of other calls.
        equal: Number of values that were compared and are bitwise equal.
        other_arguments: Number of arguments that were compared and differ.
        tensors: Number of tensors with elements, without uninitialized memory; a pair counts once.
        tensors_compared: Number of tensors in ``tensors`` that were compared.
    """

    both: int = 0
    compared: int = 0
    floats: list[int] = field(default_factory=lambda: [0, 0])
    floats_compared: list[int] = field(default_factory=lambda: [0, 0])
    lacking: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    by_statistics: Counter[str] = field(default_factory=Counter)
    failing_at: dict[str, float] = field(default_factory=dict)
    stood_for: list[int] = field(default_factory=lambda: [0, 0])
    equal: int = 0
    other_arguments: int = 0
    tensors: int = 0
    tensors_compared: int = 0

    def add(self, batch: RowBatch, table: ValueTable, is_shifted: Array, is_start: Array) -> None:
        """Count the rows of a batch.

        Args:
            batch: The rows, after all judges.
            table: The differences, one line per row.
            is_shifted: True for rows of calls that one run makes more often.
            is_start: True for rows of calls at the start of a resumed process.
        """
        sides = batch.target, batch.golden
        kinds = [np.where(side.is_present, side.column("kind"), NULL) for side in sides]
        is_counted = (kinds[0] != NULL) | (kinds[1] != NULL)
        codes, reasons = _classify_rows(batch, table, is_shifted, is_start)
        is_compared = is_counted & (codes == 0)
        self.both += int((is_counted & batch.is_matched).sum())
        self.compared += int(is_compared.sum())
        self.equal += int((is_compared & (table.lines["flags"] & IS_EQUAL > 0)).sum())
        is_argument = is_compared & table.differs & table.is_source & ~table.is_tensor
        self.other_arguments += int(is_argument.sum())
        lacking = np.flatnonzero(is_counted & (codes > 0))
        is_harmless = np.isin(codes, [reasons.index(code) for code in HARMLESS_REASONS])
        for code in dict.fromkeys(codes[lacking].tolist()):
            self._count_lacking(batch, table, reasons[code], lacking[codes[lacking] == code])
        is_tensor = is_counted & ~is_harmless & ((kinds[0] == TENSOR) | (kinds[1] == TENSOR))
        self.tensors += int(is_tensor.sum())
        self.tensors_compared += int((is_tensor & is_compared).sum())
        for number, side in enumerate(sides):
            is_float = np.array([get_dtype_kind(dtype) == "float" for dtype in side.columns.dtypes] or [False])
            is_float_tensor = is_tensor & (kinds[number] == TENSOR) & is_float[side.column("dtype")]
            self.floats[number] += int(is_float_tensor.sum())
            self.floats_compared[number] += int((is_float_tensor & is_compared).sum())
        is_failing = is_compared & (batch.verdicts.levels == SEVERITIES[Level.ERROR])
        is_failing &= (table.lines["state"] == SAME_CODE) & table.is_tensor
        single_rounding = limits().single_rounding_share * table.lines["noise"] * table.lines["scale"]
        is_failing &= (table.lines["distance"] > single_rounding) | (table.lines["distance"] == 0)  # of subnormals
        for line in np.flatnonzero(is_failing & (table.lines["flags"] & HAS_MASKED_DIFFERENCE == 0)).tolist():
            self.failing_at[table.get_row_name(line, batch.find_op_key(line))] = table.lines["distance"].item(line)

    def _count_lacking(self, batch: RowBatch, table: ValueTable, code: str, lines: Array) -> None:
        """Count rows that were not compared for the same reason."""
        self.lacking[code] += len(lines)
        first = lines.item(0)
        self.first.setdefault(code, table.get_row_name(first, batch.find_op_key(first)))
        if code in NO_TENSOR_REASONS:
            rows = table.lines[lines]
            is_judged = (rows["basis"] == Basis.STATISTICS) & (rows["state"] != UNJUDGED_CODE)
            if is_judged.any():
                self.by_statistics[code] += int(is_judged.sum())

    def withdraw(self, lines: Array, first: str) -> None:
        """Count values that were compared as values of calls that could not be aligned.

        Args:
            lines: Their lines of a table.
            first: The name of the first value.
        """
        is_tensor = lines["flags"] & IS_SCALAR == 0
        floats = int((is_tensor & (lines["noise"] > 0)).sum())
        self.compared -= len(lines)
        self.other_arguments -= int((~is_tensor & IS_SOURCE[lines["side"]]).sum())
        self.tensors_compared -= int(is_tensor.sum())
        self.floats_compared = [count - floats for count in self.floats_compared]
        self.lacking[REGION] += len(lines)
        self.first.setdefault(REGION, first)

    def excuse(self, rows: Iterable[str]) -> None:
        """Remove rows from ``failing_at``."""
        for row in rows:
            self.failing_at.pop(row, None)

    @property
    def share(self) -> float:
        """The compared share of the target's floating-point tensors, or of all values if there are no such tensors."""
        if self.floats[0]:
            return self.floats_compared[0] / self.floats[0]
        of_target = self.both + self.lacking[TARGET_ONLY]
        return self.compared / of_target if of_target else 0.0

    @property
    def least_share(self) -> float:
        """The smaller of the shares of the target and the golden."""
        return min(self.share, self.share_of_golden)

    @property
    def share_of_golden(self) -> float:
        """The compared share of the golden's floating-point tensors, or ``share`` if there are no such tensors."""
        return self.floats_compared[1] / self.floats[1] if self.floats[1] else self.share

    @property
    def least_adjusted_share(self) -> float:
        """The smaller of both shares, without the tensors in ``stood_for``."""
        counts = [count - replaced for count, replaced in zip(self.floats, self.stood_for)]
        shares = [compared / count for compared, count in zip(self.floats_compared, counts) if count]
        return min(shares) if len(shares) == len(counts) else self.least_share

    @property
    def unexcused(self) -> int:
        """Number of values that both runs recorded and that were not compared, without harmless and named reasons."""
        return sum(
            n for code, n in self.lacking.items() if code not in ONE_SIDED_REASONS | HARMLESS_REASONS | NAMED_REASONS
        )

    def build_coverage(self) -> Coverage:
        """Return the counts as the coverage of an answer."""
        one_sided = self.lacking[TARGET_ONLY] + self.lacking[GOLDEN_ONLY]
        return Coverage(
            self.both + one_sided,
            self.compared,
            dict(sorted(self.lacking.items())),
            self.equal,
            self.other_arguments,
        )

    def format_reasons(self) -> tuple[str, ...]:
        """Return a sentence for each reason why values were not compared, the most frequent first."""
        return tuple(
            f"{format_count(count, 'value')} {describe_reason(code)}{self._describe_statistics(code, count)}; "
            f"the first is {self.first[code]}"
            for code, count in self.lacking.most_common()
        )

    def _describe_statistics(self, code: str, count: int) -> str:
        """Return a note on how many of the values have recorded statistics; empty if none has."""
        with_statistics = self.by_statistics[code]
        if not with_statistics:
            return ""
        if with_statistics == count:
            return f" (only {'their' if count > 1 else 'its'} statistics were recorded)"
        return f" (only statistics of {with_statistics:,} of them were recorded)"

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> CoverageTally:
        """Return the counts that ``plain`` returned."""
        counters = {name: Counter(plain[name]) for name in ("lacking", "by_statistics")}
        return cls(**{**plain, **counters})


def describe_reason(code: str) -> str:
    """Return the phrase for a reason, to be placed after a number of values."""
    return REASON_PHRASES.get(code) or f"not compared ({code.replace('_', ' ')})"


def _classify_rows(batch: RowBatch, table: ValueTable, is_shifted: Array, is_start: Array) -> tuple[Array, list[str]]:
    """Return the reason why each row was not compared, as an index into the returned reasons; 0 for no reason."""
    sides = batch.target, batch.golden
    is_null = [side.column("kind") == NULL for side in sides]
    is_empty = [
        np.array([bool(shape is not None and 0 in shape) for _, shape in side.columns.extents] or [False])
        for side in sides
    ]
    are_empty = is_empty[0][sides[0].column("extent")] & is_empty[1][sides[1].column("extent")]
    is_uninitialized, is_left_out = np.zeros((2, len(batch)), bool)
    for line, changes in batch.changes.items():
        is_uninitialized[line] = any(changed.reason == NOT_COMPUTED for changed in changes)
        is_left_out[line] = batch.verdicts[line].level is Level.SKIP
    is_region = batch.match_codes == MATCH_KINDS.index(MatchKind.REGION)
    is_unjudged = table.lines["state"] == UNJUDGED_CODE
    conditions = [
        (TARGET_ONLY, ~batch.golden.is_present),
        (GOLDEN_ONLY, ~batch.target.is_present),
        (ONE_NONE, is_null[0] != is_null[1]),
        *((code, batch.omission == place) for place, code in enumerate(OMISSIONS, 1)),
        (PROCESS_START, is_start),
        (SHIFTED, is_shifted),
        (UNINITIALIZED, is_uninitialized),
        (LEFT_OUT, is_left_out & ~is_region),
        (EMPTY, is_unjudged & are_empty),
        (REGION, is_unjudged & is_region),
        (NOT_RECORDED, is_unjudged),
    ]
    reasons = ["", *REASON_PHRASES]
    numbers = [reasons.index(code) for code, _ in conditions]
    codes: Array = np.select([is_met for _, is_met in conditions], numbers, 0)
    _classify_unmeasured_rows(batch, table, codes, reasons)
    return codes, reasons


def _classify_unmeasured_rows(batch: RowBatch, table: ValueTable, codes: Array, reasons: list[str]) -> None:
    """Set the codes of rows that no metric measured to their reasons; reasons of plugins are added to ``reasons``."""
    sides = batch.target, batch.golden
    is_unmeasured = ~batch.verdicts.map_verdicts(lambda verdict: verdict.measured) & (codes == 0)
    # recorders store no tensor of a value without a data name on either side
    has_data = (sides[0].column("data") >= 0) | (sides[1].column("data") >= 0)
    is_unmeasured &= has_data | (table.lines["basis"] != Basis.STATISTICS)
    for line in np.flatnonzero(is_unmeasured).tolist():
        row_codes = [reason.code for reason in batch.reasons(line)]
        first = next((code for code in row_codes if code in REASON_PHRASES), next(iter(row_codes), NOT_RECORDED))
        if first not in reasons:
            reasons.append(first)
        codes[line] = reasons.index(first)
