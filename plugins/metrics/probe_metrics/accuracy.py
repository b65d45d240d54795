"""Policy behind the column Accuracy Reached or Not of the tensor table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from probe_core.model import Drift, Level, Measurement, Measurements, Quantity, Reason, Verdict
from probe_core.model.columns import Array
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn, VerdictColumn
from probe_metrics.adapters import GroupPolicyBase
from probe_metrics.dtype_limits import get_eps
from probe_metrics.exact import EXACT_REASON, find_tensor_differences, format_scalars
from probe_metrics.kernel import compute_group_sums
from probe_metrics.thresholds import load_thresholds

UNMEASURED_CODES = ("unreadable", "no_target_file", "no_golden_file", "metric_failed", "cosine_nan")
YES, NO, NONE, UNMATCHED = "Yes", "No", "None", "Unmatched"

NOISE_COLUMN = Drift._fields.index("noise")
"""Column of the rounding among the fields of ``Drift``."""


class Accuracy(GroupPolicyBase):
    """Label by cosine and largest absolute error; the first rule that applies decides.

    1. The shapes differ: ``Unmatched``.
    2. nan or inf at different places: ``No``; at the same places they count as equal.
    3. One side is all zero, the other is not: ``No`` for an error above 0.001, otherwise ``Yes``.
    4. No cosine or no error (0-d tensors, one element, no elements, no partner, unreadable files): ``None``.
    5. Cosine below 0.99 and error above 0.001: ``No``.
    6. Cosine below 0.9 or error above 1: ``No``.
    7. Otherwise ``Yes``. -0.0 counts as 0.0.

    The level, which decides on suspects, also judges rows that the label leaves open: tensors of one element,
    scalars that differ, rows without partner, files that cannot be read. Integers and booleans
    that differ are an error, even if their cosine passes.

    Source: docs/tables.md#accuracy, by the comparison guide of msprobe 8.3; the level is a rule of probe. The
    limits are in ``thresholds.yaml``, in the unit of the data for errors.
    """

    def __init__(self) -> None:
        limits = load_thresholds("accuracy")
        self._joint_limits = limits["both"]
        self._single_limits = limits["either"]
        self._zero_side_limits = limits["zero_side"]
        self._one_element_limits = limits["one_element"]
        drift = load_thresholds("drift")
        self._jump = float(drift["jump"])
        self._by_dtype: dict[np.dtype[Any], float] = {}
        self._noise = {name: count * get_eps(name) for name, count in drift["noise"].items()}

    def limits(self) -> dict[str, str]:
        """Return the limits of the metrics that rules 5 and 6 read, by column."""
        joint_limits, single_limits = self._joint_limits, self._single_limits
        return {
            "Cosine": f"No below {single_limits['cosine']:g}, or below {joint_limits['cosine']:g} "
            f"with MaxAbsErr above {joint_limits['absolute']:g}",
            "MaxAbsErr": f"No above {single_limits['absolute']:g}, or above {joint_limits['absolute']:g} "
            f"with Cosine below {joint_limits['cosine']:g}",
        }

    def judge_group(self, group: PairGroup, measurements: Mapping[str, MeasurementColumn]) -> VerdictColumn:
        """Return the verdict on each pair. Integers and booleans are compared exactly."""
        cosine = measurements["cosine.Cosine"]
        errors = (measurements[f"max_error.{name}"].floats for name in ("MaxAbsErr", "MaxRelativeErr"))
        numbers = [cosine.floats, *errors]
        drifts = self._compute_drifts(group)
        passes = ~self._is_far(numbers[0], numbers[1]) & ~self._has_low_cosine(numbers[0])
        passes &= ~np.isnan(numbers[0]) & ~np.isnan(numbers[1])
        verdicts = VerdictColumn([Verdict(Level.PASS, YES)], np.zeros(len(group), np.int32), drifts.copy())
        for index in np.flatnonzero(~passes).tolist():
            drift = None if np.isnan(drifts[index, NOISE_COLUMN]) else Drift(*drifts[index].tolist())
            code = _get_reason_code(cosine[index])
            value, absolute, relative = (column.item(index) for column in numbers)
            verdicts[index] = self._judge_by_rule(code, value, absolute, relative, drift)
        for index, difference in find_tensor_differences(group).items():
            verdict = verdicts[index]
            reasons = verdict.reasons or (Reason("evidence", f"differs in {difference}"),)
            verdicts[index] = verdict._replace(
                level=Level.ERROR, reasons=(EXACT_REASON, *reasons), failed=True, drift=None
            )
        return verdicts

    def judge_unmeasured(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on a pair without tensors."""
        if pair.pair.scalars_differ:
            evidence = Reason("evidence", format_scalars(*(slot.value for slot in pair.slots)))
            return Verdict(Level.ERROR, NONE, (evidence,), failed=True)
        if not pair.pair.matched:
            return Verdict(Level.WARNING, NONE, measured=False)
        return self._judge_by_rule(_get_reason_code(measurements["cosine.Cosine"]), math.nan, math.nan, math.nan, None)

    def _is_far(self, cosine: Any, absolute: Any) -> Any:
        """Return True where the error fails regardless of the drift."""
        exceeds_joint_limits = (cosine < self._joint_limits["cosine"]) & (absolute > self._joint_limits["absolute"])
        return exceeds_joint_limits | (absolute > self._single_limits["absolute"])

    def _has_low_cosine(self, cosine: Any) -> Any:
        """Return True where the cosine fails. Only the drift can distinguish rounding from a fault."""
        return cosine < self._single_limits["cosine"]

    def _judge_by_rule(
        self, code: str, cosine: float, absolute: float, relative: float, drift: Drift | None
    ) -> Verdict:
        """Return the verdict on a pair that does not pass by cosine and error.

        Args:
            code: The reason why there is no cosine, or an empty text.
            cosine: The cosine; nan if there is none.
            absolute: The largest absolute error; nan if there is none.
            relative: The largest relative error; nan if there is none.
            drift: The difference and what rounding explains of it; None for integers and booleans.
        """
        if code == "shape":
            return _create_failed_verdict(UNMATCHED, "the shapes differ")
        if code == "positions":
            return _create_failed_verdict(NO, "nan or inf at different positions")
        if code in ("target_zero", "golden_zero"):
            if absolute > self._zero_side_limits["absolute"]:
                return _create_failed_verdict(NO, f"one side is all zero, MaxAbsErr {absolute:.6g}")
            return Verdict(Level.PASS, YES)
        if code in ("zero_dimensional", "one_element"):
            limits = self._one_element_limits
            if absolute > limits["absolute"] and relative > limits["relative"]:
                evidence = f"one element, MaxAbsErr {absolute:.6g}, relative {relative:.3g}"
                return Verdict(Level.ERROR, NONE, (Reason("evidence", evidence),))
            return Verdict(Level.PASS, NONE, drift=drift)
        if math.isnan(cosine) or math.isnan(absolute):
            is_unmeasured = code in UNMEASURED_CODES
            return Verdict(Level.WARNING if is_unmeasured else Level.SKIP, NONE, measured=not is_unmeasured)
        failed = _create_failed_verdict(NO, f"Cosine {cosine:.6g}, MaxAbsErr {absolute:.6g}")
        return failed if self._is_far(cosine, absolute) else failed._replace(drift=drift)

    def _compute_drifts(self, group: PairGroup) -> Array:
        """Return the fields of ``Drift`` of each pair, of shape (pairs, 5); nan for integers and booleans."""
        noise = np.array(
            [[self._get_noise(side.dtype) for side in (pair.target, pair.golden)] for pair in group]
        ).reshape(-1, 2)
        pair_sums = group.once(compute_group_sums)
        root = np.sqrt(np.maximum(pair_sums.tally.finite, 1))
        distance, scale = pair_sums.distance / root, pair_sums.golden_norm / root
        fields = distance, scale, noise.max(axis=1), self._jump, Quantity.RMS
        drifts = np.stack(np.broadcast_arrays(*fields), axis=1)
        drifts[(noise == 0).any(axis=1)] = np.nan
        return drifts

    def _get_noise(self, dtype: np.dtype[Any]) -> float:
        """Return the relative distance that rounding explains in ``dtype``; 0 for integers and booleans."""
        noise = self._by_dtype.get(dtype)
        if noise is None:
            noise = self._by_dtype[dtype] = self._noise.get(dtype.name, 0.0)
        return noise


def _create_failed_verdict(label: str, evidence: str) -> Verdict:
    return Verdict(Level.ERROR, label, (Reason("evidence", evidence),), failed=label == NO)


def _get_reason_code(measurement: Measurement) -> str:
    return measurement.reason.code if measurement.reason else ""
