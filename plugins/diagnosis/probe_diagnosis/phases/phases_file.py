"""Reader of ``step_phases.json``, the phases of a recorded step (docs/formats.md#step-phases-json)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from probe_core.files.user_files import read_regular_file
from probe_diagnosis.frames import find_own_frame

STEP_PHASES_FILE = "step_phases.json"

SCHEMAS = {STEP_PHASES_FILE: (2, "phases"), "ladder.json": (1, "rungs")}
"""The name of the file, its schema and the key of its phases; up to version 0.1 these were the last ones."""

_WRAPPER_PATTERN = re.compile(r"^(?:(?:module|_orig_mod|_fsdp_wrapped_module)\.)+")

Number = Union[int, float]
Setting = Union[None, bool, int, float, str, tuple["Setting", ...]]


@dataclass(frozen=True, slots=True)
class PhaseValue:
    """A tensor, or a scalar, of a phase.

    Attributes:
        dtype: Its dtype; that of a scalar is the name of its Python type.
        shape: Its sizes.
        statistics: Max, Min, Mean and Norm; empty if they are not all recorded as numbers.
    """

    dtype: str
    shape: tuple[int, ...]
    statistics: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """A group of parameters of an optimizer, with its settings."""

    settings: Mapping[str, Setting]
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepPhase:
    """A phase of a step.

    Attributes:
        name: The phase, such as ``gradient``.
        number: Number of earlier entries of this phase.
        where: The line of the program that it belongs to; empty if not recorded.
        values: What was measured, by name; None for a gradient that does not exist.
        facts: Settings of the phase: the name of the optimizer or the function, limits.
        groups: The groups of parameters, in the phase ``settings``.
        unchanged: For each parameter the elements that the step left unchanged, and those compared.
    """

    name: str
    number: int
    where: str = ""
    values: Mapping[str, PhaseValue | None] = field(default_factory=dict)
    facts: Mapping[str, Setting] = field(default_factory=dict)
    groups: tuple[ParameterGroup, ...] = ()
    unchanged: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The phase and its number, as an answer names it."""
        return f"phase.{self.name}.{self.number}"

    @property
    def subject(self) -> str:
        """The name of the optimizer or the function of the phase."""
        return str(self.facts.get("optimizer") or self.facts.get("function") or "")


@dataclass(frozen=True, slots=True)
class PhasesFile:
    """The phases of a step and rank, in the order of time.

    Attributes:
        not_captured: For phases that were not captured, the reason.
    """

    phases: tuple[StepPhase, ...]
    not_captured: Mapping[str, str]

    def find_phases(self, phase: str) -> list[StepPhase]:
        """Return all phases of a name."""
        return [step_phase for step_phase in self.phases if step_phase.name == phase]


def read_phases(directory: Path) -> PhasesFile | None:
    """Return the phases of a step and rank; None if there are none that can be read."""
    name = next((name for name in SCHEMAS if (directory / name).exists()), STEP_PHASES_FILE)
    schema, key = SCHEMAS[name]
    try:
        plain = json.loads(read_regular_file(directory / name).decode("utf-8"))
        if plain["schema"] != schema:
            return None
        missing = {str(phase): str(reason) for phase, reason in plain["not_captured"].items()}
        return PhasesFile(_unwrap_names([_parse_phase(step_phase) for step_phase in plain[key]]), missing)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _unwrap_names(step_phases: Sequence[StepPhase]) -> tuple[StepPhase, ...]:
    """Return the phases, the names of parameters without what wrappers such as DistributedDataParallel add."""
    names = {name for step_phase in step_phases for group in step_phase.groups for name in group.parameters}
    names |= {name for step_phase in step_phases if step_phase.name == "gradient" for name in step_phase.values}
    if not names or not all(_WRAPPER_PATTERN.match(name) for name in names):
        return tuple(step_phases)

    def plain(name: str) -> str:
        return _WRAPPER_PATTERN.sub("", name)

    return tuple(
        replace(
            step_phase,
            values={plain(name): value for name, value in step_phase.values.items()},
            groups=tuple(
                ParameterGroup(group.settings, tuple(map(plain, group.parameters))) for group in step_phase.groups
            ),
            unchanged={plain(name): value for name, value in step_phase.unchanged.items()},
        )
        for step_phase in step_phases
    )


def _parse_phase(plain: Mapping[str, Any]) -> StepPhase:
    facts = dict(plain["facts"])
    groups = tuple(
        ParameterGroup(
            {str(k): _parse_setting(v) for k, v in group["settings"].items()}, tuple(map(str, group["parameters"]))
        )
        for group in facts.pop("groups", ())
    )
    unchanged = {str(k): (int(v[0]), int(v[1])) for k, v in facts.pop("unchanged", {}).items()}
    return StepPhase(
        str(plain["phase"]),
        int(plain["number"]),
        find_own_frame([str(frame) for frame in plain["stack"]]),
        {str(name): _parse_value(leaf) for name, leaf in plain["values"].items()},
        {str(key): _parse_setting(value) for key, value in facts.items()},
        groups,
        unchanged,
    )


def _parse_value(leaf: Any) -> PhaseValue | None:
    if leaf is None:
        return None
    if "value" in leaf:
        value = leaf["value"]
        return PhaseValue(str(leaf["type"]), (), (value,) * 4 if _is_number(value) else ())
    statistics = tuple(leaf.get(name) for name in ("Max", "Min", "Mean", "Norm"))
    return PhaseValue(
        str(leaf["dtype"]).rpartition(".")[2],
        tuple(int(size) for size in leaf["shape"]),
        statistics if all(map(_is_number, statistics)) else (),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _parse_setting(value: Any) -> Setting:
    if isinstance(value, list):
        return tuple(map(_parse_setting, value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError("no setting")
