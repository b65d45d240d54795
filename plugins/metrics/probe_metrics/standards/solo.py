"""Verdicts of the precision standards on an output without a second machine (docs/standards.md#mint)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from probe_precheck.api import Message, Output, OutputVerdict, Status
from probe_precheck.model import FORWARD
from probe_precheck.yardstick import create_rounding_message, measure

from probe_metrics.standards.binary_consistency import measure_error_rate
from probe_metrics.standards.distribution import round_to_device
from probe_metrics.standards.first_stage import FLOAT, classify_dtype
from probe_metrics.standards.thresholds import get_for_dtype, load_section, load_thresholds
from probe_metrics.standards.verdicts import convert_to_status

Numbers = Mapping[str, float | int]
SOLO_RELEASE = "guide"


class SoloVerdict:
    """Verdict of the API's standard on one output, by the numbers of one machine; a rule of probe's own.

    1. Binary consistency, the three rates of the absolute threshold, the ULP criteria and the dual thousandth
       need no second machine: an output that meets its standard passes. Integers and booleans must be equal.
    2. Otherwise the errors must be no larger than rounding (``probe_precheck.measure``). So outputs of the
       benchmark ratio standard are judged, which needs two machines, and gradients and long sums, for which
       rules made for single operations are too strict.
    3. Forwards of APIs that only move, select or round once (binary consistency, absolute threshold) must
       have no element that is off by more than one rounding instead.

    Edge cases:
        * nan and inf: the caller has checked that they are the same on both sides; they are left out.
        * B is 0 (or -0.0) in every element: any error over the small-value bound is too large.
        * 0-d: like any other. Outputs without elements do not get here.

    Source: docs/standards.md#mint; the limits are in ``thresholds.yaml``.
    """

    def __init__(self) -> None:
        self._limits = load_section("solo")
        self._meets: Mapping[str, Callable[[Output, Numbers], bool]] = {
            "binary_consistency": _is_exact,
            "absolute_threshold": _has_zero_rates,
            "ulp": _has_few_ulps,
            "dual_thousandth": _is_within_a_thousandth,
        }

    def judge(self, output: Output, standard: str, numbers: Numbers, direction: str) -> OutputVerdict:
        """Return the verdict on two arrays of one shape and class, with inf and nan at the same places.

        Args:
            output: Both sides.
            standard: The name of the API's standard; empty if it has none.
            numbers: The numbers that the standard measured.
            direction: ``forward`` or ``backward``.
        """
        if classify_dtype(output.bench) != FLOAT:
            wrong = output.once(measure_error_rate)
            return OutputVerdict(
                convert_to_status(wrong == 0), messages=() if wrong == 0 else (_create_unequal_message(wrong),)
            )
        meets = self._meets.get(standard)
        if meets is not None and meets(output, numbers):
            return OutputVerdict(Status.PASS)
        measured = output.once(measure)
        strict = self._limits["strict"].get(standard) if direction == FORWARD else None
        if strict is not None:
            ok = measured.largest <= strict * get_for_dtype(self._limits["eps"], output.device.kind)
            return OutputVerdict(convert_to_status(ok), messages=() if ok else (_create_missed_message(standard),))
        if not measured.is_beyond:
            return OutputVerdict(Status.PASS)
        texts = (text.partition("; ")[2] for text in create_rounding_message(measured))
        return OutputVerdict(Status.ERROR, messages=(Message(*(f"ERROR: {text}" for text in texts)),))


def _is_exact(output: Output, numbers: Numbers) -> bool:
    """Return True if the device equals the benchmark rounded to the device's dtype; nan equals nan."""
    device, bench = output.device.values, round_to_device(output.bench.values, output.device)
    return bool(np.all((device == bench) | ((device != device) & (bench != bench))))


def _has_zero_rates(output: Output, numbers: Numbers) -> bool:
    rates = ("inf_nan_error_rate", "relative_error_rate", "absolute_error_rate")
    return all(numbers.get(key) == 0 for key in rates)


def _has_few_ulps(output: Output, numbers: Numbers) -> bool:
    limits = get_for_dtype(load_thresholds(SOLO_RELEASE, "ulp"), output.device.kind)
    mean_limit = limits.get("mean_limit", 0.0)
    few: bool = numbers.get("ulp_share", 1.0) < limits["share_limit"]
    return few or numbers.get("ulp_mean", math.inf) < mean_limit


def _is_within_a_thousandth(output: Output, numbers: Numbers) -> bool:
    limit: float = load_thresholds(SOLO_RELEASE, "dual_thousandth")["share"]
    return numbers.get("thousandth", 0.0) > limit


_MISSED_TEXTS = {
    "binary_consistency": ("二进制不一致", "not what the reference rounds to, bit by bit"),
    "absolute_threshold": ("误差超过绝对阈值", "over the absolute threshold of its dtype"),
}


def _create_missed_message(standard: str) -> Message:
    chinese, english = _MISSED_TEXTS.get(standard, (standard, standard))
    return Message(f"ERROR: {chinese}", f"ERROR: {english}")


def _create_unequal_message(rate: float) -> Message:
    return Message(f"ERROR: 二进制一致错误率{rate:.3g}", f"ERROR: a share of {rate:.3g} is not equal")
