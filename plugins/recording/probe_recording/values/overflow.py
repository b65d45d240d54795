"""The test for nan and infinities of the task overflow_check (docs/configuration.md#overflow)."""

from __future__ import annotations

import math

from probe_recording.values.leaves import TensorLeaf, Tree


def has_overflow(tree: Tree) -> bool:
    """Return True if the maximum or minimum of any leaf is nan or infinite."""
    if isinstance(tree, TensorLeaf):
        high, low = tree.statistics[:2]
        return not all(math.isfinite(value) for value in (high, low) if value is not None)
    if isinstance(tree, list):
        return any(has_overflow(item) for item in tree)
    if type(tree) is dict:
        return any(has_overflow(item) for item in tree.values())
    return False
