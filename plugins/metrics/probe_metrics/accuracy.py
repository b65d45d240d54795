"""Accuracy Reached or Not, of the table of tensors."""

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
    """The seed's rule over cosine and largest absolute error, first hit wins (spec/compare 5.4).

    Shapes differ: Unmatched. nan or inf at different places: No. No cosine or no error: None.
    Cosine below 0.99 with an error above 0.001: No. Cosine below 0.9, or an error above 1: No.
    Else Yes. A side that is all zero counts as cosine 0 (decision D10).

    The level goes beyond the label where the seed leaves a row unjudged: tensors of one element,
    scalars that differ (decision D20), rows without partner, files that could not be read. And integers
    and booleans that differ at all are an error, whatever label their cosine earns.
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

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on one pair."""
        verdict = self._by_rule(pair, measurements)
        difference = tensor_difference(pair)
        if not difference:
            return verdict
        found = verdict.reasons or (Reason("evidence", f"differs in {difference}"),)
        return verdict._replace(level=Level.ERROR, reasons=(DIFFER, *found), failed=True, drift=None)

    def _by_rule(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The label that the table's rule gives, and how grave it is."""
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
        if cosine < self._either["cosine"]:  # of what is rounding and nothing else, cosine says nothing
            return _failed(NO, evidence)._replace(drift=self._drift(pair))
        return Verdict(Level.PASS, YES, drift=self._drift(pair))

    def _drift(self, pair: OpenPair) -> Drift | None:
        ours, theirs = self._noise_of(pair.target.dtype), self._noise_of(pair.golden.dtype)
        if not (ours and theirs):
            return None
        found = pair.once(sums)
        root = math.sqrt(found.tally.finite or 1)
        return Drift(found.distance / root, found.golden_norm / root, max(ours, theirs), self._jump)

    def _noise_of(self, dtype: np.dtype[Any]) -> float:
        """What rounding explains in ``dtype``, 0 where nothing is rounded."""
        found = self._by_dtype.get(dtype)
        if found is None:
            found = self._by_dtype[dtype] = self._noise.get(dtype.name, 0.0)
        return found

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
    """The distance from 1 to the next number of a floating-point dtype, by its name."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(getattr(ml_dtypes, dtype, None) or np.dtype(dtype)).eps)


def least(dtype: str) -> float:
    """The smallest number above 0 of a floating-point dtype, by its name."""
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
