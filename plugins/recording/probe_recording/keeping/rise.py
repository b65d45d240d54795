"""The search for the quantity that rose first among the kept steps (docs/watch.md#what-rose-first)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probe_recording.keeping.band import BandRule, Values, compute_median, find_limit
from probe_recording.keeping.history import History
from probe_recording.keeping.readings import QuantityName
from probe_recording.keeping.step_memory import StoredStep

SIZE_RULE = "size"
"""The name of sizes in ``band.yaml``."""


@dataclass(frozen=True, slots=True)
class Rise:
    """The first quantity that left its band or became non-finite.

    Attributes:
        name: The quantity.
        step: The step.
        size: The root mean square of its elements; infinity if an element is nan or infinite.
        level: The usual size; None if it is not known.
        highest: The largest size inside the band; None if it is not known.
    """

    name: QuantityName
    step: int
    size: float
    level: float | None
    highest: float | None


def find_first_rise(steps: Sequence[StoredStep], history: History, rule: BandRule) -> Rise | None:
    """Return the first quantity outside of its band, by step and then by the order within a step.

    Args:
        steps: The kept steps, oldest first.
        history: The sizes of the quantities.
        rule: The numbers of the band.

    Returns:
        None if no quantity left its band.
    """
    for step in steps:
        if step.column < 0:
            continue
        sizes = history.get_sizes(step.column)
        before = history.get_earlier_sizes(step.column, rule.memory_steps)
        for row in _find_candidates(step, sizes, before, rule):
            rise = _find_rise(step.number, history.name(row), float(sizes[row]), before[row], rule)
            if rise is not None:
                return rise
    return None


def _find_candidates(step: StoredStep, sizes: Values, before: Values, rule: BandRule) -> list[int]:
    """Return the rows that can be outside: infinite, or larger by the least factor than the last values."""
    current = sizes[step.rows]
    recent = before[step.rows][:, -rule.level_steps :]
    if recent.shape[1] < rule.level_steps:
        return [int(row) for row in step.rows[np.isinf(current)]]
    level = np.where(np.isnan(recent).any(axis=1), 0.0, compute_median(recent))
    is_candidate = np.isinf(current) | (current > level * rule.smallest_rise[SIZE_RULE])
    return [int(row) for row in step.rows[is_candidate]]


def _find_rise(step: int, name: QuantityName, size: float, before: Values, rule: BandRule) -> Rise | None:
    finite = before[np.isfinite(before)]
    limit = find_limit(finite, rule.smallest_rise[SIZE_RULE], rule)
    level, highest = (None, None) if limit is None else (limit.level, limit.highest)
    if np.isinf(size):
        if np.isinf(before).any():
            return None  # it was so in an earlier step
        reference_level = level if level is not None else (float(np.median(finite)) if len(finite) else None)
        return Rise(name, step, size, reference_level, highest)
    is_outside = highest is not None and size > highest
    return Rise(name, step, size, level, highest) if is_outside else None
