"""Distance in units in the last place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from probe_core.measure import BLOCK, OpenPair
from probe_core.model import Measurement
from probe_metrics.kernel import misaligned
from probe_metrics.thresholds import thresholds

Array = np.ndarray[Any, Any]

_PRECISION = (
    "float64", "float32", "float16", "bfloat16",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
"""Real floating point, from fine to coarse."""


class Ulp:
    """How many representable numbers lie between N and B: largest, mean, and share over the limit.

    The distance is exact: that of the two numbers' places among all numbers of the dtype, with
    -0.0 and 0.0 in one place. Where the dtypes differ both sides are rounded to the coarser one.
    nan or inf at the same places count as equal; at different places: absent, and so for data
    that are not real floating point. The limits are those of the pre-check's ULP standard
    (float32 32, float16 and bfloat16 1); float64 takes float32's, float8 float16's.
    Source of the distance: B. Dawson, "Comparing floating point numbers" (2012).
    """

    def __init__(self) -> None:
        self._limits: dict[str, float] = thresholds("ulp")["limit"]

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Largest and mean distance in ulp, and the share of elements over the limit."""
        dtype = _coarser(pair.target.dtype, pair.golden.dtype)
        if dtype is None:
            return [Measurement.absent("no_number")] * 3
        name = "float8" if dtype.itemsize == 1 else dtype.name
        limit = self._limits[name]
        first, second = np.ravel(pair.target), np.ravel(pair.golden)
        largest, total, over = 0.0, 0.0, 0
        with np.errstate(all="ignore"):
            for start in range(0, first.size, BLOCK):
                part = slice(start, start + BLOCK)
                distance = _distance(first[part], second[part], dtype)
                if distance is None:
                    return [misaligned()] * 3
                largest = max(largest, float(distance.max()))
                total += float(distance.sum())
                over += int(np.count_nonzero(distance > limit))
        size = first.size
        return [Measurement(largest), Measurement(total / size), Measurement(over / size)]


def _coarser(first: np.dtype[Any], second: np.dtype[Any]) -> np.dtype[Any] | None:
    names = (first.name, second.name)
    if not all(name in _PRECISION for name in names):
        return None
    name = max(names, key=_PRECISION.index)
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name, None) or name)
    return dtype


def _distance(target: Array, golden: Array, dtype: np.dtype[Any]) -> Array | None:
    """Distances in ``dtype``, as float64; None where nan or inf stand at different places."""
    ours, theirs = target.astype(np.float64), golden.astype(np.float64)
    special = ~np.isfinite(ours)
    if not np.array_equal(special, ~np.isfinite(theirs)):
        return None
    if not np.array_equal(ours[special], theirs[special], equal_nan=True):
        return None
    first_sign, first = _sign_and_magnitude(target.astype(dtype))
    second_sign, second = _sign_and_magnitude(golden.astype(dtype))
    same = first_sign == second_sign
    apart = np.where(first > second, first - second, second - first)
    found = np.where(same, apart, first + second).astype(np.float64)
    found[special] = 0
    return found


def _sign_and_magnitude(array: Array) -> tuple[Array, Array]:
    width = array.dtype.itemsize * 8
    bits = array.view(f"u{array.dtype.itemsize}").astype(np.uint64)
    sign = bits >> np.uint64(width - 1)
    return sign, bits & np.uint64((1 << (width - 1)) - 1)
