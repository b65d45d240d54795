"""The spread of a test's values: how far they differ between repetitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch

from pytest_probe.limits import load_limits
from pytest_probe.step import Step, ValuePath
from pytest_probe.value_text import TensorValue


def measure_spread(golden: Step, repetitions: Sequence[Step], rounded: Sequence[Step] = ()) -> dict[str, float]:
    """Return the largest relative difference of each value of the golden, by its checksum, if it is above its eps.

    Args:
        golden: The golden step.
        repetitions: The same step of other runs of the test with the same data.
        rounded: The same step of runs with data that differ by rounding, which show the effect of rounding.
    """
    spread: dict[str, float] = {}
    for number, repetition in enumerate((*repetitions, *rounded)):
        is_rounded = number >= len(repetitions)
        repeated_values = repetition.tensors()
        for path, value in golden.tensors().items():
            repeated = repeated_values.get(path)
            if value.checksum is None or repeated is None or repeated.shape != value.shape:
                continue
            size = compute_distance(value, repeated)
            least = load_limits().max_spread if is_rounded else _get_least_spread(value.dtype)
            if size > max(least, spread.get(value.checksum, 0.0)):
                spread[value.checksum] = round_up(size)
    return dict(sorted(spread.items()))


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
