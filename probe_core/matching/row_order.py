"""The rows of the table in their order, and batches of them (docs/pairing.md#rows).

The values of the target come in the order of the target. A golden value without a partner comes directly after the row
with the golden value before it, or at the beginning. The rows are read from the runs when they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from probe_core.matching.matching import NO_PARTNER, Matching
from probe_core.model import MatchKind, Op
from probe_core.model.batches import MATCH_KINDS, PairSide, RowBatch
from probe_core.model.columns import Array
from probe_core.model.run import Run

ROW_COST = 16_384
"""Cost of a row without its elements, in elements: measuring an empty row takes as long as this many elements."""


class RowOrder:
    """The rows of two matched runs.

    Attributes:
        ops: The names of the target's calls; a single empty name if there are none.
        row_count: The number of rows.
    """

    def __init__(self, matching: Matching, target: Run, golden: Run) -> None:
        self._target, self._golden = target, golden
        self.ops = target.names() or [""]
        partners = np.asarray(matching.partners, np.int64)
        first_targets = _find_first_targets(partners, golden.starts[-1])
        unpaired = np.flatnonzero(first_targets == NO_PARTNER)
        targets_above = _find_targets_above(first_targets, unpaired)
        targets = np.arange(len(partners))
        order = np.argsort(np.concatenate((targets, targets_above)), kind="stable")
        self._targets = np.concatenate((targets, np.full(len(unpaired), NO_PARTNER)))[order]
        self._goldens = np.concatenate((partners, unpaired))[order]
        match_codes, golden_match_codes = _encode_match_kinds(matching, target, golden)
        self._match_codes = np.concatenate((match_codes, golden_match_codes[unpaired]))[order]
        row_counts = _count_rows(target, targets_above)
        self._starts = np.concatenate(([0], np.cumsum(row_counts)))
        self.row_count = len(order)
        self._translations: dict[str, Array] = {}

    def compute_costs(self) -> Array:
        """Return the cost of measuring the tensors of each row, in elements."""
        values = self._target.values
        sizes = np.array([float(math.prod(shape or ())) for _, shape in values.extents] or [0.0])
        costs: Array = ROW_COST + np.where(self._targets == NO_PARTNER, 0, sizes[values.extent[self._targets]])
        return costs

    def iterate_spans(
        self, start: int, stop: int, limit: float, costs: Array | None = None
    ) -> Iterator[tuple[int, int]]:
        """Split the ops from ``start`` up to ``stop`` into ranges of at most ``limit`` rows, or of one op.

        With ``costs`` of the rows, ``limit`` is the largest sum of them.
        """
        sums = self._starts if costs is None else np.concatenate(([0], np.cumsum(costs)))[self._starts]
        while start < stop:
            end = int(np.searchsorted(sums, sums[start] + limit, "right")) - 1
            end = min(max(end, start + 1), stop)
            yield start, end
            start = end

    def create_batch(
        self,
        start: int,
        stop: int,
        create_op: Callable[[str], Op] = Op,
        find_stack: Callable[[str], tuple[str, ...] | None] = lambda op: None,
    ) -> RowBatch:
        """Return the rows of the ops from ``start`` up to ``stop``."""
        first, last = self._starts[start], self._starts[stop]
        return RowBatch(
            start,
            self.ops[start:stop],
            self._starts[start : stop + 1] - first,
            PairSide(self._target.values, self._targets[first:last]),
            PairSide(self._golden.values, self._goldens[first:last]),
            self._match_codes[first:last],
            create_op,
            find_stack,
            self._translations,
        )


def _find_first_targets(partners: Array, golden_count: int) -> Array:
    """Return the first target slot that is paired with each golden slot, or ``NO_PARTNER``.

    The partners ``[1, 1, 0]`` of three target slots give ``[2, 0, -1]`` for three golden slots.
    """
    first_targets = np.full(golden_count, NO_PARTNER)
    paired = np.flatnonzero(partners != NO_PARTNER)[::-1]  # in reverse, so that the first slot is written last
    first_targets[partners[paired]] = paired
    return first_targets


def _find_targets_above(first_targets: Array, unpaired: Array) -> Array:
    """Return the target slot of the last paired golden slot before each unpaired one, or ``NO_PARTNER``.

    If golden slot 0 is paired with target slot 5 and golden slots 1 and 2 are unpaired, the result is ``[5, 5]``.
    """
    goldens = np.arange(len(first_targets))
    last_paired = np.maximum.accumulate(np.where(first_targets == NO_PARTNER, NO_PARTNER, goldens))[unpaired]
    return np.append(first_targets, NO_PARTNER)[last_paired]  # index -1, for none, selects the appended element


def _encode_match_kinds(matching: Matching, target: Run, golden: Run) -> tuple[Array, Array]:
    """Return the codes in ``MATCH_KINDS`` of all target slots, and of all golden slots as if they were unpaired."""
    partners = np.asarray(matching.partners, np.int64)
    match_codes = np.full(len(partners), MATCH_KINDS.index(matching.match_kind))
    match_codes[np.array([*matching.mapped], int)] = MATCH_KINDS.index(MatchKind.MAPPED)
    match_codes[partners == NO_PARTNER] = MATCH_KINDS.index(MatchKind.NAME)
    golden_match_codes = np.full(golden.starts[-1], MATCH_KINDS.index(MatchKind.NAME))
    for region in matching.regions:
        for codes, run, records in ((match_codes, target, region.target), (golden_match_codes, golden, region.golden)):
            for record in records:
                codes[run.starts[record] : run.starts[record + 1]] = MATCH_KINDS.index(MatchKind.REGION)
    return match_codes, golden_match_codes


def _count_rows(target: Run, targets_above: Array) -> Array:
    """Return the number of rows of each record of the target, with the unpaired golden slots below its slots."""
    records = np.repeat(np.arange(len(target)), np.diff(np.asarray(target.starts)))
    records_above = np.append(records, 0)[targets_above]  # rows at the beginning belong to the first record
    return np.bincount(np.concatenate((records, records_above)), minlength=max(1, len(target)))
