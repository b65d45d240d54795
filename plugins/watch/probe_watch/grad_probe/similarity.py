"""The share of equal signs of two runs, gradient by gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

import numpy as np
from probe_recording.values.arrays import Array

from probe_core.errors import UnreadableTensor
from probe_watch.grad_probe.run_reader import RankRun, StepSigns
from probe_watch.grad_probe.summary_file import SummaryRow

_CHUNK_BYTES = 1 << 22
_BIT_COUNTS = np.array([bin(value).count("1") for value in range(256)], np.uint8)


class PairGap(str, Enum):
    """The reason why the signs of a gradient are not compared."""

    NEITHER = "neither"
    TARGET_ONLY = "target_only"
    GOLDEN_ONLY = "golden_only"
    SHAPE = "shape"
    UNREADABLE = "unreadable"
    NO_SIGNS = "no_signs"


@dataclass(frozen=True, slots=True)
class SignAgreement:
    """The number of elements whose signs are equal, and of all elements."""

    equal: int
    total: int

    @property
    def similarity(self) -> float:
        """The share of equal signs; 0 without elements."""
        return self.equal / self.total if self.total else 0.0

    @property
    def exact(self) -> Fraction:
        """The share as a fraction, so that a comparison with a limit does not depend on rounding."""
        return Fraction(self.equal, self.total) if self.total else Fraction(0)


@dataclass(frozen=True, slots=True)
class GradientPair:
    """The gradient of a parameter in a step of both runs.

    Attributes:
        agreement: The equal signs; None if they are not compared.
        gap: The reason why they are not compared; None if they are.
        detail: The shapes, or the problem of a file, for messages.
        target_norm: The norm in the target; None if it is unknown.
        golden_norm: The norm in the golden run; None if it is unknown.
    """

    agreement: SignAgreement | None
    gap: PairGap | None = None
    detail: str = ""
    target_norm: float | None = None
    golden_norm: float | None = None


@dataclass(frozen=True, slots=True)
class ParameterSeries:
    """The gradients of a parameter in all compared steps, by the number of the step."""

    parameter: str
    pairs: dict[int, GradientPair] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The comparison of one rank.

    Attributes:
        rank: The number of the rank.
        steps: The compared steps, ascending.
        series: The parameters that both runs have, in the order of the target.
        target_only: Names of parameters that only the target has.
        golden_only: Names of parameters that only the golden run has.
    """

    rank: int
    steps: tuple[int, ...]
    series: tuple[ParameterSeries, ...]
    target_only: tuple[str, ...] = ()
    golden_only: tuple[str, ...] = ()

    def compute_summary(self, step: int) -> SignAgreement:
        """Return the equal signs of all parameters in a step."""
        agreements = [series.pairs[step].agreement for series in self.series]
        counted = [agreement for agreement in agreements if agreement is not None]
        return SignAgreement(sum(a.equal for a in counted), sum(a.total for a in counted))


def count_equal(target: Array, golden: Array, total: int) -> SignAgreement:
    """Count the equal bits of two packed arrays.

    Args:
        target: Bits of the target, the first in the lowest bit of the first byte.
        golden: Bits of the golden run.
        total: The number of bits; further bits of the last byte are ignored.
    """
    different = 0
    for start in range(0, len(target), _CHUNK_BYTES):
        changed = target[start : start + _CHUNK_BYTES] ^ golden[start : start + _CHUNK_BYTES]
        if total % 8 and start + len(changed) == len(target):
            changed[-1] &= (1 << total % 8) - 1
        different += int(_BIT_COUNTS[changed].sum(dtype=np.int64))
    return SignAgreement(total - different, total)


def compare_rank(target: RankRun, golden: RankRun, steps: tuple[int, ...]) -> RankComparison:
    """Compare the signs of two runs on one rank, one gradient at a time.

    Raises:
        UserError: A csv cannot be read.
    """
    series: dict[str, ParameterSeries] = {}
    recorded: tuple[dict[str, None], dict[str, None]] = ({}, {})
    for step, target_rows, golden_rows in _iterate_summaries(target, golden, steps):
        signs = target.open_signs(step), golden.open_signs(step)
        recorded[0].update(dict.fromkeys(target_rows))
        recorded[1].update(dict.fromkeys(golden_rows))
        for name in (*target_rows, *(name for name in golden_rows if name not in target_rows)):
            rows = target_rows.get(name), golden_rows.get(name)
            series.setdefault(name, ParameterSeries(name)).pairs[step] = _compare_gradients(name, rows, signs)
    shared = [series[name] for name in recorded[0] if name in recorded[1]]
    for each in shared:
        pairs = {step: each.pairs.get(step, GradientPair(None, PairGap.NEITHER)) for step in steps}
        each.pairs.clear()
        each.pairs.update(pairs)
    return RankComparison(
        target.rank,
        steps,
        tuple(shared),
        tuple(name for name in recorded[0] if name not in recorded[1]),
        tuple(name for name in recorded[1] if name not in recorded[0]),
    )


def _iterate_summaries(
    target: RankRun, golden: RankRun, steps: tuple[int, ...]
) -> Iterator[tuple[int, dict[str, SummaryRow], dict[str, SummaryRow]]]:
    for step in steps:
        rows = [{row.parameter: row for row in run.read_step_summary(step)} for run in (target, golden)]
        yield step, rows[0], rows[1]


def _compare_gradients(
    name: str, rows: tuple[SummaryRow | None, SummaryRow | None], signs: tuple[StepSigns, StepSigns]
) -> GradientPair:
    target_row, golden_row = rows
    norms = (target_row.norm if target_row else None, golden_row.norm if golden_row else None)
    if target_row is None or golden_row is None:
        gap = PairGap.TARGET_ONLY if golden_row is None else PairGap.GOLDEN_ONLY
        return GradientPair(None, gap, "", *norms)
    try:
        target, golden = (side.load(name) for side in signs)
    except UnreadableTensor as error:
        return GradientPair(None, PairGap.UNREADABLE, str(error), *norms)
    if target is None or golden is None:
        return GradientPair(None, PairGap.NO_SIGNS, "", *norms)
    if target.shape != golden.shape:
        shapes = f"{list(target.shape)} and {list(golden.shape)}"
        return GradientPair(None, PairGap.SHAPE, shapes, *norms)
    return GradientPair(count_equal(target.bits, golden.bits, target.count), None, "", *norms)
