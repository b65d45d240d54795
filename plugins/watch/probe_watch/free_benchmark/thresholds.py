"""The thresholds of free_benchmark, read from ``thresholds.yaml``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml
from probe_watch.free_benchmark.settings import ChangeMode, Stage


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """The limits of the comparison with the CPU for one dtype.

    Attributes:
        relative: The largest relative error of elements that are not small.
        absolute: The largest absolute error of small elements.
        small: The magnitude below which an element of the device is small.
        balance: The largest magnitude of the mean signed error.
    """

    relative: float
    absolute: float
    small: float
    balance: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All thresholds; dtypes are named without ``torch.``.

    Attributes:
        noise: The size of the noise, by dtype; a dtype that is missing is not perturbed.
        other_noise: The noise from which the floor of other dtypes follows.
        backward_floor: The smallest magnitude in the comparison of gradients.
        ratio: The largest consistent ratio, by dtype.
        other_ratio: The same for other dtypes.
        unchanged_ratio: The same if nothing was changed.
        cpu: The limits of the comparison with the CPU, by dtype; other dtypes have those of float32.
        preheat_ratio: The ratio that preheating begins with.
        preheat_factor: The factor by which preheating changes the distance of the ratio from 1.
        number_relative: The largest relative difference of numbers that are no tensors.
        number_absolute: The absolute difference that is added to it.
    """

    noise: Mapping[str, float]
    other_noise: float
    backward_floor: float
    ratio: Mapping[str, float]
    other_ratio: float
    unchanged_ratio: float
    cpu: Mapping[str, CpuLimits]
    preheat_ratio: float
    preheat_factor: float
    number_relative: float
    number_absolute: float

    def get_ratio_limit(self, mode: ChangeMode, dtype: str) -> float:
        """Return the largest ratio of a consistent result."""
        if mode is ChangeMode.NO_CHANGE:
            return self.unchanged_ratio
        return self.ratio.get(dtype, self.other_ratio)

    def get_floor(self, stage: Stage, dtype: str) -> float:
        """Return the smallest magnitude that is distinguished from 0, for a changed result of ``dtype``."""
        if stage is Stage.BACKWARD:
            return self.backward_floor
        return math.sqrt(self.noise.get(dtype, self.other_noise))

    def get_cpu_limits(self, dtype: str) -> CpuLimits:
        """Return the limits of the comparison with the CPU for a result of ``dtype`` on the device."""
        return self.cpu.get(dtype) or self.cpu["float32"]


@cache
def load_thresholds() -> Thresholds:
    """Return the thresholds of this package."""
    fields = load_yaml(__package__, "thresholds.yaml")
    cpu = {dtype: CpuLimits(**limits) for dtype, limits in fields["cpu"].items()}
    return Thresholds(**{**fields, "cpu": cpu})
