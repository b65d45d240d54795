"""Policy behind causes: values that differ by more than rounding, by the best evidence on record."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from probe_core.model import Drift, Kind, Level, Measurements, Mode, Quantity, Reason, Slot, Value, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.columns import FLOAT, NONE, TENSOR, Array, convert_to_float
from probe_core.model.dtypes import is_same_dtype
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn, VerdictColumn
from probe_core.model.single import create_batch
from probe_metrics.adapters import GroupPolicyBase
from probe_metrics.dtype_limits import get_eps, get_smallest
from probe_metrics.exact import format_scalars
from probe_metrics.kernel import GroupSums, compute_group_sums
from probe_metrics.masked import are_masked, estimate_hidden_count, is_masked, measure_unmasked
from probe_metrics.thresholds import load_thresholds

DIFFERS, AGREES = "differs", "agrees"
"""Labels, which a table shows for ``--policy`` (docs/tables.md#beyond-rounding)."""

STATISTIC_NAMES = ("max", "min", "mean", "norm")
STATISTIC_QUANTITIES = (Quantity.MAX, Quantity.MIN, Quantity.MEAN, Quantity.NORM)
FAR_VERDICT = Verdict(Level.ERROR, DIFFERS, (Reason("drift"),))
"""Verdict on values that differ by more than rounding; its distance is the evidence."""
MASKED_REASON = Reason("masked", "masked by another constant")
"""Reason of a tensor whose masked elements are different large negative numbers on the two sides."""

EQUAL_REASONS = (Reason("equal", "equal to the bit"),)
"""Reasons of tensors whose bits, or whose checksums, are the same."""


class FirstDifference(GroupPolicyBase):
    """Judges a pair by its tensors if it has them, else by checksums, else by recorded statistics.

    The level is ERROR (differs beyond rounding), PASS (does not) or SKIP (nothing to judge by); the label is
    ``differs``, ``agrees`` or empty. The ``drift`` of the verdict is the size of the difference. An ERROR without drift
    is a difference without a size (shapes, scalars, checksums, nan at different positions). The reason ``equal`` means
    that the bits or the checksums of two tensors are the same.

    Formulas, in float64, for a target N and a golden B of one shape. Tensors: ``rms(N - B) / rms(B)``, rms
    is the root mean square. Statistics: the largest difference of maximum, minimum, mean and norm, divided
    by the larger magnitude of B's maximum and minimum. Both are ratios. Their limit is a multiple of the eps of
    the coarser dtype (``drift`` in ``thresholds.yaml``). Integers and booleans must be equal.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as 0. Else: ERROR, unless
          -inf on one side corresponds to a mask of another large negative number on the other side.
        * B is all zero: any difference of more than a few of the dtype's smallest numbers is an ERROR.
          -0.0 counts as 0.0.
        * The unmasked elements of a tensor with masked elements (such as -1e9) are also judged separately, or by the
          maximum if only statistics were recorded.
        * 0-d tensors are judged like any other. Scalars must be equal. Floats are an
          exception: they are judged like a tensor of float32, because a program may have computed them.
        * No elements, no partner, or nothing on record: SKIP.

    Source: docs/first-difference.md#levels, a rule of probe's own.
    """

    def __init__(self) -> None:
        limits = load_thresholds("drift")
        self._jump = float(limits["jump"])
        self._floor: dict[str, float] = {name: limits["subnormals"] * get_smallest(name) for name in limits["noise"]}
        self._noise: dict[str, float] = {n: count * get_eps(n) for n, count in limits["noise"].items()}
        self._mask = float(limits["mask"]["least"])
        self._mask_share = float(limits["mask"]["share"])
        self._by_dtypes: dict[tuple[str, str], tuple[float, float]] = {}

    batch_modes = frozenset({Mode.STATISTICS, Mode.MD5})
    """Modes in which no tensors are read, so that batches can be judged."""

    def judge_unmeasured(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on a pair without tensors."""
        return self.judge_batch(create_batch([pair.pair]))[0]

    def judge_batch(self, batch: RowBatch) -> VerdictColumn:
        """Return the verdict on each row of runs without tensors."""
        verdicts = VerdictColumn([Verdict(Level.PASS, AGREES)], np.zeros(len(batch), np.int32))
        is_tensor = batch.obstacles == 0
        for side in (batch.target, batch.golden):
            is_tensor &= side.column("kind") == TENSOR
        are_finite_floats = self._judge_floats(batch, is_tensor, verdicts)
        for line in np.flatnonzero(
            ~are_finite_floats & ((batch.obstacles > 0) | is_tensor | batch.scalars_differ)
        ).tolist():
            verdicts[line] = self._judge_values(*batch.pair(line)[:2])
        return verdicts

    def _judge_values(self, first: Slot | None, second: Slot | None) -> Verdict:
        """Return the verdict on two values that are not equal scalars, by the recorded data."""
        if first is None or second is None:
            return _create_skip("no partner")
        target, golden = first.value, second.value
        if target.omission or golden.omission:
            return _create_skip("not compared by rows")
        if target.extent != golden.extent or (target.kind is Kind.NULL) != (golden.kind is Kind.NULL):
            return _create_error(f"shape {target.extent} against {golden.extent}")
        if target.kind is not Kind.TENSOR or golden.kind is not Kind.TENSOR:
            return self._judge_scalar(target, golden)
        if target.is_empty:
            return _create_skip("no elements")
        if target.checksum is not None and golden.checksum is not None:
            verdict = self._judge_checksum(target, golden)
            if verdict.level is not Level.SKIP or target.statistics.max is None:
                return verdict
        return self._judge_statistics(target, golden)

    def judge_group(self, group: PairGroup, measurements: Mapping[str, MeasurementColumn]) -> VerdictColumn:
        """Return the verdict on each pair of tensors."""
        pair_sums = group.once(compute_group_sums)
        tally, size = pair_sums.tally, np.maximum(pair_sums.tally.finite, 1)
        limits = [self._get_limits(*(slot.value.dtype for slot in pair.slots)) for pair in group]
        noise, floor = np.array(limits).reshape(-1, 2).T
        distance = _compute_rms(pair_sums.distance, size, tally.max_absolute)
        scale = _compute_rms(pair_sums.golden_norm, size, pair_sums.golden_largest)
        agreeing = [Verdict(Level.PASS, AGREES), Verdict(Level.PASS, AGREES, EQUAL_REASONS)]
        verdicts = VerdictColumn(agreeing, tally.equal.astype(np.int32))
        lines = np.arange(len(group))
        quantity = np.full(len(group), Quantity.RMS)
        self._judge_distances(verdicts, lines, distance, scale, noise, floor, quantity)
        need_elements = ~pair_sums.is_aligned | are_masked(tally.golden_min, tally.golden_max) | (noise == 0)
        for place in np.flatnonzero((tally.equal == 0) & need_elements).tolist():
            verdict = self._judge_elements(group[place], pair_sums, place)
            if verdict is not None:
                verdicts[place] = verdict
        return verdicts

    def _judge_elements(self, pair: OpenPair, pair_sums: GroupSums, place: int) -> Verdict | None:
        """Return the verdict on tensors that their sums do not judge; None if they do.

        These are masked tensors, those with nan or inf at different places, and large whole numbers.
        """
        tally = pair_sums.tally[place]
        target, golden = (slot.value for slot in pair.slots)
        if not pair_sums.is_aligned[place]:
            parts = measure_unmasked(pair)
            if parts is None:
                return _create_error("nan or inf at different positions")
            verdict = self._judge_single_distance(*parts, target, golden, Quantity.UNMASKED_RMS)
            return verdict._replace(reasons=(*verdict.reasons, MASKED_REASON))
        are_integers = pair.target.dtype == pair.golden.dtype and pair.golden.dtype.kind in "iu"
        if are_integers and not pair_sums.distance[place]:
            return _create_error("whole numbers that float64 does not tell apart")
        if not is_masked(tally.golden_min, tally.golden_max) or (parts := measure_unmasked(pair)) is None:
            return None
        mask_difference = abs(tally.target_min - tally.golden_min)
        has_other_mask = mask_difference > self._mask_share * abs(tally.golden_min)  # nan where both are -inf
        verdict = self._judge_single_distance(*parts, target, golden, Quantity.UNMASKED_RMS)
        return verdict._replace(reasons=(*verdict.reasons, MASKED_REASON)) if has_other_mask else verdict

    def _judge_scalar(self, target: Value, golden: Value) -> Verdict:
        """Return the verdict on two scalars that differ; numbers that the program computed are rounded."""
        value, reference = target.statistics.max, golden.statistics.max
        difference = Reason("evidence", format_scalars(target, golden))
        if not (isinstance(value, float) and isinstance(reference, float)):
            return Verdict(Level.ERROR, DIFFERS, (difference,))
        if not (math.isfinite(value) and math.isfinite(reference)):
            return Verdict(Level.ERROR, DIFFERS, (difference,))
        drift = Drift(abs(value - reference), abs(reference), self._noise["float32"], self._jump)
        level = Level.ERROR if drift.relative_to(drift.scale) > drift.noise else Level.PASS
        label = DIFFERS if level is Level.ERROR else AGREES
        return Verdict(level, label, (difference,), drift=drift)

    def _judge_checksum(self, target: Value, golden: Value) -> Verdict:
        if not is_same_dtype(target.dtype, golden.dtype):
            return _create_skip(f"checksums of {target.dtype} and {golden.dtype}")
        if target.checksum == golden.checksum:
            return Verdict(
                Level.PASS,
                AGREES,
                EQUAL_REASONS,
                drift=Drift(0.0, 0.0, self._get_limits(target.dtype, golden.dtype)[0], self._jump),
            )
        return _create_error(f"checksum {target.checksum} against {golden.checksum}")

    def _judge_floats(self, batch: RowBatch, is_tensor: Array, verdicts: VerdictColumn) -> Array:
        """Judge tensors by finite floats without a mask among them; return True for their rows."""
        numbers, references = (side.column("numbers") for side in (batch.target, batch.golden))
        types, ref_types = (side.column("types") for side in (batch.target, batch.golden))
        lacks_norm = (types[:, 3] == NONE) & (ref_types[:, 3] == NONE)  # as in dumps of older tools
        are_floats = (types == FLOAT) & (ref_types == FLOAT)
        are_finite_floats: Array = is_tensor & are_floats[:, :3].all(axis=1) & (are_floats[:, 3] | lacks_norm)
        are_finite_floats &= np.isfinite(numbers).all(axis=1) & np.isfinite(references).all(axis=1)
        are_finite_floats &= np.minimum(numbers[:, 1], references[:, 1]) > -self._mask
        are_finite_floats &= ~(batch.target.column("has_checksum") & batch.golden.column("has_checksum"))
        lines = np.flatnonzero(are_finite_floats)
        largest, scale, names = _measure_distances(numbers[lines], references[lines])
        noise, floor = self._get_row_limits(batch, lines)
        is_sum = (noise == 0) & (names >= 2)  # of whole numbers, computed in floating point
        is_rounded = is_sum & (largest <= self._noise["float32"] * scale)
        noise = np.where(is_rounded, self._noise["float32"], noise)
        quantity = np.array(STATISTIC_QUANTITIES)[names]
        self._judge_distances(verdicts, lines, largest, scale, noise, floor, quantity)
        return are_finite_floats

    def _judge_distances(
        self, verdicts: VerdictColumn, lines: Array, distance: Array, scale: Array, noise: Array,
        floor: Array, quantity: Array,
    ) -> None:  # fmt: skip
        """Set the distances of rows, and the verdicts on those that differ by more than rounding.

        Args:
            verdicts: The verdicts, in which all rows agree.
            lines: The rows.
            distance: The difference of each row.
            scale: The magnitude that it is relative to.
            noise: The relative difference that rounding explains.
            floor: The difference that rounding explains however small the magnitude is.
            quantity: Numbers of ``Quantity``.
        """
        distance = np.where(distance <= floor, 0.0, distance)
        with np.errstate(all="ignore"):
            differs = ~(np.where(distance > 0, distance / scale, 0.0) <= noise)
        jump = np.full(len(lines), self._jump)
        drifts = np.stack((distance, scale, noise, jump, quantity), axis=1)
        verdicts.put(
            lines,
            VerdictColumn(
                [*verdicts.table, FAR_VERDICT], np.where(differs, len(verdicts.table), verdicts.codes[lines]), drifts
            ),
        )

    def _get_row_limits(self, batch: RowBatch, lines: Array) -> tuple[Array, Array]:
        """Return ``_get_limits`` of the dtypes of rows."""
        tables = batch.target.columns.dtypes, batch.golden.columns.dtypes
        codes = [side.column("dtype")[lines] for side in (batch.target, batch.golden)]
        pairs = codes[0] * len(tables[1]) + codes[1]
        limits = np.zeros((len(tables[0]) * len(tables[1]), 2))
        for pair in np.flatnonzero(np.bincount(pairs)).tolist():
            first, second = divmod(pair, len(tables[1]))
            limits[pair] = self._get_limits(tables[0][first], tables[1][second])
        noise, floor = limits[pairs].T
        return noise, floor

    def _judge_statistics(self, target: Value, golden: Value) -> Verdict:
        statistics = list(zip(STATISTIC_NAMES, target.statistics, golden.statistics))
        numbers = [
            (name, convert_to_float(number), convert_to_float(reference))
            for name, number, reference in statistics
            if isinstance(number, (int, float)) and isinstance(reference, (int, float))
            if not type(number) is type(reference) is bool  # a boolean against a number is 0 or 1
        ]
        for name, value, reference in statistics:
            if (
                type(value) is type(reference) is int
                and value != reference
                and convert_to_float(value) == convert_to_float(reference)
            ):
                return _create_error(f"{name} {value} against {reference}")
            if isinstance(value, (bool, str)) and isinstance(reference, (bool, str)) and value != reference:
                return _create_error(f"{name} {value!r:.24} against {reference!r:.24}")
        if not numbers:
            lacks_statistics = statistics[0][1] is None or statistics[0][2] is None
            return _create_skip("nothing on record") if lacks_statistics else Verdict(Level.PASS, AGREES)
        has_other_mask = False
        ends = {name: (value, reference) for name, value, reference in numbers}
        if {"max", "min"} <= ends.keys() and all(map(is_masked, ends["min"], ends["max"])):
            has_other_mask = ends["min"][0] != ends["min"][1]
            numbers = [item for item in numbers if item[0] == "max"]  # the other statistics are the mask's
            hidden, wanted = estimate_hidden_count(target), estimate_hidden_count(golden)
            if hidden is not None and wanted is not None and abs(hidden - wanted) > 0.5:
                return _create_error(f"about {hidden:.0f} masked elements against {wanted:.0f}, by mean and minimum")
        for name, number, reference in numbers:
            if math.isfinite(number) != math.isfinite(reference) or (
                not math.isfinite(number) and repr(number) != repr(reference)
            ):
                return _create_error(f"{name} {number!r:.24} against {reference!r:.24}")
        rows = np.full((2, 1, 4), np.nan)
        for name, number, reference in numbers:
            if math.isfinite(number):
                rows[:, 0, STATISTIC_NAMES.index(name)] = number, reference
        largest, scale, names = (column.item() for column in _measure_distances(*rows))
        verdict = self._judge_single_distance(largest, scale, target, golden, STATISTIC_QUANTITIES[names])
        return verdict._replace(reasons=(*verdict.reasons, MASKED_REASON)) if has_other_mask else verdict

    def _judge_single_distance(
        self, distance: float, scale: float, target: Value, golden: Value, quantity: Quantity
    ) -> Verdict:
        noise, least = self._get_limits(target.dtype, golden.dtype)
        is_sum = not noise and quantity in (Quantity.MEAN, Quantity.NORM)  # computed in floating point
        if is_sum and distance <= self._noise["float32"] * scale:
            noise = self._noise["float32"]
        if distance <= least:
            distance = 0.0
        drift = Drift(distance, scale, noise, self._jump, quantity)
        if drift.relative_to(scale) <= noise:
            return Verdict(Level.PASS, AGREES, drift=drift)
        return FAR_VERDICT._replace(drift=drift)

    def _get_limits(self, target: str, golden: str) -> tuple[float, float]:
        """Return the differences that rounding explains in the coarser of two dtypes.

        The first is relative, and 0 for integers. The second is a few of the smallest numbers, which rounding
        explains however small the values are.
        """
        limits = self._by_dtypes.get((target, golden))
        if limits is None:
            names = _get_base_dtype(target), _get_base_dtype(golden)
            limits = (
                max(self._noise.get(name, 0.0) for name in names),
                max(self._floor.get(name, 0.0) for name in names),
            )
            self._by_dtypes[target, golden] = limits
        return limits


def _get_base_dtype(dtype: str) -> str:
    """Return the name of a recorded dtype without its framework; for a complex dtype that of its parts."""
    name = dtype.rpartition(".")[2].lower()
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def _measure_distances(numbers: Array, references: Array) -> tuple[Array, Array, Array]:
    """Return the largest difference of each row's statistics, its scale, and its place in ``STATISTIC_NAMES``.

    Args:
        numbers: The target's maximum, minimum, mean and norm, of shape (rows, 4); nan for those not compared.
        references: The golden's.
    """
    scale = np.fmax(np.fmax.reduce(abs(references[:, :2]), axis=1), 0.0)
    norm = abs(references[:, 3])
    with np.errstate(all="ignore"):
        differences = abs(numbers - references)
        differences[:, 3] *= np.where((norm > 0) & (scale > 0), scale / norm, 1.0)
    differences = np.fmax(differences, 0.0)
    return differences.max(axis=1), scale, differences.argmax(axis=1)


def _compute_rms(norm: Array, size: Array, largest: Array) -> Array:
    """Return the root mean square of ``size`` elements with this L2 norm.

    It is at most the largest element, also if the norm is too large for float64.
    """
    return np.minimum(norm / np.sqrt(size), largest)


def _create_error(why: str) -> Verdict:
    return Verdict(Level.ERROR, DIFFERS, (Reason("evidence", why),))


def _create_skip(why: str) -> Verdict:
    return Verdict(Level.SKIP, "", (Reason("evidence", why),))
