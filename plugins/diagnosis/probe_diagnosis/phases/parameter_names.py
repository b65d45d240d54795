"""Pairing of the parameters of two runs whose modules have other names (docs/diagnosis.md#step-phases)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace

from probe_diagnosis.phases.phases_file import ParameterGroup, PhasesFile, PhaseValue, StepPhase


def rename_parameters(run: PhasesFile, other_run: PhasesFile) -> PhasesFile:
    """Return the phases of a run, with the names of the other run for parameters that it names otherwise.

    A parameter that is known in one run only is the same as one that is known in the other run only if they have
    the same shape, dtype and statistics; if several have, they are the same in their order. Those that remain are
    the same in their order if equally many of each shape and dtype remain in both runs.
    """
    parameters, other_parameters = _collect_parameters(run), _collect_parameters(other_run)
    alone = {name: value for name, value in parameters.items() if name not in other_parameters}
    others_alone = {name: value for name, value in other_parameters.items() if name not in parameters}
    new_names: dict[str, str] = {}
    for identify in (_identify_content, _identify_form):
        new_names.update(_pair_in_order(alone, others_alone, identify))
        taken = set(new_names.values())
        alone = {name: value for name, value in alone.items() if name not in new_names}
        others_alone = {name: value for name, value in others_alone.items() if name not in taken}
    if not new_names:
        return run
    return replace(run, phases=tuple(_rename_phase(step_phase, new_names) for step_phase in run.phases))


def _collect_parameters(run: PhasesFile) -> Mapping[str, PhaseValue]:
    """Return the parameters of a step with their first values, in the order of the optimizers."""
    parameters: dict[str, PhaseValue] = {}
    for phase in ("parameters_before", "applied", "gradient"):
        for step_phase in run.find_phases(phase):
            for name, value in step_phase.values.items():
                if value is not None:
                    parameters.setdefault(name, value)
    return parameters


def _pair_in_order(
    parameters: Mapping[str, PhaseValue],
    other_parameters: Mapping[str, PhaseValue],
    identify: Callable[[PhaseValue], Hashable],
) -> Iterable[tuple[str, str]]:
    """Yield pairs of names of parameters with the same identity, if equally many of both runs have it."""
    groups, other_groups = (_group_names(named, identify) for named in (parameters, other_parameters))
    for identity, names in groups.items():
        other_names = other_groups.get(identity, [])
        if len(names) == len(other_names):
            yield from zip(names, other_names)


def _group_names(
    parameters: Mapping[str, PhaseValue], identify: Callable[[PhaseValue], Hashable]
) -> dict[Hashable, list[str]]:
    groups: dict[Hashable, list[str]] = {}
    for name, value in parameters.items():
        groups.setdefault(identify(value), []).append(name)
    return groups


def _identify_form(value: PhaseValue) -> Hashable:
    return value.dtype, value.shape


def _identify_content(value: PhaseValue) -> Hashable:
    return value


def _rename_phase(step_phase: StepPhase, new_names: Mapping[str, str]) -> StepPhase:
    """Return a phase with new names of parameters, and of the state of optimizers that belongs to them."""

    def rename(name: str) -> str:
        parameter, dot, state = name.rpartition(".")
        return new_names.get(name) or f"{new_names.get(parameter, parameter)}{dot}{state}"

    groups = (ParameterGroup(group.settings, tuple(map(rename, group.parameters))) for group in step_phase.groups)
    return replace(
        step_phase,
        values={rename(name): value for name, value in step_phase.values.items()},
        groups=tuple(groups),
        unchanged={rename(name): counts for name, counts in step_phase.unchanged.items()},
    )
