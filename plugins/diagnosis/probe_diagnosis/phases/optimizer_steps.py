"""The steps of optimizers in the phases of a step (docs/diagnosis.md#step-phases)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probe_diagnosis.phases.phase_distances import are_different, get_magnitude, get_noise, load_limits
from probe_diagnosis.phases.phases_file import ParameterGroup, PhasesFile, PhaseValue, Setting, StepPhase

Values = Mapping[str, "PhaseValue | None"]

GRADIENT_STAGES = ("accumulated", "reduced", "applied")
"""Phases that change gradients behind a backward pass, in the order of time."""

NEXT_STEP_PHASES = frozenset(
    {"batch", "forward", "loss", "gradient", "accumulated", "reduced", "unscaled", "clipped", "settings"}
)
"""Phases that belong to the next step of an optimizer."""


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """The phases of one step of an optimizer: from the end of the step before to its own."""

    phases: tuple[StepPhase, ...]
    applied: StepPhase

    @property
    def line(self) -> str:
        """The line of code that made the optimizer step."""
        return (self.find_last_phase("settings") or self.applied).where

    def find_phases(self, phase: str) -> list[StepPhase]:
        """Return all phases of a name."""
        return [step_phase for step_phase in self.phases if step_phase.name == phase]

    def find_last_phase(self, phase: str) -> StepPhase | None:
        """Return the last phase of a name; None if there is none."""
        return next(iter(self.find_phases(phase)[::-1]), None)

    def find_accumulations(self, parameter: str) -> dict[int, StepPhase]:
        """Return the phases that add a gradient of the parameter to earlier ones, by the index of the backward pass."""
        accumulations: dict[int, StepPhase] = {}
        passes = 0
        for step_phase in self.phases:
            passes += step_phase.name == "loss"
            if step_phase.name == "accumulated" and parameter in step_phase.values:
                accumulations[max(passes - 1, 0)] = step_phase
        return accumulations

    def list_names(self, phase: str) -> set[str]:
        """Return the names of all values of a phase."""
        return {
            name
            for step_phase in self.find_phases(phase)
            for name, value in step_phase.values.items()
            if value is not None
        }

    def get_values(self, phase: str) -> Values:
        """Return the values of the last entry of a phase."""
        step_phase = self.find_last_phase(phase)
        return step_phase.values if step_phase is not None else {}

    def trace_stages(self) -> list[Values]:
        """Return the gradients of parameters after each of the ``GRADIENT_STAGES``."""
        held: dict[str, PhaseValue | None] = {}
        for step_phase in self.find_phases("gradient"):
            held.update(step_phase.values)
        stage_values: list[Values] = []
        for stage in GRADIENT_STAGES:
            for step_phase in self.find_phases(stage):
                held = {**held, **step_phase.values}
            stage_values.append({name: value for name, value in held.items() if name in self.applied.values})
        return stage_values


def find_unsettled_parameters(target: OptimizerStep, golden: OptimizerStep, noise: float) -> set[str]:
    """Return the parameters some of whose gradients are only rounding of the largest gradient, so zero in theory.

    An optimizer that divides by the magnitude of gradients, such as Adam, turns this rounding into an update. For
    parts of a parameter, the average square in the state of the optimizer shows such gradients.
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
    step_phase = window.find_last_phase("settings")
    return step_phase.groups if step_phase is not None else ()


def split_optimizer_steps(step_phases: PhasesFile) -> list[OptimizerStep]:
    """Return the steps of optimizers."""
    windows: list[OptimizerStep] = []
    begun = 0
    ends = [n for n, step_phase in enumerate(step_phases.phases) if step_phase.name == "applied"]
    for place, end in enumerate(ends):
        last = ends[place + 1] if place + 1 < len(ends) else len(step_phases.phases)
        stop = next((n for n in range(end, last) if step_phases.phases[n].name in NEXT_STEP_PHASES), last)
        windows.append(OptimizerStep(step_phases.phases[begun:stop], step_phases.phases[end]))
        begun = stop
    return windows


def iterate_differing_settings(
    target: OptimizerStep, golden: OptimizerStep
) -> Iterator[tuple[str, tuple[Setting, Setting], list[str]]]:
    """Yield each setting of the optimizer that differs: its name, both values, and the parameters."""
    step_phases = target.find_last_phase("settings"), golden.find_last_phase("settings")
    if step_phases[0] is None or step_phases[1] is None:
        return
    harmless = set(load_limits()["harmless"])
    sides = [
        {name: group.settings for group in step_phase.groups for name in group.parameters}
        for step_phase in step_phases
        if step_phase
    ]
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
