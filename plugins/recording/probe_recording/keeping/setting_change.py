"""Changes of the optimizer's settings among the kept steps, such as a spike of the learning rate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from probe_recording.keeping.step_memory import StoredStep
from probe_recording.step_facts.step_phases import STEP_PHASES_FILE


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
