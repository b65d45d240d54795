"""The comparison of all outputs of a call, whatever the framework (docs/free-benchmark.md#rules)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from probe_watch.free_benchmark.outcome import OutputComparison
from probe_watch.free_benchmark.thresholds import Thresholds


class NotComparable(Exception):
    """Two outputs that cannot be compared."""


def compare_outputs(
    original: Any,
    changed: Any,
    compare: Callable[[Any, Any], OutputComparison | None],
    thresholds: Thresholds,
    tensor_type: type,
) -> list[OutputComparison]:
    """Return the outcomes of all outputs of a call.

    Tensors are compared by ``compare``; numbers and texts by their values; of a tuple with the names values
    and indices only the values; other objects count as consistent.

    Args:
        original: The result of the program's call.
        changed: The result of the second run.
        compare: The comparison of tensors; it returns None for tensors that are not compared.
        thresholds: The thresholds for numbers.
        tensor_type: The class of tensors.

    Raises:
        NotComparable: The results have different types or lengths.
    """
    if isinstance(original, (list, tuple)) and isinstance(changed, (list, tuple)):
        if hasattr(original, "values") and hasattr(original, "indices"):
            original, changed = original[:1], changed[:1]
        if len(original) != len(changed):
            raise NotComparable("lengths differ")
        outcomes = []
        for index, (first, second) in enumerate(zip(original, changed)):
            of_item = compare_outputs(first, second, compare, thresholds, tensor_type)
            outcomes += [replace(each, index=index) for each in of_item]
        return outcomes
    if isinstance(original, tensor_type) and isinstance(changed, tensor_type):
        outcome = compare(original, changed)
        return [] if outcome is None else [outcome]
    if isinstance(original, (bool, int, str)):
        return [OutputComparison(original == changed, type(original).__name__)]
    if isinstance(original, float) and isinstance(changed, float):
        close = (original != original and changed != changed) or math.isclose(
            original, changed, rel_tol=thresholds.number_relative, abs_tol=thresholds.number_absolute
        )
        return [OutputComparison(close, "float")]
    return []
