"""Comparison of the outputs of two runs of a call, for all frameworks (docs/free-benchmark.md#rules)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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

    Tensors are compared by ``compare``, numbers and texts by their values. Other objects count as consistent. Of a
    named tuple with ``values`` and ``indices``, as ``max`` returns, only ``values`` is compared: equal values may have
    several indices.

    Args:
        original: The result of the program's call.
        changed: The result of the second run.
        compare: The comparison of tensors; it returns None for tensors that are not compared.
        thresholds: The thresholds for numbers.
        tensor_type: The class of tensors.

    Raises:
        NotComparable: The results have different types or lengths.
    """
    kind = _find_kind(original, tensor_type)
    if kind is not _find_kind(changed, tensor_type):
        raise NotComparable("types differ")
    if kind is Sequence:
        return _compare_items(original, changed, compare, thresholds, tensor_type)
    if kind is tensor_type:
        outcome = compare(original, changed)
        return [] if outcome is None else [outcome]
    if kind is str:
        return [OutputComparison(original == changed, type(original).__name__)]
    if kind is float:
        is_close = (original != original and changed != changed) or math.isclose(
            original, changed, rel_tol=thresholds.number_relative, abs_tol=thresholds.number_absolute
        )
        return [OutputComparison(is_close, "float")]
    return []


def _find_kind(output: Any, tensor_type: type) -> type:
    """Return the type that stands for all types which are compared in the same way.

    These are ``Sequence`` for lists and tuples, ``str`` for texts, integers and booleans, and ``tensor_type`` for its
    subclasses.
    """
    if isinstance(output, (list, tuple)):
        return Sequence
    if isinstance(output, (bool, int, str)):
        return str
    return next((kind for kind in (tensor_type, float) if isinstance(output, kind)), type(output))


def _compare_items(
    original: Any,
    changed: Any,
    compare: Callable[[Any, Any], OutputComparison | None],
    thresholds: Thresholds,
    tensor_type: type,
) -> list[OutputComparison]:
    """Return the outcomes of the items of two lists or tuples, each with the index of its item."""
    if hasattr(original, "values") and hasattr(original, "indices"):
        original, changed = original[:1], changed[:1]
    if len(original) != len(changed):
        raise NotComparable("lengths differ")
    outcomes: list[OutputComparison] = []
    for index, (original_item, changed_item) in enumerate(zip(original, changed)):
        item_outcomes = compare_outputs(original_item, changed_item, compare, thresholds, tensor_type)
        outcomes += [replace(outcome, index=index) for outcome in item_outcomes]
    return outcomes
