"""Integers and booleans, which nothing rounds: they agree exactly, or they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from probe_core.model import Kind, Reason, Statistic, Value
from probe_core.model.dtypes import kind
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import sums
from probe_metrics.statistics import as_float, is_number
from probe_metrics.thresholds import thresholds

DIFFER = Reason("exact")
"""Said of integers or booleans that differ, in the tables."""
IN_LAST_DIGITS = Reason("exact_in_last_digits")
"""Said where only mean or norm of integers differ, by no more than rounding explains."""
EXACT_IN_FLOAT32 = 2**24
"""Integers up to this are told apart by a recorder that notes maxima in float32."""
EPS = float(np.finfo(np.float32).eps)


def tensor_difference(pair: OpenPair) -> str:
    """Say how two tensors of integers or booleans differ; empty where they do not, or are of floats."""
    if not (pair.measurable and _is_exact(pair.target.dtype) and _is_exact(pair.golden.dtype)):
        return ""
    tally = pair.once(sums).tally
    what = "booleans" if pair.target.dtype.kind == pair.golden.dtype.kind == "b" else "integers"
    if tally.equal:
        return ""
    if tally.max_absolute:
        return what if what == "booleans" else f"{what}, by up to {tally.max_absolute:.15g}"
    is_wide = pair.target.dtype.itemsize == pair.golden.dtype.itemsize == 8
    if is_wide and any((ours != theirs).any() for ours, theirs in pair.flat()):
        return f"{what}, in digits that float64 does not hold"
    return ""


def is_exact(value: Value) -> bool:
    """Return True for a tensor whose recorded dtype is one of integers or booleans."""
    return value.kind is Kind.TENSOR and kind(value.dtype) in ("int", "bool")


def scalars_against(target: Value, golden: Value) -> str:
    """Two scalars side by side: their values, or their checksums where those alone are on record."""
    ours, theirs = target.statistics.max, golden.statistics.max
    if ours is None or theirs is None:
        return f"checksum {target.checksum} against {golden.checksum}"
    return f"{ours!r:.40} against {theirs!r:.40}"


class ExactStatistics:
    """Recorded statistics of integers: maxima and minima agree exactly.

    Mean and norm were computed in floating point, so that devices round them otherwise. What differs by more
    than rounding explains, differs; what differs by less may be rounding or another integer, and is to check.
    """

    def __init__(self) -> None:
        self._rounding = thresholds("statistics")["integer_rounding"] * EPS

    def differences(self, target: Value, golden: Value) -> Iterator[tuple[str, bool]]:
        """The statistics that differ: what to say of each, and whether rounding cannot explain it."""
        names = ("max", "min", "mean", "norm")
        scale = max(
            (abs(as_float(end)) for end in golden.statistics[:2] if is_number(end)),
            default=0.0,
        )
        for name, ours, theirs in zip(names, target.statistics, golden.statistics):
            if ours is None or theirs is None or ours == theirs:
                continue
            text = f"{name} {ours!r:.24} against {theirs!r:.24}"
            if not (is_number(ours) and is_number(theirs)):
                if is_number(ours) is is_number(theirs):
                    yield text, True
                continue
            first, second = as_float(ours), as_float(theirs)
            if first != first and second != second:
                continue
            if name in ("max", "min"):
                if not _is_same_in_float32(ours, theirs):
                    yield text, True
            else:
                size = scale if name == "mean" else abs(second)
                yield text, not abs(first - second) <= self._rounding * size


def _is_same_in_float32(ours: Statistic, theirs: Statistic) -> bool:
    """Return True for large integers of which one side was recorded in float32, where that rounds to one."""
    if type(ours) is type(theirs) is int or abs(as_float(theirs)) < EXACT_IN_FLOAT32:
        return False
    with np.errstate(over="ignore"):
        return bool(np.float32(as_float(ours)) == np.float32(as_float(theirs)))


def _is_exact(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biu" or dtype.name in ("int4", "uint4", "int2", "uint2")
