"""Non-finite values of a run, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probe_core.model.columns import FLOAT, NONE, SCALAR, TENSOR, TEXT, Array, ValueColumns
from probe_core.model.dtypes import get_dtype_kind

_NUMBERS_BY_TEXT = {
    "nan": np.nan,
    "inf": np.inf,
    "+inf": np.inf,
    "-inf": -np.inf,
    "infinity": np.inf,
    "-infinity": -np.inf,
}
"""Numbers that some recorders write as texts."""

MAX_INDEX, MIN_INDEX, NORM_INDEX = 0, 1, 3
"""Columns of the statistics."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Lines of a run whose values are not finite.

    The recorded maximum and minimum decide. A norm of nan with a finite maximum and minimum means nan as well,
    because some devices ignore nan in the maximum.

    Attributes:
        has_nan: True for lines with nan.
        has_positive: True for lines with inf.
        has_negative: True for lines with -inf.
        is_unknown: True for tensors of floating-point numbers without recorded statistics.
    """

    has_nan: Array
    has_positive: Array
    has_negative: Array
    is_unknown: Array

    @property
    def any(self) -> Array:
        """True for lines with a value that is not finite."""
        return np.asarray(self.has_nan | self.has_positive | self.has_negative)

    def list_kinds(self, line: int) -> frozenset[str]:
        """Return the kinds of values of a line that are not finite: ``nan``, ``inf``, ``-inf``."""
        columns = {"nan": self.has_nan, "inf": self.has_positive, "-inf": self.has_negative}
        return frozenset(name for name, column in columns.items() if column[line])


def find_non_finite(values: ValueColumns) -> NonFinite:
    """Return the lines of a run whose values are not finite."""
    numbers, types = _convert_to_numbers(values), values.types
    is_tensor = values.kind == TENSOR
    is_finite_range = np.isfinite(numbers[:, MAX_INDEX]) & np.isfinite(numbers[:, MIN_INDEX])
    has_nan = np.isnan(numbers[:, MAX_INDEX]) | np.isnan(numbers[:, MIN_INDEX])
    has_nan |= is_tensor & is_finite_range & np.isnan(numbers[:, NORM_INDEX]) & (types[:, MAX_INDEX] != NONE)
    extremes = numbers[:, [MAX_INDEX, MIN_INDEX]]
    is_float = np.array([get_dtype_kind(dtype) in ("float", "complex") for dtype in values.dtypes] or [False])[
        values.dtype
    ]
    is_empty = np.array([shape is not None and 0 in shape for _, shape in values.extents] or [False])
    is_unknown = is_tensor & is_float & (types[:, MAX_INDEX] == NONE) & ~is_empty[values.extent]
    return NonFinite(has_nan, (extremes == np.inf).any(axis=1), (extremes == -np.inf).any(axis=1), is_unknown)


def _convert_to_numbers(values: ValueColumns) -> Array:
    """Return the statistics as numbers: floating-point numbers and texts that name one; 0 for all others."""
    is_text = values.types == TEXT
    numbers = np.where(values.types == FLOAT, values.numbers, 0.0)
    if is_text.any():
        is_named_float = np.array(["float" in dtype for dtype in values.dtypes] or [False])[values.dtype]
        is_wanted = is_text & ((values.kind == TENSOR) | ((values.kind == SCALAR) & is_named_float))[:, None]
        meanings = np.array([_NUMBERS_BY_TEXT.get(text.strip().lower(), 0.0) for text in values.texts] or [0.0])
        codes = np.where(is_wanted, values.numbers, 0).astype(int)
        numbers = np.where(is_wanted, meanings[codes], numbers)
    return numbers
