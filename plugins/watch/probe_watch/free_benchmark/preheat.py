"""Preheating: thresholds learned in the first steps (docs/watch.md#free-benchmark-preheat)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from probe_watch.free_benchmark.settings import Mode, Settings
from probe_watch.free_benchmark.thresholds import Thresholds


@dataclass(slots=True)
class _Samples:
    """The ratios of one API and dtype in one step.

    Attributes:
        consistent: Ratios of results that agree with the CPU.
        inconsistent: Ratios of results that do not.
    """

    consistent: list[float] = field(default_factory=list)
    inconsistent: list[float] = field(default_factory=list)


class Preheat:
    """The schedule of samples and the thresholds learned from them.

    Args:
        settings: The settings of the task.
        thresholds: The thresholds, below which no learned threshold falls.
    """

    def __init__(self, settings: Settings, thresholds: Thresholds) -> None:
        self._settings = settings
        self._thresholds = thresholds
        self._totals: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._learned: dict[tuple[str, str], float] = {}
        self._ended: set[str] = set()
        self._samples: dict[tuple[str, str], _Samples] = {}
        self._steps = 0

    def is_over(self, api: str) -> bool:
        """Return True once all calls of an API are compared with the learned thresholds."""
        return self._steps >= self._settings.preheat_step or api in self._ended

    def takes(self, api: str) -> bool:
        """Count a call of ``api`` and return True if it is a sample of this step."""
        self._calls[api] += 1
        total = self._totals[api]
        if not self._steps or not total:
            return False
        steps = self._settings.preheat_step
        count = min(math.ceil(total / steps), self._settings.max_sample)
        numbers = {(steps * i + self._steps) % total or total for i in range(count)}
        return self._calls[api] in numbers

    def limit(self, mode: Mode, api: str, dtype: str) -> float:
        """Return the largest consistent ratio of an API's results of a dtype."""
        default = self._thresholds.ratio_limit(mode, dtype)
        return max(self._learned.get((api, dtype), self._thresholds.preheat_ratio), default)

    def add(self, api: str, dtype: str, ratio: float, *, agrees_with_cpu: bool) -> None:
        """Add a sample.

        Args:
            api: The name of the API.
            dtype: The dtype of the result.
            ratio: The ratio of the comparison on the device.
            agrees_with_cpu: True if the result agrees with that of the CPU.
        """
        samples = self._samples.setdefault((api, dtype), _Samples())
        (samples.consistent if agrees_with_cpu else samples.inconsistent).append(ratio)

    def end_step(self, mode: Mode) -> None:
        """Learn from the samples of the step; the first step only counts calls."""
        if not self._steps:
            self._totals = self._calls
        ended = set(self._ended)
        for key, samples in self._samples.items():
            if key[0] not in ended:
                self._adjust(mode, key, samples)
        self._samples.clear()
        self._calls = Counter()
        self._steps += 1

    def _adjust(self, mode: Mode, key: tuple[str, str], samples: _Samples) -> None:
        limit = self.limit(mode, *key)
        least = min(samples.inconsistent, default=math.inf)
        largest = max(samples.consistent, default=-math.inf)
        if samples.inconsistent:
            if samples.consistent and least <= largest:
                return  # no ratio separates the samples
            limit = min(least, limit)
            self._ended.add(key[0])
        else:
            factor = self._thresholds.preheat_factor
            distance = limit - 1
            limit = 1 + (distance * factor if largest > limit else distance / factor)
        self._learned[key] = max(limit, self._thresholds.ratio_limit(mode, key[1]))
