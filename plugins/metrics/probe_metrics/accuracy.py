"""Policy behind the column Accuracy Reached or Not of the tensor table."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from probe_core.model import Drift, Level, Measurement, Measurements, Reason, Verdict
from probe_core.model.measure import OpenPair
from probe_metrics.exact import DIFFER, scalars_against, tensor_difference
from probe_metrics.kernel import sums
from probe_metrics.thresholds import thresholds

UNMEASURED = ("unreadable", "no_target_file", "no_golden_file", "metric_failed", "cosine_nan")
YES, NO, NONE, UNMATCHED = "Yes", "No", "None", "Unmatched"


class Accuracy:
    """Label by cosine and largest absolute error; the first rule that applies decides.

    1. The shapes differ: ``Unmatched``.
    2. nan or inf at different places: ``No``; at the same places they count as equal.
    3. One side is all zero, the other is not: ``No`` for an error above 0.001, else ``Yes``.
    4. No cosine or no error (0-d tensors, one element, no elements, no partner, unreadable files): ``None``.
    5. Cosine below 0.99 and error above 0.001: ``No``.
    6. Cosine below 0.9 or error above 1: ``No``.
    7. Else ``Yes``. -0.0 counts as 0.0.

    The level, which decides on suspects, also judges rows that the label leaves open: tensors of one element,
    scalars that differ, rows without partner, files that cannot be read. Integers and booleans
    that differ at all are an error, whatever label their cosine earns.

    Source: docs/tables.md#accuracy, by the comparison guide of msprobe 8.3; the level is probe's own. The
    limits are in ``thresholds.yaml``, in the unit of the data for errors.
    """

    def __init__(self) -> None:
        limits = thresholds("accuracy")
        self._both = limits["both"]
        self._either = limits["either"]
        self._zero_side = limits["zero_side"]
        self._one_element = limits["one_element"]
        drift = thresholds("drift")
        self._jump = float(drift["jump"])
        self._by_dtype: dict[np.dtype[Any], float] = {}
        self._noise = {name: count * float(eps(name)) for name, count in drift["noise"].items()}

    def limits(self) -> dict[str, str]:
        """Return the limits of the metrics that rules 5 and 6 read, by column."""
        both, either = self._both, self._either
        return {
            "Cosine": f"No below {either['cosine']:g}, or below {both['cosine']:g} "
            f"with MaxAbsErr above {both['absolute']:g}",
            "MaxAbsErr": f"No above {either['absolute']:g}, or above {both['absolute']:g} "
            f"with Cosine below {both['cosine']:g}",
        }

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on one pair."""
        verdict = self._by_rule(pair, measurements)
        difference = tensor_difference(pair)
        if not difference:
            return verdict
        reasons = verdict.reasons or (Reason("evidence", f"differs in {difference}"),)
        return verdict._replace(level=Level.ERROR, reasons=(DIFFER, *reasons), failed=True, drift=None)

    def _by_rule(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict by the rule of the table, before integers and booleans are compared exactly."""
        cosine = measurements["cosine.Cosine"]
        absolute = measurements["max_error.MaxAbsErr"]
        code = cosine.reason.code if cosine.reason else ""
        if code == "shape":
            return _failed(UNMATCHED, "the shapes differ")
        if code == "positions":
            return _failed(NO, "nan or inf stand at different places")
        if code in ("target_zero", "golden_zero"):
            return self._judge_zero_side(absolute)
        if code in ("zero_dimensional", "one_element"):
            return self._judge_one_element(pair, absolute, measurements["max_error.MaxRelativeErr"])
        if cosine.number is None or absolute.number is None:
            return _unmeasured(pair, code)
        return self._judge(pair, cosine.number, absolute.number)

    def _judge(self, pair: OpenPair, cosine: float, absolute: float) -> Verdict:
        evidence = f"Cosine {cosine:.6g}, MaxAbsErr {absolute:.6g}"
        if cosine < self._both["cosine"] and absolute > self._both["absolute"]:
            return _failed(NO, evidence)
        if absolute > self._either["absolute"]:
            return _failed(NO, evidence)
        if cosine < self._either["cosine"]:  # the drift tells rounding from a fault, which the cosine cannot
            return _failed(NO, evidence)._replace(drift=self._drift(pair))
        return Verdict(Level.PASS, YES, drift=self._drift(pair))

    def _drift(self, pair: OpenPair) -> Drift | None:
        target_noise, golden_noise = self._noise_of(pair.target.dtype), self._noise_of(pair.golden.dtype)
        if not (target_noise and golden_noise):
            return None
        pair_sums = pair.once(sums)
        root = math.sqrt(pair_sums.tally.finite or 1)
        noise = max(target_noise, golden_noise)
        return Drift(pair_sums.distance / root, pair_sums.golden_norm / root, noise, self._jump)

    def _noise_of(self, dtype: np.dtype[Any]) -> float:
        """Return the relative distance that rounding explains in ``dtype``; 0 for integers and booleans."""
        noise = self._by_dtype.get(dtype)
        if noise is None:
            noise = self._by_dtype[dtype] = self._noise.get(dtype.name, 0.0)
        return noise

    def _judge_zero_side(self, absolute: Measurement) -> Verdict:
        error = absolute.number or 0.0
        if error > self._zero_side["absolute"]:
            return _failed(NO, f"one side is all zero, MaxAbsErr {error:.6g}")
        return Verdict(Level.PASS, YES)

    def _judge_one_element(self, pair: OpenPair, absolute: Measurement, relative: Measurement) -> Verdict:
        error, share = absolute.number or 0.0, relative.number or 0.0
        limits = self._one_element
        if error > limits["absolute"] and share > limits["relative"]:
            evidence = Reason("evidence", f"one element, MaxAbsErr {error:.6g}, relative {share:.3g}")
            return Verdict(Level.ERROR, NONE, (evidence,))
        return Verdict(Level.PASS, NONE, drift=self._drift(pair))


def eps(dtype: str) -> float:
    """Return the distance from 1 to the next number of the floating-point dtype of this name."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(getattr(ml_dtypes, dtype, None) or np.dtype(dtype)).eps)


def least(dtype: str) -> float:
    """Return the smallest number above 0 of the floating-point dtype of this name."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(getattr(ml_dtypes, dtype, None) or np.dtype(dtype)).smallest_subnormal)


def _failed(label: str, evidence: str) -> Verdict:
    return Verdict(Level.ERROR, label, (Reason("evidence", evidence),), failed=label == NO)


def _unmeasured(pair: OpenPair, code: str) -> Verdict:
    if pair.pair.scalars_differ:
        evidence = Reason("evidence", scalars_against(*(slot.value for slot in pair.slots)))
        return Verdict(Level.ERROR, NONE, (evidence,), failed=True)
    if not pair.pair.matched or code in UNMEASURED:
        return Verdict(Level.WARNING, NONE, measured=False)
    return Verdict(Level.SKIP, NONE)
