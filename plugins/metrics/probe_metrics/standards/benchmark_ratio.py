"""Standard of the benchmark ratio method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from probe_precheck.api import Judgement, Message, Output, Status
from probe_precheck.model import Numbers

from probe_metrics.standards.elements import Block, Elements, compute_share, measure_error_balance
from probe_metrics.standards.inf_nan import InfNanTally
from probe_metrics.standards.ratio import Ratio, compare_numbers
from probe_metrics.standards.thresholds import get_for_dtype, load_thresholds
from probe_metrics.standards.verdicts import (
    COMPARED_COLUMNS,
    create_limit_message,
    create_zero_rate_message,
    find_worst_status,
)

INF_NAN_COLUMN = "inf_nan_error_rate"
INDICATOR_PREFIXES = {
    "small_value_error_share": "small_value",
    "rmse": "rmse",
    "max_relative_error": "max_relative",
    "mean_relative_error": "mean_relative",
    "error_balance": "error_balance",
}
"""Columns of the details whose ratios are judged, each with the prefix of its ratio and verdict columns."""
UNCOUNTED_COLUMN = "error_balance"
"""Column whose ratio is shown and does not count in the verdict."""


class BenchmarkRatio:
    """Requires errors no larger than those of a trusted device, both measured against a benchmark.

    Formulas, in float64, for a device D and a benchmark B of one shape, limits converted to B's dtype.
    Elements that are inf or nan on either side, and small ones (``|B| <= small_value``), are masked.

    * small value error share: share of the small elements with ``|D - B| > atol``.
    * RMSE: ``sqrt(mean(|D - B|²) * (size / (unmasked + c) + c))`` with 0 for masked elements and c = 1e-4; in
      the unit of the data.
    * largest and mean relative error: of ``|D - B| / (|B| + eps)`` over the unmasked elements; ratios.
    * error balance: ``|#(D > B) - #(D < B)| / size``.

    Edge cases:
        * nan or inf: a separate share counts the elements in which the sides disagree
          (``inf_nan.InfNanTally``); the column is blank without such elements.
        * B is 0 (or -0.0): the element is small. All elements masked: errors are 0.
        * 0-d: like any other. No elements: not measured.

    Source: docs/standards.md#benchmark-ratio, by the pre-check guide of msprobe 1.0.4. The rule on inf and
    nan is probe's own, since msprobe passes an output that is all nan.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return share of wrong small values, RMSE, largest and mean relative error, and error balance.

        The inf/nan error rate is among them if an element is inf or nan.
        """
        elements = output.once(Elements)
        limits = load_thresholds(release, "benchmark_ratio")
        rtol = get_for_dtype(load_thresholds(release, "absolute_threshold"), elements.kind)["rtol"]
        errors = _Errors(elements, get_for_dtype(limits["small_domain"], elements.kind))
        tally = InfNanTally(elements, rtol)
        with np.errstate(all="ignore"):
            for block in elements.split_blocks():
                errors.add(block)
                tally.add(block)
        columns = errors.build_columns(limits["rmse_correction"])
        columns["error_balance"] = measure_error_balance(elements)
        if tally.count:
            columns[INF_NAN_COLUMN] = tally.rate
        return columns

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return error if one of the four ratios that count is over its limit, warning in between, else pass.

        msprobe 8.3 has no warnings. Numbers that are inf or nan must be the same on both devices. A device
        with more errors in inf and nan than the trusted one fails.
        """
        limits = load_thresholds(release, "benchmark_ratio")
        floor = get_for_dtype(limits["floor"], npu.kind) if "floor" in limits else 0.0
        statuses: list[Status] = []
        cells: dict[str, float | str] = {}
        messages: list[Message] = []
        for key, prefix in INDICATOR_PREFIXES.items():
            ratio = compare_numbers(key, npu[key], gpu[key], limits.get("by_zero", math.inf), floor)
            status = _judge_ratio(ratio, limits["ratio_limits"][key])
            cells[f"{prefix}_ratio"], cells[f"{prefix}_status"] = ratio.value, status
            messages += [ratio.message] if ratio.message else []
            if key != UNCOUNTED_COLUMN:
                statuses.append(status)
                if ratio.is_comparable and status is not Status.PASS:
                    messages.append(create_limit_message(COMPARED_COLUMNS[f"{prefix}_ratio"], status))
        rate = npu.get(INF_NAN_COLUMN)
        if rate is not None:
            cells[INF_NAN_COLUMN] = rate
            cells["inf_nan_status"] = status = _judge_inf_nan(rate, gpu.get(INF_NAN_COLUMN))
            statuses.append(status)
            if status is Status.ERROR:
                messages.append(create_zero_rate_message(INF_NAN_COLUMN, gpu))
        return Judgement(find_worst_status(statuses), cells, tuple(messages))


class _Errors:
    """Errors of the blocks so far, of small values and of unmasked ones."""

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

    def build_columns(self, correction: float) -> dict[str, Any]:
        """Return the columns of the details; ``correction`` is the constant of the RMSE."""
        unmasked = self._size - self._masked
        square = compute_share(self._squares, self._size)
        square *= self._size / (unmasked + correction) + correction
        return {
            "small_value_error_share": compute_share(self._small_wrong, self._small),
            "rmse": math.sqrt(square),
            "max_relative_error": self._largest,
            "mean_relative_error": compute_share(self._relative, unmasked),
        }


def _judge_ratio(ratio: Ratio, limits: Mapping[str, float]) -> Status:
    if not ratio.is_comparable:
        return Status.PASS if ratio.is_consistent else Status.ERROR
    if ratio.value <= limits["warning"]:
        return Status.PASS
    return Status.WARNING if ratio.value <= limits["error"] else Status.ERROR


def _judge_inf_nan(npu: float, gpu: float | None) -> Status:
    """Return error if the device has any inf or nan in error, and a larger share than the GPU."""
    no_worse = npu == 0 or (gpu is not None and npu <= gpu)
    return Status.PASS if no_worse else Status.ERROR
