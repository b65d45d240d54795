"""The steps of optimizers in the phases of a step (docs/diagnosis.md#the-ladder)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probe_diagnosis.phases.ladder_file import ParameterGroup, PhasesFile, PhaseValue, Setting, StepPhase
from probe_diagnosis.phases.ladder_values import are_different, get_magnitude, get_noise, limits

Values = Mapping[str, "PhaseValue | None"]

GRADIENT_STAGES = ("accumulated", "reduced", "applied")
"""Phases that change gradients behind a backward pass, in the order of time."""

NEXT_STEP_PHASES = frozenset(
    {"batch", "forward", "loss", "gradient", "accumulated", "reduced", "unscaled", "clipped", "settings"}
)
"""Phases that belong to the next step of an optimizer."""


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """The rungs of one step of an optimizer: from the end of the step before to its own."""

    rungs: tuple[StepPhase, ...]
    applied: StepPhase

    @property
    def line(self) -> str:
        """The line of code that made the optimizer step."""
        return (self.find_last_phase("settings") or self.applied).where

    def find_phases(self, phase: str) -> list[StepPhase]:
        """Return the rungs of a phase."""
        return [rung for rung in self.rungs if rung.phase == phase]

    def find_last_phase(self, phase: str) -> StepPhase | None:
        """Return the last rung of a phase; None if there is none."""
        return next(iter(self.find_phases(phase)[::-1]), None)

    def list_names(self, phase: str) -> set[str]:
        """Return the names of all values of a phase."""
        return {name for rung in self.find_phases(phase) for name, value in rung.values.items() if value is not None}

    def get_values(self, phase: str) -> Values:
        """Return the values of the last rung of a phase."""
        rung = self.find_last_phase(phase)
        return rung.values if rung is not None else {}

    def trace_stages(self) -> list[Values]:
        """Return the gradients of parameters after each of the ``STAGES``."""
        held: dict[str, PhaseValue | None] = {}
        for rung in self.find_phases("gradient"):
            held.update(rung.values)
        stage_values: list[Values] = []
        for stage in GRADIENT_STAGES:
            for rung in self.find_phases(stage):
                held = {**held, **rung.values}
            stage_values.append({name: value for name, value in held.items() if name in self.applied.values})
        return stage_values


def find_unsettled_parameters(target: OptimizerStep, golden: OptimizerStep, noise: float) -> set[str]:
    """Return the parameters of which some gradients are rounding beside the largest: zero in theory.

    An optimizer that divides by their size, such as Adam, makes an update of that rounding. Of a part of a
    parameter, its average square in the state of the optimizer shows it.
    """
    unsettled: set[str] = set()
    least = max(noise, get_noise("float32"))
    for window in (target, golden):
        sizes = {name: get_magnitude(value) for name, value in window.applied.values.items() if value is not None}
        largest = max(sizes.values(), default=0.0)
        unsettled.update(name for name, size in sizes.items() if size <= least * largest)
        state = window.get_values("state_after") or window.get_values("state_before")
        for name in sizes:
            squares = [v for key, v in state.items() if v and key.startswith(f"{name}.") and v.statistics]
            unsettled.update(name for v in squares if v.shape and 0 < v.statistics[1] <= least**2 * v.statistics[0])
    return unsettled


def get_groups(window: OptimizerStep) -> tuple[ParameterGroup, ...]:
    """Return the groups of parameters of the optimizer; empty if its settings were not captured."""
    rung = window.find_last_phase("settings")
    return rung.groups if rung is not None else ()


def split_optimizer_steps(ladder: PhasesFile) -> list[OptimizerStep]:
    """Return the steps of optimizers."""
    windows: list[OptimizerStep] = []
    begun = 0
    ends = [n for n, rung in enumerate(ladder.rungs) if rung.phase == "applied"]
    for place, end in enumerate(ends):
        last = ends[place + 1] if place + 1 < len(ends) else len(ladder.rungs)
        stop = next((n for n in range(end, last) if ladder.rungs[n].phase in NEXT_STEP_PHASES), last)
        windows.append(OptimizerStep(ladder.rungs[begun:stop], ladder.rungs[end]))
        begun = stop
    return windows


def iterate_differing_settings(
    target: OptimizerStep, golden: OptimizerStep
) -> Iterator[tuple[str, tuple[Setting, Setting], list[str]]]:
    """Yield each setting of the optimizer that differs: its name, both values, and the parameters."""
    rungs = target.find_last_phase("settings"), golden.find_last_phase("settings")
    if rungs[0] is None or rungs[1] is None:
        return
    harmless = set(limits()["harmless"])
    sides = [{name: group.settings for group in rung.groups for name in group.parameters} for rung in rungs if rung]
    parameters_by_setting: dict[tuple[str, Setting, Setting], list[str]] = {}
    for name in sides[0].keys() & sides[1].keys():
        first, second = sides[0][name], sides[1][name]
        for key in first.keys() & second.keys() - harmless:
            if are_different(first[key], second[key]):
                parameters_by_setting.setdefault((key, first[key], second[key]), []).append(name)
    order = {name: place for place, name in enumerate(sides[0])}
    for (key, target_value, golden_value), names in sorted(
        parameters_by_setting.items(), key=lambda item: (-len(item[1]), item[0][0])
    ):
        yield key, (target_value, golden_value), sorted(names, key=order.__getitem__)
