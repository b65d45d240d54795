"""Comparison of random numbers, which differ element by element though both sides are right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from probe_precheck.api import Array

from probe_metrics.standards.elements import BFLOAT16, Flat


def have_similar_zeros(bench: Array, device: Array, limits: Mapping[str, Any]) -> bool:
    """Return True if both sides of a dropout set about as many elements to 0 (docs/standards.md#status).

    The shares of zeros, -0.0 included, must differ by less than ``limits["zeros"]``. Outputs of fewer
    elements than ``limits["numel"]`` always agree. nan and inf count as not zero.
    """
    size = bench.values.size
    if size < limits["numel"]:
        return True
    difference = int(np.count_nonzero(bench.values)) - int(np.count_nonzero(device.values))
    agree: bool = abs(difference) / size < limits["zeros"]
    return agree


def have_similar_distributions(bench: Array, device: Array, limits: Mapping[str, Any]) -> bool:
    """Return True if both sides may be samples of one distribution: two-sample Kolmogorov-Smirnov test.

    The samples differ if the largest distance of their distribution functions is above
    ``sqrt(-ln(alpha / 2) / n)`` for n elements on each side (Smirnov 1948; never too strict for discrete
    numbers). The benchmark is first rounded to the dtype of the device. Large outputs are sampled at evenly
    spaced elements. Outputs with fewer elements than ``limits["numel"]`` always agree. nan counts as the largest
    number.
    """
    size = bench.values.size
    if size < limits["numel"]:
        return True
    step = -(-size // limits["sample"])
    tested, reference = (side.values.reshape(-1)[::step] for side in (device, bench))
    with np.errstate(all="ignore"):
        distance = measure_largest_distance(tested, round_to_device(reference, device))
    return distance <= math.sqrt(-math.log(limits["alpha"] / 2) / tested.size)


def measure_largest_distance(first: Flat, second: Flat) -> float:
    """Return the Kolmogorov-Smirnov statistic: the largest distance of two distribution functions."""
    first, second = np.sort(first), np.sort(second)
    places = np.concatenate([first, second])
    distance = np.searchsorted(first, places, "right") / first.size
    distance -= np.searchsorted(second, places, "right") / second.size
    return float(np.abs(distance).max())


def round_to_device(bench: Flat, device: Array) -> Flat:
    """Return the benchmark rounded to the device's floating-point dtype; bfloat16 is held as float32."""
    if device.values.dtype.kind != "f":
        return bench
    if device.kind == BFLOAT16:
        return bench.astype(ml_dtypes.bfloat16).astype(np.float32)
    return bench.astype(device.values.dtype)
