"""The values of each step that decide whether the last steps are written: losses and gradient norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from probe_recording.keeping.readings import SCALED_PHASES, TensorStatistics, iterate_statistics
from probe_recording.step_facts.step_phases import StepPhase, StepPhases
from probe_recording.values.leaves import Tree

MAX_OBSERVED_LOSSES = 8
"""Largest number of losses that are observed one by one. If a step has more, their mean is observed."""


class SeriesKind(Enum):
    """The kind of an observed value; its value is the name in ``band.yaml``."""

    LOSS = "loss"
    GRADIENT_NORM = "gradient_norm"


@dataclass(frozen=True, slots=True)
class WatchedValue:
    """An observed value of a step.

    Attributes:
        kind: Its kind.
        number: Number of earlier values of this kind in the step, such as the second of two losses.
        value: The value; nan and infinities as they are.
    """

    kind: SeriesKind
    number: int
    value: float


def collect_watched_values(step_phases: StepPhases | None, passed_losses: Sequence[Tree]) -> list[WatchedValue]:
    """Return the losses and gradient norms of a step.

    Args:
        step_phases: The phases of the step; None if there are none.
        passed_losses: The losses that the script passed; if there are any, those of backward passes do not
            count.
    """
    phases = step_phases.phases if step_phases is not None else []
    losses = [mean for tree in passed_losses if (mean := _find_mean(tree)) is not None] or _list_losses(phases)
    if len(losses) > MAX_OBSERVED_LOSSES:
        losses = [math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.nan]
    norms = _list_gradient_norms(phases)[:MAX_OBSERVED_LOSSES]
    return [
        *(WatchedValue(SeriesKind.LOSS, number, value) for number, value in enumerate(losses)),
        *(WatchedValue(SeriesKind.GRADIENT_NORM, number, value) for number, value in enumerate(norms)),
    ]


def has_scaler(step_phases: Sequence[StepPhase]) -> bool:
    """Return True if a gradient scaler unscaled gradients in the step."""
    return any(step_phase.name == "unscaled" for step_phase in step_phases)


def _find_mean(tree: Tree) -> float | None:
    """Return the mean of the first tensor or number in a tree; None if there is none."""
    return next((measured.mean for measured in iterate_statistics(tree)), None)


def _list_losses(step_phases: Sequence[StepPhase]) -> list[float]:
    """Return the loss of each backward pass, divided by the gradient scale that is in force."""
    losses = []
    scale = 1.0
    for step_phase in reversed(step_phases):  # the scale follows the backward passes that it belongs to
        if step_phase.name == "unscaled":
            scale = _find_mean(step_phase.values.get("scale")) or 1.0
        elif step_phase.name == "loss":
            means = [mean for tree in step_phase.values.values() if (mean := _find_mean(tree)) is not None]
            if means:
                losses.append(sum(means) / scale)
    return losses[::-1]


def _list_gradient_norms(step_phases: Sequence[StepPhase]) -> list[float]:
    """Return the norm of all gradients of each optimizer, preferably the norm before clipping.

    A gradient scaler skips steps whose gradients overflow; their norms are left out.
    """
    is_scaled = has_scaler(step_phases)
    norms = [
        abs(measured.norm)
        for step_phase in step_phases
        if step_phase.name == "clipped"
        for measured in iterate_statistics(step_phase.values.get("total_norm"))
        if measured.norm is not None and (math.isfinite(measured.norm) or not is_scaled)
    ]
    if len(norms) > MAX_OBSERVED_LOSSES:  # each parameter is clipped by its own norm
        return [math.hypot(*norms)]
    if not norms:
        applied = [step_phase for step_phase in step_phases if step_phase.name == "applied"]
        if not applied and not is_scaled:
            applied = _find_last_gradients(step_phases)
        norms = [norm for step_phase in applied if (norm := _compute_norm(step_phase)) is not None]
    return norms


def _find_last_gradients(step_phases: Sequence[StepPhase]) -> list[StepPhase]:
    """Return the gradients of the last backward pass of a step in which no optimizer stepped."""
    names = {step_phase.name for step_phase in step_phases}
    last_name = next((name for name in reversed(SCALED_PHASES) if name in names), "")
    return [step_phase for step_phase in step_phases if step_phase.name == last_name][-1:]


def _compute_norm(step_phase: StepPhase) -> float | None:
    """Return the norm of all gradients of a phase; nan if one is not finite, None if there are none."""
    parts: list[TensorStatistics] = [part for tree in step_phase.values.values() for part in iterate_statistics(tree)]
    if not parts:
        return None
    if any(math.isinf(part.size) or part.low == -math.inf for part in parts):
        return math.nan
    return math.hypot(*(part.norm for part in parts if part.norm is not None))
