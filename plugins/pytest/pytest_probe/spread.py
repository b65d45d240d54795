"""The spread of a test's values: how far they differ between repetitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch

from pytest_probe.limits import load_limits
from pytest_probe.step import VALUES, Step, Tree, ValuePath, map_tensors
from pytest_probe.value_text import TensorValue

SOURCES = ("input_args", "input_kwargs", "input", "parameters")
"""The fields of a call that contain what the call receives."""


def measure_spreads(
    golden: Sequence[Step], repetitions: Sequence[Sequence[Step]], rounded: Sequence[Sequence[Step]] = ()
) -> list[dict[str, float]]:
    """Return for each step the largest relative difference of each value, by its checksum, if it is above its eps.

    Data that differ by rounding show which values rounding alone determines, such as a gradient that is zero in
    theory. They count for these values and for the values that are computed from them.

    Args:
        golden: The steps of the golden run.
        repetitions: The steps of other runs of the test with the same data.
        rounded: The steps of runs with data that differ by rounding.
    """
    spreads = []
    sensitive_values = _SensitiveValues()
    for number, step in enumerate(golden):
        distances = _measure_distances(step, [run[number] for run in repetitions])
        rounded_distances = _measure_distances(step, [run[number] for run in rounded])
        for checksum in sensitive_values.add_step(step, rounded_distances):
            distances[checksum] = max(rounded_distances[checksum], distances.get(checksum, 0.0))
        spreads.append({checksum: round_up(distances[checksum]) for checksum in sorted(distances)})
    return spreads


def _measure_distances(golden: Step, repetitions: Sequence[Step]) -> dict[str, float]:
    """Return the largest distance between a value and its repetitions, by its checksum, if it is above its eps."""
    distances: dict[str, float] = {}
    values = golden.tensors()
    for repetition in repetitions:
        repeated_values = repetition.tensors()
        for path, value in values.items():
            repeated = repeated_values.get(path)
            if value.checksum is None or repeated is None or repeated.shape != value.shape:
                continue
            distance = compute_distance(value, repeated)
            if distance > max(_get_least_spread(value.dtype), distances.get(value.checksum, 0.0)):
                distances[value.checksum] = distance
    return distances


class _SensitiveValues:
    """The values that rounding alone determines, and the values computed from them, by their checksums."""

    def __init__(self) -> None:
        self._checksums: set[str] = set()
        self._seen: set[str] = set()

    def add_step(self, step: Step, distances: Mapping[str, float]) -> set[str]:
        """Return the sensitive values of the next step that vary with rounded data.

        Args:
            step: The step.
            distances: The distances between the values of the step and those of rounded data.
        """
        carries_state = bool(self._checksums)
        self._checksums |= {checksum for checksum, size in distances.items() if size > load_limits().max_spread}
        for call in step.calls.values():
            fields = call.fields if isinstance(call.fields, dict) else {"": call.fields}
            sources = _list_checksums([tree for name, tree in fields.items() if name in SOURCES])
            results = _list_checksums([tree for name, tree in fields.items() if name not in SOURCES])
            if carries_state:  # a call of an earlier step may have changed the value, such as a running mean
                self._checksums |= sources - self._seen
            if not self._checksums.isdisjoint(sources):
                self._checksums |= results
            self._seen |= sources | results
        self._add_parameters(step, distances.keys())
        return self._checksums & distances.keys()

    def _add_parameters(self, step: Step, varying: Set[str]) -> None:
        """Add the varying parameters and optimizer states that have a sensitive gradient."""
        parameters: list[str] = []
        for phase in step.phases:
            for name, tree in phase[VALUES].items():
                checksums = _list_checksums(tree)
                if not self._checksums.isdisjoint(checksums):
                    parameters.append(name)
                elif any(f"{name}.".startswith(f"{parameter}.") for parameter in parameters):
                    self._checksums |= checksums & varying


def _list_checksums(tree: Tree) -> set[str]:
    checksums: set[str] = set()
    map_tensors(tree, lambda _, value: checksums.add(value.checksum) if value.checksum is not None else None)
    return checksums


def compute_distance(first: TensorValue, second: TensorValue) -> float:
    """Return the largest difference of statistics, divided by the largest element or, for norms, by the norm."""
    distance = 0.0
    scales = [first.scale] * 3 + [abs((first.statistics or (0.0,))[-1] or 0.0)]
    for number, reference, scale in zip(first.statistics or (), second.statistics or (), scales):
        if number is None or reference is None or not scale:
            continue
        if math.isfinite(number) and math.isfinite(reference):
            distance = max(distance, abs(number - reference) / scale)
    return distance


def spread_step(step: Step, spread: Mapping[str, float]) -> Step:
    """Return a step whose values differ from those of ``step`` by their spread."""

    def move(_: ValuePath, value: TensorValue) -> TensorValue:
        share = spread.get(value.checksum or "", 0.0)
        largest, *others = value.statistics or (None,)
        if not share or largest is None or not math.isfinite(value.scale):
            return value
        size = share * value.scale
        moved: Any = (largest + (math.ceil(size) if isinstance(largest, int) else size), *others)
        return replace(value, statistics=moved)

    return step.replace_tensors(move)


def list_undetermined(step: Step, spread: Mapping[str, float]) -> set[ValuePath]:
    """Return the paths of values that are not compared, because rounding alone changes them too much."""
    limit = load_limits().max_spread
    return {path for path, value in step.tensors().items() if spread.get(value.checksum or "", 0.0) > limit}


def blank_values(step: Step, paths: Set[ValuePath]) -> Step:
    """Return a step without the statistics of the values at these paths."""
    return step.replace_tensors(lambda path, value: replace(value, statistics=None) if path in paths else value)


def round_up(size: float) -> float:
    """Return a number with two digits that is at least ``size``."""
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return float(f"{math.ceil(size / unit) * unit:.2g}")


def _get_least_spread(dtype: str) -> float:
    """Return the smallest spread of a dtype that is kept; 0 if its numbers are not rounded."""
    kind = getattr(torch, dtype, None)
    eps = torch.finfo(kind).eps if kind is not None and kind.is_floating_point else 0.0
    return min(load_limits().min_spread * eps, load_limits().max_spread)
