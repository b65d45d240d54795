"""The option ``--resumed``, and the step of the golden with which the target begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.model.plan import Plan
from probe_diagnosis.conditions.file import read_conditions
from probe_diagnosis.phases.phases_file import PhasesFile, PhaseValue, read_phases

_STEP = re.compile(r"step(\d{1,9})")

ALIGN = "align"
"""Name of the matcher that pairs calls by what they do."""

STEP_HINT = "Give the step of the golden with which the target begins: --resumed-step N."


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """Return the plan with ``--resumed``, whose calls are aligned: a resumed script makes more of them.

    The step of the golden with which the target begins is the one whose parameters, batch and optimizer state
    before the step agree with most of those of the target's first step.

    Args:
        plan: The plan without it.
        values: The values of the options.
        asked: The names of the options that the user gave.

    Raises:
        UserError: The runs contain no steps, or no step of the golden resembles the target's first step.
    """
    targets, goldens = _list_steps(plan.target), _list_steps(plan.golden)
    if not targets or not goldens:
        path = plan.golden if targets else plan.target
        raise UserError(
            f"--resumed compares whole runs, but {path} is not the root of a dump with step directories.",
            "Give the directory that holds step0, step1, …",
        )
    first = min(targets)
    step = values.get("step")
    if step is not None:
        names = {str(number): number for number in goldens}
        if step not in names:
            raise UserError(f"{plan.golden} has no step {step!r:.40}.", "Choose one of its steps:", [*names])
        begins_at = names[step]
    else:
        begins_at = _find_best_step(targets[first], goldens, first)
    plan = plan.with_options(resumed=first, step_offset=begins_at - first)
    return replace(plan, matcher=plan.matcher or ALIGN)


def _list_steps(root: Path) -> dict[int, Path]:
    """Return the step directories of a run by their numbers."""
    try:
        paths_by_match = {_STEP.fullmatch(path.name): path for path in root.iterdir() if path.is_dir()}
    except OSError:
        return {}
    return {int(match[1]): path for match, path in paths_by_match.items() if match}


def _find_best_step(target: Path, goldens: Mapping[int, Path], first: int) -> int:
    """Return the step of the golden that resembles a step of the target most.

    Args:
        target: The directory of the target's first step.
        goldens: The directories of the golden's steps.
        first: The number of the target's first step, which decides between steps that resemble it equally.

    Raises:
        UserError: None resembles it.
    """
    target_features = _read_features(target)
    shares = {number: _measure_share(target_features, _read_features(path)) for number, path in goldens.items()}
    best = max(shares.values(), default=0.0)
    if not best:
        raise UserError(
            f"No step of the golden begins with values of {target}, so the step at which the target was "
            "resumed is not known.",
            STEP_HINT,
        )
    candidates = sorted(number for number, share in shares.items() if share == best)
    return first if first in candidates else candidates[0]


def _read_features(step: Path) -> dict[str, object]:
    """Return what a step begins with, by name: statistics of parameters and of states, and the batch."""
    try:
        rank = min(path for path in step.iterdir() if path.is_dir())
    except (OSError, ValueError):
        return {}
    step_phases = read_phases(rank)
    features: dict[str, object] = dict(_list_phase_values(step_phases)) if step_phases is not None else {}
    conditions = read_conditions(rank)
    if conditions is not None:
        features |= {f"batch {name}": value for name, value in conditions.batch.items()}
    return features


def _list_phase_values(step_phases: PhasesFile) -> list[tuple[str, object]]:
    phases = ("parameters_before", "state_before")
    return [
        (f"{phase} {name}", value.statistics)
        for phase in phases
        for step_phase in step_phases.find_phases(phase)
        for name, value in step_phase.values.items()
        if isinstance(value, PhaseValue) and value.statistics
    ]


def _measure_share(target: Mapping[str, object], golden: Mapping[str, object]) -> float:
    """Return the share of the target's values that the golden has as well."""
    if not target:
        return 0.0
    return sum(golden.get(name) == value for name, value in target.items()) / len(target)
