"""Distances between the step phases of two runs, by their statistics (docs/diagnosis.md#step-phases)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from probe_core.files.packaged import load_yaml
from probe_diagnosis.phases.phases_file import PhaseValue, Setting

Values = Mapping[str, "PhaseValue | None"]


@cache
def load_limits() -> dict[str, Any]:
    """Return the content of ``limits.yaml``."""
    return dict(load_yaml(__package__, "limits.yaml"))


def get_noise(dtype: str) -> float:
    """Return the relative difference that rounding explains in a dtype; 0 for integers."""
    count = load_limits()["noise"].get("float64" if dtype == "float" else dtype)
    return float(count * 2.0 ** load_limits()["eps"]["float64" if dtype == "float" else dtype]) if count else 0.0


@dataclass(frozen=True, slots=True)
class PhaseDistances:
    """The distances between two sets of values of one phase.

    Attributes:
        multiples: The distance of each value that could be compared, as a multiple of rounding.
        target: The values of the target.
        golden: The values of the golden.
    """

    multiples: Mapping[str, float]
    target: Values
    golden: Values

    @property
    def largest_multiple(self) -> float:
        """The largest distance; 0 if nothing was compared."""
        return max(self.multiples.values(), default=0.0)

    def find_differing(self, earlier_multiple: float) -> list[str]:
        """Return the values that differ by more than rounding and earlier differences explain, the largest first.

        Args:
            earlier_multiple: The largest distance of the values that they depend on, as a multiple of rounding.
        """
        return self.find_exceeding(load_limits()["jump"] * max(1.0, earlier_multiple))

    def find_exceeding(self, min_multiple: float) -> list[str]:
        """Return the values that differ by more than ``min_multiple`` times rounding, the largest difference first."""
        names = (name for name, multiple in self.multiples.items() if multiple > min_multiple)
        return sorted(names, key=lambda name: -self.multiples[name])

    def format_value(self, name: str) -> str:
        """Return both norms of a value as text, or its first statistic that differs, or its only element."""
        target, golden = self.target[name], self.golden[name]
        assert target is not None and golden is not None
        if math.prod(target.shape) == math.prod(golden.shape) == 1:
            return f"{name}: {target.statistics[0]:.6g} against {golden.statistics[0]:.6g}"
        statistics = zip(("max", "min", "mean", "norm"), target.statistics, golden.statistics)
        differences = {statistic: (a, b) for statistic, a, b in statistics if a != b}
        statistic = "norm" if "norm" in differences else next(iter(differences), "norm")
        first, second = differences.get(statistic, (0.0, 0.0))
        return f"{name}: {statistic} {first:.6g} against {second:.6g}"


def measure_distances(
    target: Values, golden: Values, noise: float, *, has_common_scale: bool = False
) -> PhaseDistances:
    """Return the distances between the values of one phase.

    Args:
        target: The values of the target.
        golden: The values of the golden.
        noise: The coarsest rounding so far.
        has_common_scale: True to measure all values relative to the largest value of the golden, as gradients are: a
            gradient that is zero in theory contains only rounding.
    """
    sizes = [get_magnitude(value) for value in golden.values() if value is not None and value.statistics]
    least = max(sizes, default=0.0) if has_common_scale else 0.0
    multiples: dict[str, float] = {}
    for name, value in target.items():
        golden_value = golden.get(name)
        if value is None or golden_value is None or value.shape != golden_value.shape:
            continue
        if value.statistics and golden_value.statistics:
            multiples[name] = _measure_multiple(value, golden_value, noise, least)
    return PhaseDistances(multiples, target, golden)


def get_magnitude(value: PhaseValue) -> float:
    """Return the largest magnitude of a value; 0 if it was not measured."""
    return max(map(abs, value.statistics[:2]), default=0.0)


def _measure_multiple(target: PhaseValue, golden: PhaseValue, noise: float, least: float) -> float:
    """Return the largest difference of two sets of statistics, as a multiple of rounding.

    The mean and the norm of integers are sums in floating point, which devices round differently.
    """
    size, norm = get_magnitude(golden), golden.statistics[3]
    differences = [abs(a - b) for a, b in zip(target.statistics, golden.statistics)]
    if norm and size:
        differences[3] *= size / abs(norm)
    largest = max(differences)
    if not largest:
        return 0.0
    own_noise = max(get_noise(target.dtype), get_noise(golden.dtype))
    if not own_noise and target.statistics[:2] == golden.statistics[:2]:
        own_noise = get_noise("float32")
    allowed = max(own_noise, noise) if own_noise else 0.0
    scale = max(size, least)
    return largest / scale / allowed if scale and allowed else math.inf


def are_different(target: Setting, golden: Setting) -> bool:
    """Return True if two settings differ; floats by more than rounding in float32 explains."""
    if isinstance(target, tuple) and isinstance(golden, tuple) and len(target) == len(golden):
        return any(map(are_different, target, golden))
    numbers = (int, float)
    if isinstance(target, numbers) and isinstance(golden, numbers) and float in (type(target), type(golden)):
        return abs(target - golden) > get_noise("float32") * abs(golden)
    return target != golden


def format_names(names: Iterable[str], count: int = 2) -> str:
    """Return a few names, and the number of the others."""
    named = list(names)
    rest = len(named) - count
    return ", ".join(named[:count]) + (f" and {rest} more" if rest > 0 else "")
