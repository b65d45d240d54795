"""Right and wrong kernels in numpy, whose outputs are planted in pre-checks."""

from __future__ import annotations

from typing import Any

import numpy as np


def softmax(x: Any, powers: Any = np.float64, sums: Any = np.float64) -> Any:
    """Softmax of rows, with exponentials in a dtype, and their sums in another."""
    powers = np.exp((x - x.max(-1, keepdims=True)).astype(powers)).astype(np.float64)
    return powers / powers.astype(sums).sum(-1, keepdims=True, dtype=sums).astype(np.float64)


def gelu_slope(x: Any, *, tanh: bool) -> Any:
    """Derivative of GELU, or of its approximation by tanh."""
    if not tanh:
        from math import erf

        return 0.5 * (1 + np.vectorize(erf)(x / 2**0.5)) + x * np.exp(-x * x / 2) / (2 * np.pi) ** 0.5
    inner = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))
    slope = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + inner) + 0.5 * x * (1 - inner**2) * slope
