"""Closeness of both sides of a floating-point output: extrema, cosine, and shares of small relative errors.

Elements that are inf or nan, the same on both sides, are left out of all three (docs/standards.md#status).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from probe_precheck.api import Output

from probe_metrics.standards.elements import Elements, Flat


class Extrema(NamedTuple):
    """Largest magnitudes of an output, over the elements that are finite on both sides.

    Attributes:
        size: The number of these elements.
        nonfinite_mismatches: The number of elements that are inf or nan, and not the same on both sides.
        device: The largest ``|device|``; 0 for no elements.
        bench: The largest ``|bench|``; 0 for no elements.
        error: The largest ``|device - bench|``, in the unit of the data; 0 for no elements.
    """

    size: int
    nonfinite_mismatches: int
    device: float
    bench: float
    error: float


def measure_extrema(output: Output) -> Extrema:
    """Return the extrema of an output; call it as ``output.once(measure_extrema)`` to share them."""
    elements = output.once(Elements)
    size = nonfinite_mismatches = 0
    device = bench = error = 0.0
    with np.errstate(all="ignore"):
        for block in elements.split_blocks():
            finite = elements.drop_special(block)
            nonfinite_mismatches += finite.nonfinite_mismatches
            if finite.device.size:
                size += finite.device.size
                device = max(device, float(np.abs(finite.device).max()))
                bench = max(bench, float(finite.magnitude.max()))
                error = max(error, float(finite.error.max()))
    return Extrema(size, nonfinite_mismatches, device, bench, error)


def measure_cosine(elements: Elements, largest: Extrema) -> float:
    """Return the cosine ``D·B / (‖D‖ ‖B‖)`` of device D and benchmark B, from -1 to 1.

    Each side is divided by its largest magnitude first, so that no square overflows. Neither may be all zero.
    """
    dot = device = bench = 0.0
    with np.errstate(all="ignore"):
        for block in elements.split_blocks():
            finite = elements.drop_special(block)
            tested, reference = finite.device / largest.device, finite.bench / largest.bench
            dot += _sum(tested * reference)
            device += _sum(np.square(tested, out=tested))
            bench += _sum(np.square(reference, out=reference))
    return max(-1.0, min(1.0, dot / math.sqrt(device * bench)))


def measure_shares_below(elements: Elements, limits: Sequence[float]) -> list[float]:
    """Return for each limit the share of elements with ``|device - bench| / (|bench| + eps)`` below it.

    Elements that are inf or nan on one side only, or not the same, count as not below it. A benchmark of 0
    leaves eps as the denominator. The share of no elements is 1.
    """
    counts = [0] * len(limits)
    size = 0
    bounds = [elements.limit(limit) for limit in limits]
    with np.errstate(all="ignore"):
        for block in elements.split_blocks():
            finite = elements.drop_special(block)
            size += finite.device.size + finite.nonfinite_mismatches
            relative = finite.error / (finite.magnitude + elements.eps)
            for place, bound in enumerate(bounds):
                counts[place] += int(np.count_nonzero(relative < bound))
    return [count / size if size else 1.0 for count in counts]


def _sum(array: Flat) -> float:
    return float(np.add.reduce(array))
