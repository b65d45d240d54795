"""The search for the quantity that rose first among the kept steps (docs/watch.md#what-rose-first)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe_recording.keeping.band import BandRule, Values, compute_median, find_limit
from probe_recording.keeping.history import History
from probe_recording.keeping.readings import QuantityName
from probe_recording.keeping.step_memory import StoredStep
from probe_recording.step_facts.step_phases import STEP_PHASES_FILE

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


# -- changes of the optimizer's settings among the kept steps, such as a spike of the learning rate -


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of an optimizer that differs from that of the step before.

    Attributes:
        name: The name of the setting, such as ``lr``.
        group: The number of the group of parameters, over all optimizers of the step.
        step: The step with the new value.
        value: The new value.
        previous: The value of the step before.
    """

    name: str
    group: int
    step: int
    value: float
    previous: float


def find_setting_change(steps: Sequence[StoredStep], last: int, factor: float) -> SettingChange | None:
    """Return the latest change of a setting by at least a factor, in a step up to ``last``.

    Args:
        steps: The kept steps, oldest first.
        last: The number of the last step that counts.
        factor: The smallest factor, upward or downward. A value of 0 is any factor away from others.
    """
    latest: SettingChange | None = None
    previous: dict[tuple[str, int], float] = {}
    for step in steps:
        if step.number > last:
            break
        present = dict(_iterate_settings(step))
        for (name, group), value in present.items():
            before = previous.get((name, group), value)
            low, high = sorted((abs(before), abs(value)))
            if value != before and high >= factor * low:
                latest = SettingChange(name, group, step.number, value, before)
        previous = present
    return latest


def _iterate_settings(step: StoredStep) -> Iterator[tuple[tuple[str, int], float]]:
    """Yield the numeric settings of each group of parameters in a step, by name and group."""
    data = step.files.get(STEP_PHASES_FILE)
    step_phases: list[dict[str, Any]] = json.loads(data)["phases"] if data is not None else []
    groups = [
        group
        for step_phase in step_phases
        if step_phase["phase"] == "settings"
        for group in step_phase["facts"].get("groups", ())
    ]
    for number, group in enumerate(groups):
        for name, value in group["settings"].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield (name, number), value
