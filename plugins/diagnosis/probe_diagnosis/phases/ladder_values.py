"""Distances between the values of two ladders, by their statistics (docs/diagnosis.md#the-ladder)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from probe_core.files.packaged import load_yaml
from probe_diagnosis.phases.ladder_file import Measured, Setting

Values = Mapping[str, "Measured | None"]


@cache
def limits() -> dict[str, Any]:
    """Return the content of ``ladder.yaml``."""
    return dict(load_yaml(__package__, "ladder.yaml"))


def noise_of(dtype: str) -> float:
    """Return the relative difference that rounding explains in a dtype; 0 for integers."""
    count = limits()["noise"].get("float64" if dtype == "float" else dtype)
    return float(count * 2.0 ** limits()["eps"]["float64" if dtype == "float" else dtype]) if count else 0.0


@dataclass(frozen=True, slots=True)
class Distances:
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

    def beyond(self, before: float) -> list[str]:
        """Return the values that differ beyond rounding, and far more than ``before``; the worst first.

        Args:
            before: The largest distance of all that they depend on.
        """
        return self.above(limits()["jump"] * max(1.0, before))

    def above(self, least: float) -> list[str]:
        """Return the values that differ by more than ``least`` multiples of rounding; the worst first."""
        return sorted((n for n, t in self.times.items() if t > least), key=lambda n: -self.times[n])

    def shown(self, name: str) -> str:
        """Return both norms of a value as text."""
        target, golden = self.target[name], self.golden[name]
        assert target is not None and golden is not None
        statistics = zip(("max", "min", "mean", "norm"), target.statistics, golden.statistics)
        apart = {what: (a, b) for what, a, b in statistics if a != b}
        what = "norm" if "norm" in apart else next(iter(apart), "norm")
        first, second = apart.get(what, (0.0, 0.0))
        return f"{name}: {what} {first:.6g} against {second:.6g}"


def distances(target: Values, golden: Values, noise: float, *, together: bool = False) -> Distances:
    """Return the distances between the values of one phase.

    Args:
        target: The values of the target.
        golden: The values of the golden.
        noise: The coarsest rounding so far.
        together: True to measure all values against the largest of the golden, as gradients are: one that is
            zero in theory holds nothing but rounding.
    """
    sizes = [size_of(value) for value in golden.values() if value is not None and value.statistics]
    least = max(sizes, default=0.0) if together else 0.0
    times: dict[str, float] = {}
    for name, value in target.items():
        other = golden.get(name)
        if value is None or other is None or value.shape != other.shape:
            continue
        if value.statistics and other.statistics:
            times[name] = _times(value, other, noise, least)
    return Distances(times, target, golden)


def size_of(value: Measured) -> float:
    """Return the largest magnitude of a value; 0 if it was not measured."""
    return max(map(abs, value.statistics[:2]), default=0.0)


def _times(target: Measured, golden: Measured, noise: float, least: float) -> float:
    """Return the largest difference of two sets of statistics, as a multiple of rounding.

    The mean and the norm of integers are sums in floating point, which devices round differently.
    """
    size, norm = size_of(golden), golden.statistics[3]
    apart = [abs(a - b) for a, b in zip(target.statistics, golden.statistics)]
    if norm and size:
        apart[3] *= size / abs(norm)
    largest = max(apart)
    if not largest:
        return 0.0
    own = max(noise_of(target.dtype), noise_of(golden.dtype))
    if not own and target.statistics[:2] == golden.statistics[:2]:
        own = noise_of("float32")
    allowed = max(own, noise) if own else 0.0
    scale = max(size, least)
    return largest / scale / allowed if scale and allowed else math.inf


def differ(target: Setting, golden: Setting) -> bool:
    """Return True if two settings differ; floats by more than rounding in float32 explains."""
    if isinstance(target, tuple) and isinstance(golden, tuple) and len(target) == len(golden):
        return any(map(differ, target, golden))
    numbers = (int, float)
    if isinstance(target, numbers) and isinstance(golden, numbers) and float in (type(target), type(golden)):
        return abs(target - golden) > noise_of("float32") * abs(golden)
    return target != golden


def some(names: Iterable[str], shown: int = 2) -> str:
    """Return a few names, and the number of the others."""
    named = list(names)
    rest = len(named) - shown
    return ", ".join(named[:shown]) + (f" and {rest} more" if rest > 0 else "")
