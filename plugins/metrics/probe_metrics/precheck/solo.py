"""What a precision standard can say of an output when there is no second machine to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from probe_precheck import FORWARD, Judged, Message, Output, Status

from probe_metrics.precheck.binary_consistency import error_rate
from probe_metrics.precheck.distribution import rounded_to
from probe_metrics.precheck.elements import Elements
from probe_metrics.precheck.first_stage import FLOAT, class_of
from probe_metrics.precheck.thresholds import of_kind, section, thresholds
from probe_metrics.precheck.verdicts import passes

Numbers = Mapping[str, float | int]
RELEASE = "guide"


class Rounding(NamedTuple):
    """How large the errors of an output are, in units of the eps of the dtype under test.

    Attributes:
        normwise: |device - bench| / |bench|, both in the Euclidean norm.
        mean, largest: Of relative errors; |bench| counts as at least a share of its root mean square.
    """

    normwise: float
    mean: float
    largest: float


class SoloVerdict:
    """The verdicts of the standards, each by what it can tell of one machine (probe).

    Binary consistency, the three rates of the absolute threshold, the ULP criteria and the dual thousandth
    ask for no second machine, and are taken as they are. The benchmark ratio asks for one: in its place the
    errors are to be no larger than rounding, in eps of the dtype under test. So are those of gradients, sums
    and long chains that miss a rule made for single operations: rounding is right there, too.
    The forward of APIs that only move, choose or round once has no such way out: there no element may be off
    by more than rounding it once.
    """

    def __init__(self) -> None:
        self._limits = section("solo")
        self._meets: Mapping[str, Callable[[Output, Numbers], bool]] = {
            "binary_consistency": _is_exact,
            "absolute_threshold": _has_zero_rates,
            "ulp": _has_few_ulps,
            "dual_thousandth": _is_within_a_thousandth,
        }

    def judge(self, output: Output, standard: str, numbers: Numbers, direction: str) -> Judged:
        """The verdict on two arrays of one shape and class, inf and nan alike."""
        if class_of(output.bench) != FLOAT:
            wrong = output.once(error_rate)
            return Judged(passes(wrong == 0), messages=() if wrong == 0 else (_unequal(wrong),))
        meets = self._meets.get(standard)
        if meets is not None and meets(output, numbers):
            return Judged(Status.PASS)
        found = output.once(rounding)
        strict = self._limits["strict"].get(standard) if direction == FORWARD else None
        if strict is not None:
            ok = found.largest <= strict["largest"]
            return Judged(passes(ok), messages=() if ok else (_missed(standard),))
        limits = of_kind(self._limits["rounding"], output.device.kind)
        if found.normwise <= limits["normwise"] and found.mean <= limits["mean"]:
            return Judged(Status.PASS)
        return Judged(Status.ERROR, messages=(_beyond(found, limits),))


def rounding(output: Output) -> Rounding:
    """The errors of an output in eps of its dtype; ask for them with ``output.once(rounding)``.

    Elements that are inf or nan are left out. Elements of the bench within the small value domain of the
    benchmark ratio count as right up to its absolute bound. All of the bench being zero leaves inf, or 0.
    """
    elements = output.once(Elements)
    domain = of_kind(thresholds(RELEASE, "benchmark_ratio")["small_domain"], elements.kind)
    eps, share = (of_kind(section("solo")[key], elements.kind) for key in ("eps", "least_share"))
    squares = errors = 0.0
    count = 0
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            found = elements.settled(block)
            squares += float(found.bench @ found.bench)
            count += found.bench.size
        least = share * math.sqrt(squares / count) if count else 0.0
        relative = largest = 0.0
        for block in elements.blocks():
            found = elements.settled(block)
            error = found.error.copy()
            small = found.magnitude <= domain["small_value"]
            error[small & (error <= domain["small_value_atol"])] = 0
            errors += float(error @ error)
            parts = error / np.maximum(found.magnitude, least)
            parts[error == 0] = 0
            relative += float(np.add.reduce(parts))
            largest = max(largest, float(parts.max(initial=0.0)))
    if not errors:
        return Rounding(0.0, 0.0, 0.0)
    if not squares:
        return Rounding(math.inf, math.inf, math.inf)
    return Rounding(math.sqrt(errors / squares) / eps, relative / count / eps, largest / eps)


def _is_exact(output: Output, numbers: Numbers) -> bool:
    """Is the device what the bench is, once that is rounded to the device's dtype?"""
    device, bench = output.device.values, rounded_to(output.bench.values, output.device)
    return bool(np.all((device == bench) | ((device != device) & (bench != bench))))


def _has_zero_rates(output: Output, numbers: Numbers) -> bool:
    rates = ("inf_nan_error_rate", "relative_error_rate", "absolute_error_rate")
    return all(numbers.get(key) == 0 for key in rates)


def _has_few_ulps(output: Output, numbers: Numbers) -> bool:
    limits = of_kind(thresholds(RELEASE, "ulp"), output.device.kind)
    mean_limit = limits.get("mean_limit", 0.0)
    few: bool = numbers.get("ulp_share", 1.0) < limits["share_limit"]
    return few or numbers.get("ulp_mean", math.inf) < mean_limit


def _is_within_a_thousandth(output: Output, numbers: Numbers) -> bool:
    limit: float = thresholds(RELEASE, "dual_thousandth")["share"]
    return numbers.get("thousandth", 0.0) > limit


_WORDS = {
    "binary_consistency": ("二进制不一致", "not what the reference rounds to, bit by bit"),
    "absolute_threshold": ("误差超过绝对阈值", "over the absolute threshold of its dtype"),
}


def _missed(standard: str) -> Message:
    chinese, english = _WORDS.get(standard, (standard, standard))
    return Message(f"ERROR: {chinese}", f"ERROR: {english}")


def _unequal(rate: float) -> Message:
    return Message(f"ERROR: 二进制一致错误率{rate:.3g}", f"ERROR: a share of {rate:.3g} is not equal")


def _beyond(found: Rounding, limits: Mapping[str, float]) -> Message:
    english = (
        f"ERROR: beyond rounding: error {found.normwise:.3g} eps normwise (at most {limits['normwise']:g}), "
        f"{found.mean:.3g} eps in the mean (at most {limits['mean']:g})"
    )
    chinese = (
        f"ERROR: 误差超出舍入误差: 范数{found.normwise:.3g} eps (上限{limits['normwise']:g}), "
        f"平均{found.mean:.3g} eps (上限{limits['mean']:g})"
    )
    return Message(chinese, english)
