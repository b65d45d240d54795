"""Random inputs that fit an API: indices within range, sorted boundaries and others, by ``rules.yaml``.

See docs/standards.md#inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from probe_precheck.fitting import RecordedArguments, find_indexed_size

from probe_mindspore.precheck.rules import rules
from probe_mindspore.precheck.tensors import Values


def fit_values(
    values: Values, api: str, rule: Mapping[str, Any], call_arguments: RecordedArguments, generator: np.random.Generator
) -> Values:
    """Return random values, changed so that an API accepts them.

    Args:
        values: The random values.
        api: The name of the API.
        rule: The rule for the argument.
        call_arguments: All arguments of the call.
        generator: Draws more random numbers.

    Returns:
        The values unchanged if the rule cannot be applied.
    """
    is_index = values.dtype.kind in "iu"
    if "index_of" in rule and is_index:
        size, dim = find_indexed_size(rules, api, rule["index_of"], call_arguments)
        if size is None or size < 1:
            return values
        if rule.get("unique") and dim is not None:
            return _draw_distinct_indices(values, size, dim, generator)
        return np.clip(values, 0, size - 1)
    if "below" in rule and is_index:
        limit = call_arguments.number(rule["below"]["argument"], rule["below"]["name"])
        return np.clip(values, 0, limit - 1) if limit is not None and limit > 0 else np.clip(values, 0, None)
    if "sorted" in rule:
        return np.sort(values, -1) if values.ndim else values
    if "extremes" in rule and values.dtype.kind == "f" and values.size:
        extremes = np.array([values.min(), values.max()])
        chosen: Values = extremes[generator.integers(0, 2, values.shape)]
        return chosen
    if "probabilities" in rule and values.dtype.kind == "f":
        return np.clip(values, 0, 1)
    return values


def _draw_distinct_indices(values: Values, size: int, dim: int, generator: np.random.Generator) -> Values:
    """Return random indices that are distinct along ``dim``.

    If ``size`` is too small for distinct indices, the given indices are clamped to the valid range.
    """
    if values.ndim <= 1:
        dim = 0
    if not values.ndim or values.shape[dim] > size:
        return np.clip(values, 0, size - 1)
    shape = [*values.shape]
    shape[dim] = size
    order = generator.random(shape).argsort(dim)
    return np.take(order, np.arange(values.shape[dim]), dim).astype(values.dtype)
