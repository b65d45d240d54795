"""Parts of a checkpoint that a resumed run did not restore, by its first step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from probe_diagnosis.conditions.differences import ConditionKind, condition_differences
from probe_diagnosis.conditions.file import Fact, RunConditions, read_conditions
from probe_diagnosis.conditions.random_states import Since
from probe_diagnosis.phases.ladder_file import LadderFile, Measured, Rung, Setting, read_ladder
from probe_diagnosis.phases.ladder_values import differ, distances, size_of
from probe_diagnosis.phases.ladder_windows import Window, differing_settings, windows_of

Values = Mapping[str, "Measured | None"]


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
    target: Setting | Measured
    golden: Setting | Measured
    owner: str = ""
    where: str = ""


def not_restored(target: Path, golden: Path) -> list[RestoreFailure]:
    """Return what the target did not restore, by its first step, in the order of ``CheckpointPart``.

    Args:
        target: The directory of the first step and rank of the resumed run.
        golden: That of the uninterrupted run.
    """
    ladders = read_ladder(target), read_ladder(golden)
    found: list[RestoreFailure] = []
    if ladders[0] is not None and ladders[1] is not None:
        found += _by_phases(ladders[0], ladders[1])
    conditions = read_conditions(target), read_conditions(golden)
    if conditions[0] is not None and conditions[1] is not None:
        found += _by_conditions(conditions[0], conditions[1])
    order = list(CheckpointPart)
    return sorted(found, key=lambda one: order.index(one.part))


def _by_phases(target: LadderFile, golden: LadderFile) -> Iterator[RestoreFailure]:
    for part, phases in (
        (CheckpointPart.PARAMETERS, ("parameters_before", "frozen")),
        (CheckpointPart.BUFFERS, ("buffers_before",)),
    ):
        rungs = [[rung for phase in phases for rung in ladder.of(phase)] for ladder in (target, golden)]
        yield from _values(part, _merged(rungs[0]), _merged(rungs[1]))
    windows = windows_of(target), windows_of(golden)
    for own, other in zip(*windows):
        yield from _state(own, other)
        yield from _settings(own, other)
        yield from _scale(own, other)


def _merged(rungs: Sequence[Rung]) -> Values:
    """Return the values of several rungs; of a name that occurs twice, the first."""
    values: dict[str, Measured | None] = {}
    for rung in rungs:
        values = {**rung.values, **values}
    return values


def _values(
    part: CheckpointPart, target: Values, golden: Values, owner: str = "", where: str = ""
) -> Iterator[RestoreFailure]:
    """Yield that values differ beyond rounding, those that are zero in the resumed run alone first."""
    found = distances(target, golden, 0.0)
    names = found.above(1.0)
    zero = [name for name in names if _is_zero(target[name])]
    for omission, chosen in ((Omission.ZERO, zero), (Omission.OTHER, [n for n in names if n not in zero])):
        if chosen:
            name = chosen[0]
            yield RestoreFailure(part, omission, name, len(chosen), target[name], golden[name], owner, where)


def _is_zero(value: Measured | None) -> bool:
    return value is not None and bool(value.statistics) and not size_of(value)


def _state(target: Window, golden: Window) -> Iterator[RestoreFailure]:
    """Yield the state of an optimizer that the resumed run lacks, or that differs."""
    own, other = target.values("state_before"), golden.values("state_before")
    owner, where = target.applied.subject, target.line
    missing = [name for name in other if name not in own]
    if missing:
        name = missing[0]
        yield RestoreFailure(
            CheckpointPart.STATE, Omission.MISSING, name, len(missing), None, other[name], owner, where
        )
    yield from _values(CheckpointPart.STATE, own, other, owner, where)


def _settings(target: Window, golden: Window) -> Iterator[RestoreFailure]:
    """Yield settings of an optimizer and numbers of its schedulers that differ."""
    owner, where = target.applied.subject, target.line
    for key, values, names in differing_settings(target, golden):
        yield RestoreFailure(CheckpointPart.SETTINGS, Omission.OTHER, key, len(names), *values, owner, where)
    own, other = _scheduler_facts(target), _scheduler_facts(golden)
    names = [name for name in own if name in other and differ(own[name], other[name])]
    if names:
        name = min(names, key=lambda name: (not name.endswith("last_epoch"), name))
        scheduler, _, short = name.rpartition(".")
        kind = str(own.get(f"{scheduler}.class", ""))
        values = own[name], other[name]
        yield RestoreFailure(
            CheckpointPart.SCHEDULER, Omission.OTHER, short, len(names), *values, kind, where
        )


def _scheduler_facts(window: Window) -> dict[str, Setting]:
    settings = window.one("settings")
    facts = settings.facts if settings is not None else {}
    return {name: value for name, value in facts.items() if name.startswith("scheduler.")}


def _scale(target: Window, golden: Window) -> Iterator[RestoreFailure]:
    """Yield that the scale of a GradScaler differs."""
    scales = target.values("unscaled"), golden.values("unscaled")
    yield from _values(CheckpointPart.SCALE, *scales, "GradScaler", target.line)


def _by_conditions(target: RunConditions, golden: RunConditions) -> Iterator[RestoreFailure]:
    """Yield the random states and the position in the data that differ when the model is called."""
    for one in condition_differences(target, golden):
        if one.random is not None and one.random.since in (Since.START, Since.FORWARD):
            values: tuple[Fact, Fact] = one.random.seeds if one.random.is_seed else (None, None)
            yield RestoreFailure(CheckpointPart.RANDOM, Omission.OTHER, one.name, 1, *values)
        elif one.kind is ConditionKind.DATA:
            yield RestoreFailure(CheckpointPart.DATA, Omission.OTHER, one.name, 1, one.target, one.golden)
        elif one.kind is ConditionKind.BATCH:
            yield RestoreFailure(CheckpointPart.BATCH, Omission.OTHER, one.name, 1, None, None)
