"""Exact comparison of integers and booleans, which computations do not round.

The rules are in docs/tables.md#exactness.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from probe_core.model import Reason, Value
from probe_core.model.batches import PairSide
from probe_core.model.columns import Array, convert_to_float
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.measure import PairGroup
from probe_metrics.kernel import compute_group_sums
from probe_metrics.statistics import is_number
from probe_metrics.thresholds import load_thresholds

EXACT_REASON = Reason("exact")
"""Reason of a row whose integers or booleans differ."""
LAST_DIGITS_REASON = Reason("exact_in_last_digits")
"""Reason of a row of integers of which only the mean or the norm differs, by no more than rounding explains."""
MAX_EXACT_FLOAT32 = 2**24
"""Limit below which float32 represents all integers exactly."""
FLOAT32_EPS = float(np.finfo(np.float32).eps)
"""Distance from 1 to the next number of float32."""
BOOL_DTYPE = "<class 'bool'>"
"""Recorded dtype of a truth value."""


def find_tensor_differences(group: PairGroup) -> dict[int, str]:
    """Return a text for each pair of integers or booleans that differ, by the index of the pair in the group."""
    tally = group.once(compute_group_sums).tally
    differences = {}
    for place in np.flatnonzero(tally.equal == 0).tolist():
        pair = group[place]
        if not (_is_exact(pair.target.dtype) and _is_exact(pair.golden.dtype)):
            continue
        name = "booleans" if pair.target.dtype.kind == pair.golden.dtype.kind == "b" else "integers"
        largest = tally.max_absolute.item(place)
        is_wide = pair.target.dtype.itemsize == pair.golden.dtype.itemsize == 8
        if largest:
            differences[place] = name if name == "booleans" else f"{name}, by up to {largest:.15g}"
        elif is_wide and any((number != reference).any() for number, reference in pair.flat()):
            differences[place] = f"{name}, in digits beyond the precision of float64"
    return differences


def is_exact_dtype(side: PairSide) -> Array:
    """Return True for rows whose recorded dtype is one of integers or booleans."""
    return np.array([get_dtype_kind(dtype) in ("int", "bool") for dtype in side.columns.dtypes])[side.column("dtype")]


def format_scalars(target: Value, golden: Value) -> str:
    """Return a text with the values of two scalars, or with their checksums if no values were recorded."""
    value, reference = target.statistics.max, golden.statistics.max
    if value is None or reference is None:
        return f"checksum {target.checksum} against {golden.checksum}"
    return f"{_format_scalar(target)} against {_format_scalar(golden)}"


def _format_scalar(scalar: Value) -> str:
    """Return the value of a scalar; texts are quoted, except booleans, which dumps contain as texts."""
    value = scalar.statistics.max
    return str(value) if scalar.dtype == BOOL_DTYPE and value in ("True", "False") else f"{value!r:.40}"


class ExactStatistics:
    """Comparison of the recorded statistics of integers and booleans.

    Maximum and minimum must be equal. Mean and norm are computed in floating point, which devices round
    differently: a larger difference than rounding explains is a fault; a smaller one may be rounding or
    another integer. nan equals nan; null on either side is not compared; -0.0 equals 0.0. The limit is a
    multiple of the eps of float32 (``thresholds.yaml``), times the largest magnitude (mean) or the golden's norm
    (norm), which is 0 for a golden of zeros. A boolean against an integer is 0 or 1.
    Source: docs/tables.md#exactness, a rule of probe.
    """

    def __init__(self) -> None:
        self._rounding = load_thresholds("statistics")["integer_rounding"] * FLOAT32_EPS

    def iterate_differences(self, target: Value, golden: Value) -> Iterator[tuple[str, bool]]:
        """Yield a text for each statistic that differs, and True if rounding cannot explain it."""
        names = ("max", "min", "mean", "norm")
        scale = max(
            (abs(convert_to_float(end)) for end in golden.statistics[:2] if is_number(end)),
            default=0.0,
        )
        for name, number, reference in zip(names, target.statistics, golden.statistics):
            if number is None or reference is None or number == reference:
                continue
            text = f"{name} {number!r:.24} against {reference!r:.24}"
            if isinstance(number, str) or isinstance(reference, str) or type(number) is type(reference) is bool:
                yield text, True
                continue
            first, second = convert_to_float(number), convert_to_float(reference)
            if first != first and second != second:
                continue
            if name in ("max", "min"):
                if not _is_same_in_float32(number, reference):
                    yield text, True
            else:
                size = scale if name == "mean" else abs(second)
                yield text, not abs(first - second) <= self._rounding * size


def _is_same_in_float32(number: float, reference: float) -> bool:
    """Return True for large integers that are equal in float32, if one side was recorded in float32."""
    if type(number) is type(reference) is int or abs(convert_to_float(reference)) < MAX_EXACT_FLOAT32:
        return False
    with np.errstate(over="ignore"):
        return bool(np.float32(convert_to_float(number)) == np.float32(convert_to_float(reference)))


def _is_exact(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biu" or dtype.name in ("int4", "uint4", "int2", "uint2")
