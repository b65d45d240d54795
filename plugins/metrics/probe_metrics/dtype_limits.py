"""Limits of floating-point dtypes, including those of ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def get_eps(dtype: str) -> float:
    """Return the distance from 1 to the next number of the floating-point dtype with this name."""
    return float(_get_limits(dtype).eps)


def get_smallest(dtype: str) -> float:
    """Return the smallest positive number of the floating-point dtype with this name."""
    return float(_get_limits(dtype).smallest_subnormal)


def _get_limits(dtype: str) -> Any:
    finfo: Any = ml_dtypes.finfo
    return finfo(getattr(ml_dtypes, dtype, None) or np.dtype(dtype))
