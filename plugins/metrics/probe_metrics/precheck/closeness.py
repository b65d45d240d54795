"""How close both sides of a floating-point output are: extrema, cosine, shares below a relative error (7).

Elements that are inf or nan on both sides alike are left out of all three (decision A8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from probe_precheck import Output

from probe_metrics.precheck.elements import Elements, Flat


class Extrema(NamedTuple):
    """The largest magnitudes of an output, of elements that are finite on both sides.

    Attributes:
        size: Number of these elements.
        apart: Number of elements that are inf or nan, and not alike.
        device, bench, error: The largest of |device|, |bench| and |device - bench|; 0 of nothing.
    """

    size: int
    apart: int
    device: float
    bench: float
    error: float


def extrema(output: Output) -> Extrema:
    """The extrema of an output; ask for them with ``output.once(extrema)``."""
    elements = output.once(Elements)
    size = apart = 0
    device = bench = error = 0.0
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            found = elements.settled(block)
            apart += found.apart
            if found.device.size:
                size += found.device.size
                device = max(device, float(np.abs(found.device).max()))
                bench = max(bench, float(found.magnitude.max()))
                error = max(error, float(found.error.max()))
    return Extrema(size, apart, device, bench, error)


def cosine(elements: Elements, largest: Extrema) -> float:
    """The cosine of the angle between both sides, from -1 to 1; neither may be all zero.

    Each side is divided by its largest magnitude first, so that no square overflows.
    """
    dot = device = bench = 0.0
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            found = elements.settled(block)
            ours, theirs = found.device / largest.device, found.bench / largest.bench
            dot += _sum(ours * theirs)
            device += _sum(np.square(ours, out=ours))
            bench += _sum(np.square(theirs, out=theirs))
    return max(-1.0, min(1.0, dot / math.sqrt(device * bench)))


def shares_below(elements: Elements, limits: Sequence[float]) -> list[float]:
    """For each limit the share of elements with |device - bench| / (|bench| + eps) below it; 1 of nothing.

    Elements that are inf or nan on one side only, or not alike, are not below it.
    """
    counts = [0] * len(limits)
    size = 0
    bounds = [elements.limit(limit) for limit in limits]
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            found = elements.settled(block)
            size += found.device.size + found.apart
            relative = found.error / (found.magnitude + elements.eps)
            for place, bound in enumerate(bounds):
                counts[place] += int(np.count_nonzero(relative < bound))
    return [count / size if size else 1.0 for count in counts]


def _sum(array: Flat) -> float:
    return float(np.add.reduce(array))
