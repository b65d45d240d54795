"""The benchmark ratio method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from probe_precheck import Judgement, Message, Numbers, Output, Status

from probe_metrics.precheck.elements import Block, Elements, error_balance, share
from probe_metrics.precheck.inf_nan import InfNanTally
from probe_metrics.precheck.ratio import Ratio, ratio_of
from probe_metrics.precheck.thresholds import of_kind, thresholds
from probe_metrics.precheck.verdicts import COMPARED, over_the_limit, worst, zero_rate_message

INF_NAN = "inf_nan_error_rate"
INDICATORS = {
    "small_value_error_share": "small_value",
    "rmse": "rmse",
    "max_relative_error": "max_relative",
    "mean_relative_error": "mean_relative",
    "error_balance": "error_balance",
}
"""The columns of the details whose ratios are judged, and how the columns of ratio and verdict begin."""
UNCOUNTED = "error_balance"
"""Shown, and without weight in the verdict (9.5)."""


class BenchmarkRatio:
    """Errors no larger than those of the device to trust, both measured against a benchmark.

    Source: pre-check guide 9.2, 9.4, 9.5, decisions A1, A2, B7 to B10.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Share of wrong small values, RMSE (in the unit of the data), relative errors, error balance.

        The inf/nan error rate is there where an element is inf or nan.
        """
        elements = output.once(Elements)
        limits = thresholds(release, "benchmark_ratio")
        rtol = of_kind(thresholds(release, "absolute_threshold"), elements.kind)["rtol"]
        errors = _Errors(elements, of_kind(limits["small_domain"], elements.kind))
        tally = InfNanTally(elements, rtol)
        with np.errstate(all="ignore"):
            for block in elements.blocks():
                errors.add(block)
                tally.add(block)
        found = errors.columns(limits["rmse_correction"])
        found["error_balance"] = error_balance(elements)
        if tally.count:
            found[INF_NAN] = tally.rate
        return found

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Error where one of the four ratios that count is over its limit; a warning in between (seed).

        Numbers that are inf or nan must be so alike. A device that is worse in inf and nan fails (A1).
        """
        limits = thresholds(release, "benchmark_ratio")
        floor = of_kind(limits["floor"], npu.kind) if "floor" in limits else 0.0
        statuses: list[Status] = []
        cells: dict[str, float | str] = {}
        messages: list[Message] = []
        for key, prefix in INDICATORS.items():
            ratio = ratio_of(key, npu[key], gpu[key], limits.get("by_zero", math.inf), floor)
            status = _status(ratio, limits["ratio_limits"][key])
            cells[f"{prefix}_ratio"], cells[f"{prefix}_status"] = ratio.value, status
            messages += [ratio.message] if ratio.message else []
            if key != UNCOUNTED:
                statuses.append(status)
                if ratio.comparable and status is not Status.PASS:
                    messages.append(over_the_limit(COMPARED[f"{prefix}_ratio"], status))
        rate = npu.get(INF_NAN)
        if rate is not None:
            cells[INF_NAN] = rate
            cells["inf_nan_status"] = status = _inf_nan_status(rate, gpu.get(INF_NAN))
            statuses.append(status)
            if status is Status.ERROR:
                messages.append(zero_rate_message(INF_NAN, gpu))
        return Judgement(worst(statuses), cells, tuple(messages))


class _Errors:
    """What the blocks so far came to, by small values and normal ones."""

    def __init__(self, elements: Elements, small_domain: Mapping[str, float]) -> None:
        self._size, self._eps = elements.size, elements.eps
        self._small_value = elements.limit(small_domain["small_value"])
        self._atol = elements.limit(small_domain["small_value_atol"])
        self._small = self._small_wrong = self._masked = 0
        self._squares = self._relative = self._largest = 0.0

    def add(self, block: Block) -> None:
        """Add a block."""
        masked = block.magnitude <= self._small_value
        small = masked if block.special is None else masked & ~block.special
        self._small += int(np.count_nonzero(small))
        self._small_wrong += int(np.count_nonzero(block.error[small] > self._atol))
        if block.special is not None:
            masked = masked | block.special
        self._masked += int(np.count_nonzero(masked))
        error = block.error.copy()
        error[masked] = 0
        relative = error / (block.magnitude + self._eps)
        relative[masked] = 0  # inf / inf
        self._largest = max(self._largest, float(relative.max()))
        self._relative += float(np.add.reduce(relative))
        self._squares += float(np.add.reduce(np.multiply(error, error, out=error)))

    def columns(self, correction: float) -> dict[str, Any]:
        """The columns of the details (9.4); the mean square is taken from all elements to those unmasked."""
        unmasked = self._size - self._masked
        square = share(self._squares, self._size)
        square *= self._size / (unmasked + correction) + correction
        return {
            "small_value_error_share": share(self._small_wrong, self._small),
            "rmse": math.sqrt(square),
            "max_relative_error": self._largest,
            "mean_relative_error": share(self._relative, unmasked),
        }


def _status(ratio: Ratio, limits: Mapping[str, float]) -> Status:
    if not ratio.comparable:
        return Status.PASS if ratio.consistent else Status.ERROR
    if ratio.value <= limits["warning"]:
        return Status.PASS
    return Status.WARNING if ratio.value <= limits["error"] else Status.ERROR


def _inf_nan_status(npu: float, gpu: float | None) -> Status:
    """Error where the device has any share in error, and more than the GPU's (A1)."""
    no_worse = npu == 0 or (gpu is not None and npu <= gpu)
    return Status.PASS if no_worse else Status.ERROR
