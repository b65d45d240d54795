"""The band that a series of losses, norms or sizes is expected to stay in (docs/watch.md#the-band)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from probe_core.files.packaged import load_yaml

Values = NDArray[np.float64]

_SURELY_INSIDE = 1 - 1e-9
"""Share of the lowest possible limit, which covers the rounding of its logarithm."""


@dataclass(frozen=True, slots=True)
class BandRule:
    """The numbers of the rule; ``band.yaml`` holds them with their sources.

    Attributes:
        level_steps: Number of values whose median is the present level.
        window_steps: Number of distances from the level that the width is derived from.
        least_steps: Number of distances that are needed before a value is judged.
        excess_factor: Multiples of the largest distance upward.
        mad_factor: Multiples of the median absolute distance.
        smallest_rise: Smallest factor over the level that is outside, by the kind of the series.
        setting_factor: Smallest factor by which a setting must change to be stated.
    """

    level_steps: int
    window_steps: int
    least_steps: int
    excess_factor: float
    mad_factor: float
    smallest_rise: dict[str, float]
    setting_factor: float

    @property
    def memory_steps(self) -> int:
        """Number of past values that a limit depends on."""
        return self.level_steps + self.window_steps


@cache
def load_band_rule() -> BandRule:
    """Return the rule in ``band.yaml``."""
    return BandRule(**load_yaml(__package__, "band.yaml"))


@dataclass(frozen=True, slots=True)
class Limit:
    """The upper end of a band.

    Attributes:
        level: The median of the last values.
        highest: The largest value inside the band.
    """

    level: float
    highest: float


def find_limit(values: Values, smallest_rise: float, rule: BandRule) -> Limit | None:
    """Return the upper end of the band for the value that follows ``values``.

    Distances are differences of logarithms if all values are positive, otherwise differences. Only finite
    values may be passed. The limit of ``-0.0`` and of zeros is that of numbers that are not positive.

    Args:
        values: The past values, oldest first; the last ``rule.memory_steps`` are used.
        smallest_rise: The smallest factor over the level that is outside.
        rule: The numbers of the rule.

    Returns:
        None if there are too few values, or if values that are not all positive have no spread.
    """
    values = values[-rule.memory_steps :]
    if len(values) < rule.level_steps + rule.least_steps:
        return None
    is_logarithmic = bool((values > 0).all())
    scaled = np.log(values) if is_logarithmic else values
    levels = compute_median(np.lib.stride_tricks.sliding_window_view(scaled, rule.level_steps))
    distances = scaled[rule.level_steps :] - levels[:-1]
    level = float(levels[-1])
    deviations = np.abs(distances - compute_median(distances))
    width = max(rule.excess_factor * float(distances.max()), rule.mad_factor * float(compute_median(deviations)))
    if is_logarithmic:
        highest = level + max(width, math.log(smallest_rise))
        return Limit(math.exp(level), math.exp(highest) if highest < 700 else math.inf)
    if width <= 0:
        return None
    return Limit(level, level + max(width, (smallest_rise - 1) * float(compute_median(np.abs(values)))))


def compute_median(values: Values) -> Values:
    """Return the median along the last axis; several times as fast as ``np.median`` for short arrays."""
    middle = values.shape[-1] // 2
    if values.shape[-1] % 2:
        return np.partition(values, middle, axis=-1)[..., middle]
    parts = np.partition(values, (middle - 1, middle), axis=-1)
    return (parts[..., middle - 1] + parts[..., middle]) / 2


class Band:
    """The band of a series that grows step by step.

    Values outside of the band are not added to it, unless so many follow each other that they are the new
    level: then the band begins anew.

    Args:
        smallest_rise: The smallest factor over the level that is outside.
        rule: The numbers of the rule.
    """

    def __init__(self, smallest_rise: float, rule: BandRule) -> None:
        self._smallest_rise = smallest_rise
        self._rule = rule
        self._values: deque[float] = deque(maxlen=rule.memory_steps)
        self._outside_count = 0

    def add(self, value: float) -> Limit | None:
        """Add a value; return the limit that it exceeds, or None if it is inside or cannot be judged.

        A value that is not finite is neither judged nor added.
        """
        if not math.isfinite(value):
            return None
        if self._values and 0 < value < _SURELY_INSIDE * self._smallest_rise * min(self._values):
            self._values.append(value)  # the level is at least the smallest value
            self._outside_count = 0
            return None
        limit = find_limit(np.array(self._values), self._smallest_rise, self._rule)
        if limit is None or value <= limit.highest:
            self._values.append(value)
            self._outside_count = 0
            return None
        self._outside_count += 1
        if self._outside_count >= self._rule.least_steps:
            self._values.clear()
            self._outside_count = 0
        return limit
