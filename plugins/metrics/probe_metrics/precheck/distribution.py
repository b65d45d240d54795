"""Outputs of random numbers, which differ element by element though both sides are right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from probe_precheck import Array

from probe_metrics.precheck.elements import BFLOAT16, Flat


def zeros_agree(bench: Array, device: Array, limits: Mapping[str, Any]) -> bool:
    """Whether both sides of a dropout dropped about as many elements (spec: pre-check guide 7.1).

    The counts of zeros differ by less than a share of the elements; few elements always agree.
    """
    size = bench.values.size
    if size < limits["numel"]:
        return True
    apart = int(np.count_nonzero(bench.values)) - int(np.count_nonzero(device.values))
    found: bool = abs(apart) / size < limits["zeros"]
    return found


def distributions_agree(bench: Array, device: Array, limits: Mapping[str, Any]) -> bool:
    """Whether both sides may be samples of one distribution: two-sample Kolmogorov-Smirnov test.

    The samples differ where the largest distance of their distribution functions is above
    sqrt(-ln(alpha / 2) / n) for n elements a side (Smirnov 1948; never too strict for discrete numbers). A
    large output is judged by elements evenly spread over it; few elements always agree. nan counts as the
    largest number. The bench is rounded to the device's dtype.
    """
    size = bench.values.size
    if size < limits["numel"]:
        return True
    step = -(-size // limits["sample"])
    ours, theirs = (side.values.reshape(-1)[::step] for side in (device, bench))
    with np.errstate(all="ignore"):
        distance = largest_distance(ours, rounded_to(theirs, device))
    return distance <= math.sqrt(-math.log(limits["alpha"] / 2) / ours.size)


def largest_distance(first: Flat, second: Flat) -> float:
    """The largest distance of the distribution functions of two samples (Kolmogorov-Smirnov statistic)."""
    first, second = np.sort(first), np.sort(second)
    places = np.concatenate([first, second])
    distance = np.searchsorted(first, places, "right") / first.size
    distance -= np.searchsorted(second, places, "right") / second.size
    return float(np.abs(distance).max())


def rounded_to(bench: Flat, device: Array) -> Flat:
    """Floating-point numbers of the bench, rounded to the dtype of the device; bfloat16 as float32."""
    if device.values.dtype.kind != "f":
        return bench
    if device.kind == BFLOAT16:
        return bench.astype(ml_dtypes.bfloat16).astype(np.float32)
    return bench.astype(device.values.dtype)
