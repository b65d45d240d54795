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
def limits() -> dict[str, Any]:
    """Return the content of ``limits.yaml``."""
    return dict(load_yaml(__package__, "limits.yaml"))


def get_noise(dtype: str) -> float:
    """Return the relative difference that rounding explains in a dtype; 0 for integers."""
    count = limits()["noise"].get("float64" if dtype == "float" else dtype)
    return float(count * 2.0 ** limits()["eps"]["float64" if dtype == "float" else dtype]) if count else 0.0


@dataclass(frozen=True, slots=True)
class PhaseDistances:
    """The distances between two sets of values of one phase.

    Attributes:
        times: For each value of both sides that could be compared its distance, as a multiple of rounding.
        target: The values of the target.
        golden: The values of the golden.
    """

    times: Mapping[str, float]
    target: Values
    golden: Values

    @property
    def worst(self) -> float:
        """The largest distance; 0 if nothing was compared."""
        return max(self.times.values(), default=0.0)

    def find_beyond(self, before: float) -> list[str]:
        """Return the values that differ beyond rounding, and far more than ``before``; the worst first.

        Args:
            before: The largest distance of all that they depend on.
        """
        return self.find_above(limits()["jump"] * max(1.0, before))

    def find_above(self, least: float) -> list[str]:
        """Return the values that differ by more than ``least`` multiples of rounding; the worst first."""
        return sorted((n for n, t in self.times.items() if t > least), key=lambda n: -self.times[n])

    def format_value(self, name: str) -> str:
        """Return both norms of a value as text."""
        target, golden = self.target[name], self.golden[name]
        assert target is not None and golden is not None
        statistics = zip(("max", "min", "mean", "norm"), target.statistics, golden.statistics)
        differences = {statistic: (a, b) for statistic, a, b in statistics if a != b}
        statistic = "norm" if "norm" in differences else next(iter(differences), "norm")
        first, second = differences.get(statistic, (0.0, 0.0))
        return f"{name}: {statistic} {first:.6g} against {second:.6g}"


def measure_distances(target: Values, golden: Values, noise: float, *, together: bool = False) -> PhaseDistances:
    """Return the distances between the values of one phase.

    Args:
        target: The values of the target.
        golden: The values of the golden.
        noise: The coarsest rounding so far.
        together: True to measure all values against the largest of the golden, as gradients are: one that is
            zero in theory contains only rounding.
    """
    sizes = [get_magnitude(value) for value in golden.values() if value is not None and value.statistics]
    least = max(sizes, default=0.0) if together else 0.0
    times: dict[str, float] = {}
    for name, value in target.items():
        golden_value = golden.get(name)
        if value is None or golden_value is None or value.shape != golden_value.shape:
            continue
        if value.statistics and golden_value.statistics:
            times[name] = _measure_times(value, golden_value, noise, least)
    return PhaseDistances(times, target, golden)


def get_magnitude(value: PhaseValue) -> float:
    """Return the largest magnitude of a value; 0 if it was not measured."""
    return max(map(abs, value.statistics[:2]), default=0.0)


def _measure_times(target: PhaseValue, golden: PhaseValue, noise: float, least: float) -> float:
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
