"""Choice of the dtype, and of its limit, for distances in units of the last place (ulp)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from probe_metrics.tally import Units
from probe_metrics.thresholds import load_thresholds

DTYPES_BY_PRECISION = (
    "float64", "float32", "float16", "bfloat16",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
"""Names of the real floating-point dtypes, from fine to coarse."""


@lru_cache(maxsize=256)
def choose_units(target: np.dtype[Any], golden: np.dtype[Any]) -> Units | None:
    """Return the coarser of both dtypes with its limit; None if a dtype is not a real floating-point dtype."""
    names = (target.name, golden.name)
    if not all(name in DTYPES_BY_PRECISION for name in names):
        return None
    name = max(names, key=DTYPES_BY_PRECISION.index)
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name, None) or name)
    limit = load_thresholds("ulp")["limit"]["float8" if dtype.itemsize == 1 else name]
    return Units(dtype, float(limit))
