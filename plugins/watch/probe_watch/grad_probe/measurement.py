"""Statistics and signs of a gradient, for all frameworks (docs/gradients.md#files)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from probe_recording.values.arrays import Array, crc32

from probe_watch.grad_probe.settings import Bound, GradSettings

_BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class GradientStatistics:
    """The statistics of one gradient.

    Attributes:
        shape: The shape of the gradient; for a sharded gradient, the shape of the local shard.
        maximum: The largest element; None if there are no elements.
        minimum: The smallest element; None if there are no elements.
        norm: The L2 norm.
        checksum: The CRC-32 of the elements in float32; empty if it was not requested.
        interval_shares: The share of elements in each interval; empty if they were not requested.
        zero_share: The share of elements that are zero; None if it was not requested.
    """

    shape: tuple[int, ...]
    maximum: float | None
    minimum: float | None
    norm: float
    checksum: str = ""
    interval_shares: tuple[float, ...] = ()
    zero_share: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredGradient:
    """The statistics of a gradient and its signs.

    Attributes:
        statistics: The statistics.
        is_positive: True for each element above 0, in the shape of the gradient; None if not requested.
    """

    statistics: GradientStatistics
    is_positive: Array | None = None


def compute_shares(counts_up_to: Sequence[int], above: int, total: int) -> tuple[float, ...]:
    """Return the share of elements in each interval between bounds.

    Args:
        counts_up_to: For each bound, the number of elements that are not above it.
        above: The number of elements above the last bound.
        total: The number of all elements; 0 makes all shares 0.
    """
    if not counts_up_to:
        return ()
    counts = [upper - lower for lower, upper in zip((0, *counts_up_to), counts_up_to)]
    return tuple(count / total if total else 0.0 for count in (*counts, above))


def compute_crc32(array: Array) -> str:
    """Return the CRC-32 of an array of float32, as the column ``MD5`` shows it."""
    return crc32(array)


def measure_array(array: Array, settings: GradSettings) -> MeasuredGradient:
    """Return what is measured of a gradient in host memory.

    A NaN makes maximum, minimum and norm NaN, is in no interval and is not positive. Infinities are in the
    first or the last interval. An empty gradient has no maximum and no minimum, and its norm and all shares
    are 0. A complex gradient is measured as real and imaginary parts, with an additional last dimension of 2.
    """
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array)[..., None].view(array.real.dtype)
    wide = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    flat = np.ascontiguousarray(wide).reshape(-1)
    intervals: dict[str, Any] = {}
    if settings.has_intervals:
        intervals = _count_intervals(flat, settings.bounds)
    with np.errstate(all="ignore"):
        statistics = GradientStatistics(
            shape=array.shape,
            maximum=float(flat.max()) if flat.size else None,
            minimum=float(flat.min()) if flat.size else None,
            norm=_compute_norm(flat),
            checksum=compute_crc32(flat.astype(np.float32)) if settings.has_checksum else "",
            **intervals,
        )
    return MeasuredGradient(statistics, wide > 0 if settings.has_directions else None)


def _count_intervals(flat: Array, bounds: Sequence[Bound]) -> dict[str, Any]:
    total = flat.size
    counts = [int(np.count_nonzero(flat <= bound)) for bound in bounds]
    above = int(np.count_nonzero(flat > bounds[-1])) if bounds else 0
    zeros = int(np.count_nonzero(flat == 0))
    return {
        "interval_shares": compute_shares(counts, above, total),
        "zero_share": zeros / total if total else 0.0,
    }


def _compute_norm(flat: Array) -> float:
    """Return the L2 norm, summed in float64 and scaled by the largest element so that no square overflows."""
    largest = float(np.abs(flat).max()) if flat.size else 0.0
    if not largest or not math.isfinite(largest):
        return largest
    total = 0.0
    for start in range(0, flat.size, _BLOCK_ELEMENTS):
        block = flat[start : start + _BLOCK_ELEMENTS].astype(np.float64) / largest
        total += float(block @ block)
    return largest * math.sqrt(total)
