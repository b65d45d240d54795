"""Arrays of edge cases for testing metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BASE = np.array([1.0, -2.5, 0.25, 3.0, -0.125, 7.0], np.float32)

EDGES: dict[str, Array] = {
    "plain": _BASE,
    "zeros": np.zeros(6, np.float32),
    "negative zeros": -np.zeros(6, np.float32),
    "nan": np.array([1, np.nan, 3, 4, 5, 6], np.float32),
    "infinities": np.array([1, np.inf, -np.inf, 4, 5, 6], np.float32),
    "denormals": np.full(6, 1e-45, np.float32),
    "float16 near its end": np.full(6, 6e4, np.float16),
    "float64 near its end": np.full(6, 1e300, np.float64),
    "float64 near zero": np.full(6, 1e-300, np.float64),
    "one element": np.array([2.5], np.float32),
    "0-d": np.array(2.5, np.float32),
    "bool": np.array([True, False, True, True, False, False]),
    "uint8": np.arange(6, dtype=np.uint8),
    "int64": np.arange(6, dtype=np.int64) - 3,
    "complex": (_BASE + 1j * _BASE[::-1]).astype(np.complex64),
    "strided": np.arange(12, dtype=np.float32)[::2],
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "long": np.linspace(-1, 1, 40_001, dtype=np.float32),
}
"""Edge cases by name, read-only. Tensors without elements are not among them, for they are never measured."""
for _array in EDGES.values():
    _array.flags.writeable = False


def edge_pairs() -> Iterator[tuple[str, Array, Array]]:
    """Yield each array with itself and with every other array of its shape, with a label."""
    for name, array in EDGES.items():
        for golden_name, golden in EDGES.items():
            if golden.shape == array.shape:
                yield f"{name} against {golden_name}", array, golden
