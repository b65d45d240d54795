"""Parts of a checkpoint that a resumed run did not restore, by its first step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from probe_diagnosis.conditions.differences import ConditionKind, find_condition_differences
from probe_diagnosis.conditions.file import Fact, RunConditions, read_conditions
from probe_diagnosis.conditions.random_states import Since
from probe_diagnosis.phases.optimizer_steps import OptimizerStep, iterate_differing_settings, split_optimizer_steps
from probe_diagnosis.phases.phase_distances import are_different, get_magnitude, measure_distances
from probe_diagnosis.phases.phases_file import PhasesFile, PhaseValue, Setting, StepPhase, read_phases

Values = Mapping[str, "PhaseValue | None"]


class CheckpointPart(str, Enum):
    """Parts of a checkpoint, in the order in which they are checked."""

    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    STATE = "optimizer_state"
    SETTINGS = "optimizer_settings"
    SCHEDULER = "scheduler"
    SCALE = "gradient_scale"
    DATA = "data_position"
    RANDOM = "random_state"
    BATCH = "batch"


class Omission(Enum):
    """Ways in which a part was not restored."""

    MISSING = "missing"
    ZERO = "zero"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RestoreFailure:
    """A part of a checkpoint that was not restored.

    Attributes:
        part: The part.
        omission: The way in which it was not restored.
        name: The name of the first value that shows it.
        count: The number of such values.
        target: Its value in the resumed run; None for none.
        golden: Its value in the uninterrupted run; None for none.
        owner: The class of the optimizer or the scheduler; empty for none.
        where: The line of code that belongs to it; empty if not recorded.
    """

    part: CheckpointPart
    omission: Omission
    name: str
    count: int
    target: Setting | PhaseValue
    golden: Setting | PhaseValue
    owner: str = ""
    where: str = ""


def find_restore_failures(target: Path, golden: Path) -> list[RestoreFailure]:
    """Return what the target did not restore, by its first step, in the order of ``CheckpointPart``.

    Args:
        target: The directory of the first step and rank of the resumed run.
        golden: That of the uninterrupted run.
    """
    phase_files = read_phases(target), read_phases(golden)
    failures: list[RestoreFailure] = []
    if phase_files[0] is not None and phase_files[1] is not None:
        failures += _compare_phases(phase_files[0], phase_files[1])
    conditions = read_conditions(target), read_conditions(golden)
    if conditions[0] is not None and conditions[1] is not None:
        failures += _compare_conditions(conditions[0], conditions[1])
    order = list(CheckpointPart)
    return sorted(failures, key=lambda failure: order.index(failure.part))


def _compare_phases(target: PhasesFile, golden: PhasesFile) -> Iterator[RestoreFailure]:
    for part, phases in (
        (CheckpointPart.PARAMETERS, ("parameters_before", "frozen")),
        (CheckpointPart.BUFFERS, ("buffers_before",)),
    ):
        step_phases = [
            [step_phase for phase in phases for step_phase in step_phases.find_phases(phase)]
            for step_phases in (target, golden)
        ]
        yield from _compare_values(part, _merge_values(step_phases[0]), _merge_values(step_phases[1]))
    windows = split_optimizer_steps(target), split_optimizer_steps(golden)
    for target_window, golden_window in zip(*windows):
        yield from _compare_state(target_window, golden_window)
        yield from _compare_settings(target_window, golden_window)
        yield from _compare_scale(target_window, golden_window)


def _merge_values(step_phases: Sequence[StepPhase]) -> Values:
    """Return the values of several phases; of a name that occurs twice, the first."""
    values: dict[str, PhaseValue | None] = {}
    for step_phase in step_phases:
        values = {**step_phase.values, **values}
    return values


def _compare_values(
    part: CheckpointPart, target: Values, golden: Values, owner: str = "", where: str = ""
) -> Iterator[RestoreFailure]:
    """Yield that values differ beyond rounding, those that are zero in the resumed run alone first."""
    value_distances = measure_distances(target, golden, 0.0)
    names = value_distances.find_exceeding(1.0)
    zero = [name for name in names if _is_zero(target[name])]
    for omission, chosen in ((Omission.ZERO, zero), (Omission.OTHER, [n for n in names if n not in zero])):
        if chosen:
            name = chosen[0]
            yield RestoreFailure(part, omission, name, len(chosen), target[name], golden[name], owner, where)


def _is_zero(value: PhaseValue | None) -> bool:
    return value is not None and bool(value.statistics) and not get_magnitude(value)


def _compare_state(target: OptimizerStep, golden: OptimizerStep) -> Iterator[RestoreFailure]:
    """Yield the state of an optimizer that the resumed run lacks, or that differs."""
    target_values, golden_values = target.get_values("state_before"), golden.get_values("state_before")
    owner, where = target.applied.subject, target.line
    missing = [name for name in golden_values if name not in target_values]
    if missing:
        name = missing[0]
        yield RestoreFailure(
            CheckpointPart.STATE, Omission.MISSING, name, len(missing), None, golden_values[name], owner, where
        )
    yield from _compare_values(CheckpointPart.STATE, target_values, golden_values, owner, where)


def _compare_settings(target: OptimizerStep, golden: OptimizerStep) -> Iterator[RestoreFailure]:
    """Yield settings of an optimizer and numbers of its schedulers that differ."""
    owner, where = target.applied.subject, target.line
    for key, values, names in iterate_differing_settings(target, golden):
        yield RestoreFailure(CheckpointPart.SETTINGS, Omission.OTHER, key, len(names), *values, owner, where)
    target_facts, golden_facts = _get_scheduler_facts(target), _get_scheduler_facts(golden)
    names = [
        name for name in target_facts if name in golden_facts and are_different(target_facts[name], golden_facts[name])
    ]
    if names:
        name = min(names, key=lambda name: (not name.endswith("last_epoch"), name))
        scheduler, _, short = name.rpartition(".")
        kind = str(target_facts.get(f"{scheduler}.class", ""))
        values = target_facts[name], golden_facts[name]
        yield RestoreFailure(CheckpointPart.SCHEDULER, Omission.OTHER, short, len(names), *values, kind, where)


def _get_scheduler_facts(window: OptimizerStep) -> dict[str, Setting]:
    settings = window.find_last_phase("settings")
    facts = settings.facts if settings is not None else {}
    return {name: value for name, value in facts.items() if name.startswith("scheduler.")}


def _compare_scale(target: OptimizerStep, golden: OptimizerStep) -> Iterator[RestoreFailure]:
    """Yield that the scale of a GradScaler differs."""
    scales = target.get_values("unscaled"), golden.get_values("unscaled")
    yield from _compare_values(CheckpointPart.SCALE, *scales, "GradScaler", target.line)


def _compare_conditions(target: RunConditions, golden: RunConditions) -> Iterator[RestoreFailure]:
    """Yield the random states and the position in the data that differ when the model is called."""
    for difference in find_condition_differences(target, golden):
        if difference.random is not None and difference.random.since in (Since.START, Since.FORWARD):
            values: tuple[Fact, Fact] = difference.random.seeds if difference.random.is_seed else (None, None)
            yield RestoreFailure(CheckpointPart.RANDOM, Omission.OTHER, difference.name, 1, *values)
        elif difference.kind is ConditionKind.DATA:
            yield RestoreFailure(
                CheckpointPart.DATA, Omission.OTHER, difference.name, 1, difference.target, difference.golden
            )
        elif difference.kind is ConditionKind.BATCH:
            yield RestoreFailure(CheckpointPart.BATCH, Omission.OTHER, difference.name, 1, None, None)
