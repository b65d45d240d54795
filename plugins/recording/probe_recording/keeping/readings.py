"""The quantities of a step: how large the values were, in the order in which they follow from each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from probe_recording.step_facts.step_phases import StepPhase, StepPhases
from probe_recording.values.leaves import Plain, StoredLeaf, TensorLeaf, Tree


class QuantityKind(Enum):
    """The part of a training step that a quantity belongs to, in the order of a step.

    The state of the optimizer and the parameters are those that the step began with.
    """

    OPTIMIZER_STATE = "optimizer_state"
    PARAMETER = "parameter"
    DATA = "data"
    ACTIVATION = "activation"
    LOSS = "loss"
    GRADIENT = "gradient"


PHASES: Mapping[str, QuantityKind] = {
    "state_before": QuantityKind.OPTIMIZER_STATE,
    "parameters_before": QuantityKind.PARAMETER,
    "frozen": QuantityKind.PARAMETER,
    "buffers_before": QuantityKind.PARAMETER,
    "batch": QuantityKind.DATA,
    "call": QuantityKind.ACTIVATION,
    "forward": QuantityKind.ACTIVATION,
    "loss": QuantityKind.LOSS,
    "gradient": QuantityKind.GRADIENT,
    "accumulated": QuantityKind.GRADIENT,
    "reduced": QuantityKind.GRADIENT,
    "applied": QuantityKind.GRADIENT,
}
"""Phases whose values are observed, in the order of their kinds; ``call`` stands for recorded calls."""

SCALED_PHASES = ("gradient", "accumulated", "reduced")
"""Phases whose gradients a gradient scaler may have scaled."""

CALL = "call"


class QuantityName(NamedTuple):
    """The identity of a quantity in all steps.

    Attributes:
        phase: The step phase, or ``call``.
        number: Number of earlier entries of this phase in the step.
        name: The name of the value.
    """

    phase: str
    number: int
    name: str

    @property
    def kind(self) -> QuantityKind:
        """The part of the step that it belongs to."""
        return PHASES[self.phase]


class QuantityReading(NamedTuple):
    """A quantity in one step.

    Attributes:
        name: Its identity.
        size: The root mean square of its elements; infinity if an element is nan or infinite; nan if nothing
            is known, as for an empty tensor. Elements of minus infinity mask others and give nan.
    """

    name: QuantityName
    size: float


class TensorStatistics(NamedTuple):
    """The statistics of one tensor.

    Attributes:
        element_count: Number of elements.
        high: The largest element; None if it is not known, as for the others.
        low: The smallest element.
        mean: The mean.
        norm: The L2 norm; of a tensor without dimensions its value, as records hold it.
    """

    element_count: int
    high: float | None
    low: float | None
    mean: float | None
    norm: float | None

    @property
    def size(self) -> float:
        """The root mean square, as ``Reading.size``."""
        if not self.element_count or self.high is None:
            return math.nan
        if not math.isfinite(self.high):
            return math.inf
        if self.norm is None or self.low == -math.inf:
            return math.nan
        return abs(self.norm) / math.sqrt(self.element_count) if math.isfinite(self.norm) else math.inf


_FLAGS = {"true": 1.0, "false": 0.0}
_LEAF = re.compile(r'"shape": \[([0-9, ]*)\], "Max": ([^,]+), "Min": ([^,]+), "Mean": ([^,]+), "Norm": ([^,}]+)')


def iterate_statistics(tree: Tree) -> Iterator[TensorStatistics]:
    """Yield the statistics of each tensor in a tree, or in its JSON."""
    if type(tree) is StoredLeaf:
        tree = tree.json
    if type(tree) is str:
        for shape, *numbers in _LEAF.findall(tree):
            count = math.prod(map(int, shape.split(","))) if shape else 1
            yield TensorStatistics(count, *map(_number, numbers))
    elif type(tree) is TensorLeaf:
        numbers = (None if value is None else float(value) for value in tree.statistics)
        yield TensorStatistics(math.prod(tree.shape), *numbers)
    elif type(tree) is Plain:
        value = tree.get("value")
        if isinstance(value, (int, float)):
            yield TensorStatistics(1, value, value, value, abs(value))
    elif type(tree) is list:
        for item in tree:
            yield from iterate_statistics(item)
    elif type(tree) is dict:
        for item in tree.values():
            yield from iterate_statistics(item)


def list_readings(step_phases: StepPhases | None, outputs: list[tuple[str, Tree]]) -> list[QuantityReading]:
    """Return the quantities of a step in the order of their kinds, and of time within each kind.

    Args:
        step_phases: The phases of the step; None if there are none.
        outputs: The name and the output of each recorded forward call, in the order of time.
    """
    phases: dict[str, list[StepPhase]] = {}
    for step_phase in step_phases.phases if step_phases is not None else ():
        phases.setdefault(step_phase.name, []).append(step_phase)
    readings: list[QuantityReading] = []
    for phase in PHASES:
        if phase == CALL:
            readings += _iterate_readings(phase, 0, [key for key, _ in outputs], [output for _, output in outputs])
        for step_phase in phases.get(phase, ()):
            readings += _iterate_readings(
                phase, step_phase.number, step_phase.values.keys(), step_phase.values.values()
            )
    return readings


def _iterate_readings(
    phase: str, number: int, names: Iterable[str], trees: Iterable[Tree]
) -> Iterator[QuantityReading]:
    for name, tree in zip(names, trees):
        if type(tree) is str:
            sizes = [_compute_size(shape, high, low, norm) for shape, high, low, _, norm in _LEAF.findall(tree)]
        else:
            sizes = [measured.size for measured in iterate_statistics(tree)]
        for place, size in enumerate(sizes):
            yield QuantityReading(QuantityName(phase, number, f"{name}.{place}" if place else name), size)


def _number(text: str) -> float | None:
    """Return a statistic as ``leaves.number`` writes it; None for one that does not exist."""
    return None if text == "null" else float(text) if text not in _FLAGS else _FLAGS[text]


def _compute_size(shape: str, high: str, low: str, norm: str) -> float:
    """Return ``Measured.size`` from the texts of a leaf, without the numbers that it does not need."""
    count = math.prod(map(int, shape.split(","))) if shape else 1
    if norm != "null" and low != "-Infinity":
        value = float(norm)
        if value - value == 0.0 and count:
            return abs(value) / math.sqrt(count)
    return TensorStatistics(count, _number(high), _number(low), None, _number(norm)).size
