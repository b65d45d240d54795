"""The spread of a test's values: how far they differ between repetitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from pytest_probe.step import Step
from pytest_probe.value_text import Statistics, TensorValue


def measure_spread(golden: Step, pairs: Sequence[tuple[Step, Step]]) -> dict[str, float]:
    """Return the largest relative difference of each value of the golden, by its checksum, if it is above its eps.

    Args:
        golden: The golden step.
        pairs: The steps of two numbers of threads, for each set of data.
    """
    values = dict(golden.tensors())
    spread: dict[str, float] = {}
    for first, second in pairs:
        others = dict(second.tensors())
        for path, value in first.tensors():
            base, other = values.get(path), others.get(path)
            if base is None or base.checksum is None or other is None or other.shape != value.shape:
                continue
            size = compute_distance(value, other)
            if size > max(_get_eps(base.dtype), spread.get(base.checksum, 0.0)):
                spread[base.checksum] = round_up(size)
    return dict(sorted(spread.items()))


def compute_distance(first: TensorValue, second: TensorValue) -> float:
    """Return the largest difference of statistics, divided by the largest element or, for norms, by the norm."""
    distance = 0.0
    scales = [first.scale] * 3 + [abs((first.statistics or (0.0,))[-1] or 0.0)]
    for one, another, scale in zip(first.statistics or (), second.statistics or (), scales):
        if one is not None and another is not None and math.isfinite(one) and math.isfinite(another) and scale:
            distance = max(distance, abs(one - another) / scale)
    return distance


def spread_step(step: Step, spread: Mapping[str, float]) -> Step:
    """Return a step whose values differ from those of ``step`` by their spread."""

    def move(value: TensorValue) -> TensorValue:
        size = spread.get(value.checksum or "", 0.0) * value.scale
        largest, *others = value.statistics or (None,)
        if not size or largest is None:
            return value
        moved: Statistics = (largest + (math.ceil(size) if isinstance(largest, int) else size), *others)  # type: ignore[assignment]
        return replace(value, statistics=moved)

    return step.replace_tensors(move)


def round_up(size: float) -> float:
    """Return a number with two digits that is at least ``size``."""
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return float(f"{math.ceil(size / unit) * unit:.2g}")


def _get_eps(dtype: str) -> float:
    kind = getattr(torch, dtype, None)
    return torch.finfo(kind).eps if kind is not None and kind.is_floating_point else 0.0
