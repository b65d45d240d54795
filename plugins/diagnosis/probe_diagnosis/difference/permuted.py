"""Differences of tensors that contain the same values in another order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Value
from probe_core.model.run import Run
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, DifferenceKind, ValueComparison
from probe_diagnosis.timeline.recorded import find_value

Array = np.ndarray[Any, Any]


def mark_permuted(value: ValueComparison, call: ComparedCall, runs: Sequence[Run]) -> ValueComparison:
    """Return a difference of values, its kind corrected if they are permuted (docs/diagnosis.md#permuted).

    Args:
        value: A value of the call.
        call: The call.
        runs: The target and the golden.
    """
    if value.kind is not DifferenceKind.VALUE or value.is_scalar:
        return value
    golden = call.golden_op or call.op
    first = find_value(runs[0], call.op, value.row)
    second = find_value(runs[1], golden, golden + value.row.removeprefix(call.op))
    if first is None or second is None or first.dtype != second.dtype:
        return value
    if value.basis is Basis.TENSOR and _is_permuted(first, second, runs):
        return value._replace(kind=DifferenceKind.PERMUTED)
    if value.basis in (Basis.CHECKSUM, Basis.EXACT_CHECKSUM) and _have_same_statistics(first, second):
        return value._replace(kind=DifferenceKind.MAY_BE_PERMUTED)
    return value


def _is_permuted(target: Value, golden: Value, runs: Sequence[Run]) -> bool:
    """Return True if two recorded tensors, which differ, contain the same values."""
    if any(math.prod(value.shape or ()) > limits().max_sorted_elements for value in (target, golden)):
        return False
    try:
        return is_permutation(runs[0].tensor(target), runs[1].tensor(golden))
    except (UnreadableTensor, MemoryError):
        return False


def _have_same_statistics(target: Value, golden: Value) -> bool:
    """Return True if all statistics were recorded and are the same, except for the order of sums."""
    target_statistics, golden_statistics = target.statistics, golden.statistics
    if (target_statistics.max, target_statistics.min) != (
        golden_statistics.max,
        golden_statistics.min,
    ) or target_statistics.max is None:
        return False
    return all(
        isinstance(first, (int, float))
        and isinstance(second, (int, float))
        and math.isclose(first, second, rel_tol=limits().max_sum_error)
        for first, second in (
            (target_statistics.mean, golden_statistics.mean),
            (target_statistics.norm, golden_statistics.norm),
        )
    )


def is_permutation(target: Array, golden: Array) -> bool:
    """Return True if two arrays contain the same values with the same frequency.

    Edge cases: all nan are one value, and -0.0 is 0.0, also as a part of a complex number. Arrays of other
    dtypes or sizes do not contain the same values.

    Example:
        >>> is_permutation(np.array([1.0, np.nan]), np.array([np.nan, 1.0]))
        True
    """
    if target.dtype != golden.dtype or target.size != golden.size:
        return False
    sorted_target, sorted_golden = (np.sort(values, axis=None) for values in (target, golden))
    parts = ((sorted_target.real, sorted_golden.real), (sorted_target.imag, sorted_golden.imag))
    return all(np.array_equal(*part, equal_nan=True) for part in parts)
