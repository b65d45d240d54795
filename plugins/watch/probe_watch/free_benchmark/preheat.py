"""Preheating: thresholds learned in the first steps (docs/free-benchmark.md#preheating)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from probe_watch.free_benchmark.settings import BenchmarkSettings, ChangeMode
from probe_watch.free_benchmark.thresholds import Thresholds


class PreheatRole(Enum):
    """The part of a call in preheating."""

    COUNTED = "counted"
    SAMPLE = "sample"
    COMPARED = "compared"


@dataclass(slots=True)
class _Samples:
    """The ratios of one dtype of one API in one step.

    Attributes:
        consistent: Ratios of results that agree with the CPU.
        inconsistent: Ratios of results that do not.
    """

    consistent: list[float] = field(default_factory=list)
    inconsistent: list[float] = field(default_factory=list)


class Preheat:
    """The schedule of samples and the thresholds learned from them.

    The first step counts calls. In each later step of preheating some calls of each API are samples, and the
    thresholds of the API are adjusted after the last one.

    Args:
        settings: The settings of the task.
        thresholds: The thresholds, below which no learned threshold falls.
    """

    def __init__(self, settings: BenchmarkSettings, thresholds: Thresholds) -> None:
        self._settings = settings
        self._thresholds = thresholds
        self._totals: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._missing: dict[str, int] = {}
        self._samples: dict[str, dict[str, _Samples]] = {}
        self._learned: dict[tuple[str, str], float] = {}
        self._ended: set[str] = set()
        self._step = 0

    def take(self, api: str) -> PreheatRole:
        """Count a call of ``api`` that can be repeated, and return its part."""
        self._calls[api] += 1
        if not self._step:
            return PreheatRole.COUNTED
        if self._step >= self._settings.preheat_step or api in self._ended or not self._totals[api]:
            return PreheatRole.COMPARED
        numbers = self._list_sample_numbers(api)
        self._missing.setdefault(api, len(numbers))
        return PreheatRole.SAMPLE if self._calls[api] in numbers else PreheatRole.COMPARED

    def _list_sample_numbers(self, api: str) -> set[int]:
        """Return the numbers of the calls, from 1, that are samples of this step."""
        total, steps = self._totals[api], self._settings.preheat_step
        count = min(math.ceil(total / steps), self._settings.max_sample)
        return {(steps * i + self._step) % total or total for i in range(count)}

    def limit(self, mode: ChangeMode, api: str, dtype: str) -> float:
        """Return the largest consistent ratio of an API's results of a dtype."""
        learned = self._learned.get((api, dtype), self._thresholds.preheat_ratio)
        return max(learned, self._thresholds.get_ratio_limit(mode, dtype))

    def add(self, api: str, dtype: str, ratio: float, *, agrees_with_cpu: bool) -> None:
        """Add the ratio of a sample.

        Args:
            api: The name of the API.
            dtype: The dtype of the result.
            ratio: The ratio of the comparison on the device.
            agrees_with_cpu: True if the result agrees with that of the CPU.
        """
        samples = self._samples.setdefault(api, {}).setdefault(dtype, _Samples())
        (samples.consistent if agrees_with_cpu else samples.inconsistent).append(ratio)

    def end_sample(self, mode: ChangeMode, api: str) -> None:
        """Adjust the thresholds of an API after its last sample in the step."""
        self._missing[api] = self._missing.get(api, 1) - 1
        if self._missing[api] <= 0:
            for dtype, samples in self._samples.pop(api, {}).items():
                self._adjust(mode, api, dtype, samples)

    def end_step(self) -> None:
        """End the step; samples of APIs that were called less often than before are dropped."""
        if not self._step:
            self._totals = self._calls
        self._calls = Counter()
        self._samples.clear()
        self._missing.clear()
        self._step += 1

    def _adjust(self, mode: ChangeMode, api: str, dtype: str, samples: _Samples) -> None:
        limit = self.limit(mode, api, dtype)
        largest = max(samples.consistent, default=-math.inf)
        if samples.inconsistent:
            least = min(samples.inconsistent)
            if least <= largest:
                return  # no ratio separates the samples
            limit = min(least, limit)
            self._ended.add(api)
        else:
            factor = self._thresholds.preheat_factor
            distance = limit - 1
            limit = 1 + (distance * factor if largest > limit else distance / factor)
        self._learned[api, dtype] = max(limit, self._thresholds.get_ratio_limit(mode, dtype))
