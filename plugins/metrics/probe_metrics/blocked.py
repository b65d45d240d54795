"""Engine in numpy: blocks that stay in a core's cache, in buffers that are used again.

It adds in the order that ``_kernel.cpp`` states, so that both engines give the same bits.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from probe_core.model.measure import BLOCK_ELEMENTS, find_wide_dtype
from probe_metrics.tally import NO_TOTALS, SUM_COUNT, Array, Tally, Totals, Units

LANE_COUNT = 64
"""Sums that run side by side; element i of a block is added to lane i % 64."""
ROW_PADDING = 5 * LANE_COUNT
"""Numbers between the rows of a buffer: rows at distances of a power of two evict each other from caches."""
ONE_THOUSANDTH, FIVE_THOUSANDTHS = 1e-3, 5e-3
RELATIVE, TARGET_SQUARES, GOLDEN_SQUARES, SQUARES, DOT, TARGET, GOLDEN, ULP = range(SUM_COUNT)


class _Buffers(threading.local):
    """Buffers of one thread for the numbers of one block; complex data have a separate buffer."""

    def __init__(self) -> None:
        self.summed = np.zeros((SUM_COUNT, BLOCK_ELEMENTS + ROW_PADDING))
        self.sides = np.zeros((2, BLOCK_ELEMENTS + ROW_PADDING), np.complex128)


_buffers = _Buffers()


def measure(target: Array, golden: Array, units: Units | None, totals: Totals = NO_TOTALS) -> Tally:
    """Return the tally of two flat arrays of one length, in this machine's byte order.

    Args:
        target: The target's elements.
        golden: The golden's elements.
        units: The dtype and limit of distances in ulp; None to leave them out.
        totals: The sums of the elements before these, if the tensors come in several pieces.
    """
    work = _BlockedPass(target, golden, units, totals)
    with np.errstate(all="ignore"):
        for start in range(0, target.size, BLOCK_ELEMENTS):
            work.add(target[start : start + BLOCK_ELEMENTS], golden[start : start + BLOCK_ELEMENTS])
    return work.build_tally(target.size)


class _BlockedPass:
    """Counts, extrema and sums of the blocks so far."""

    def __init__(self, target: Array, golden: Array, units: Units | None, totals: Totals) -> None:
        self._complex = find_wide_dtype(target, golden).kind == "c"
        self._equal = target.dtype == golden.dtype
        self._units = units
        self._totals = np.array(totals)
        self._target, self._golden = _SideExtrema(), _SideExtrema()
        self._nonfinite_mismatches = self._below_one = self._below_five = self._over = 0
        self._absolute = self._relative = self._ulp = 0.0

    def add(self, target: Array, golden: Array) -> None:
        """Add one block."""
        size = target.size
        if self._equal:
            self._equal = target.tobytes() == golden.tobytes()
        summed = _buffers.summed[:, : -(-size // LANE_COUNT) * LANE_COUNT]
        summed[:, size:] = 0
        rows = summed[:, :size]
        wide_target, wide_golden = _buffers.sides[:, :size] if self._complex else rows[TARGET : GOLDEN + 1]
        np.copyto(wide_target, target, casting="unsafe")
        np.copyto(wide_golden, golden, casting="unsafe")
        finite = self._target.note(wide_target) & self._golden.note(wide_golden)
        special = None
        if not finite:
            mismatches, special = _clear_special(wide_target, wide_golden)
            self._nonfinite_mismatches += mismatches
        if self._complex:
            _fill_complex_errors(wide_target, wide_golden, rows)
        else:
            _fill_errors(wide_target, wide_golden, rows)
        self._count(rows)
        if self._units is None:
            summed[ULP] = 0
        else:
            distance = measure_ulp_distance(target, golden, self._units.dtype)
            if special is not None:
                distance[special] = 0
            rows[ULP] = distance
            self._ulp = max(self._ulp, float(distance.max()))
            self._over += int(np.count_nonzero(distance > self._units.limit))
        lanes = np.add.reduce(summed.reshape(SUM_COUNT, -1, LANE_COUNT), axis=1)
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        self._totals += lanes[:, 0]

    def _count(self, rows: Array) -> None:
        """Update the largest errors and the counts of small ones, and square the absolute errors in place."""
        relative, absolute = rows[RELATIVE], rows[SQUARES]
        self._absolute = max(self._absolute, float(absolute.max()))
        self._relative = max(self._relative, float(relative.max()))
        self._below_one += int(np.count_nonzero(relative < ONE_THOUSANDTH))
        self._below_five += int(np.count_nonzero(relative < FIVE_THOUSANDTHS))
        np.multiply(absolute, absolute, out=absolute)

    def build_tally(self, size: int) -> Tally:
        """Return the tally of all blocks, ``size`` elements."""
        target, golden = self._target, self._golden
        return Tally(
            size, self._equal,
            target.max + 0.0, target.min + 0.0, golden.max + 0.0, golden.min + 0.0,  # -0.0 as 0.0
            target.nan, target.infinite, golden.nan, golden.infinite, self._nonfinite_mismatches,
            self._absolute, self._relative, self._ulp,
            self._below_one, self._below_five, self._over, *self._totals.tolist(),
        )  # fmt: skip


def _fill_errors(target: Array, golden: Array, rows: Array) -> None:
    """Fill the rows of relative errors, squares and products; absolute errors are not squared yet."""
    relative, target_squares, golden_squares, absolute, dot = rows[: DOT + 1]
    np.subtract(target, golden, out=absolute)
    np.abs(absolute, out=absolute)
    np.abs(golden, out=relative)
    np.divide(absolute, relative, out=relative)
    relative[absolute == 0] = 0
    np.multiply(target, target, out=target_squares)
    np.multiply(golden, golden, out=golden_squares)
    np.multiply(target, golden, out=dot)


def _fill_complex_errors(target: Array, golden: Array, rows: Array) -> None:
    """Fill the same rows for complex data, with moduli of errors, and the real parts of both sides."""
    absolute, relative = rows[SQUARES], rows[RELATIVE]
    np.abs(target - golden, out=absolute)
    np.divide(absolute, np.abs(golden), out=relative)
    relative[absolute == 0] = 0
    rows[TARGET_SQUARES] = target.real * target.real + target.imag * target.imag
    rows[GOLDEN_SQUARES] = golden.real * golden.real + golden.imag * golden.imag
    rows[DOT] = target.real * golden.real + target.imag * golden.imag
    rows[TARGET], rows[GOLDEN] = target.real, golden.real


class _SideExtrema:
    """Extrema of one side, and its counts of nan and inf."""

    def __init__(self) -> None:
        self.max, self.min = -math.inf, math.inf
        self.nan = self.infinite = 0

    def note(self, block: Array) -> bool:
        """Update extrema and counts with a block; return True if all of it is finite."""
        sizes = np.abs(block) if block.dtype.kind == "c" else block
        high, low = float(sizes.max()), float(sizes.min())
        finite = math.isfinite(high) and math.isfinite(low)
        if not finite and not np.isfinite(block).all():
            nan = np.isnan(block)
            self.nan += int(np.count_nonzero(nan))
            self.infinite += int(np.count_nonzero(np.isinf(block) & ~nan))
            finite_sizes = sizes[np.isfinite(block)]
            high, low = float(finite_sizes.max(initial=-np.inf)), float(finite_sizes.min(initial=np.inf))
        else:
            finite = True
        self.max, self.min = max(self.max, high), min(self.min, low)
        return finite


def _clear_special(target: Array, golden: Array) -> tuple[int, Array]:
    """Set elements to 0 that are nan or inf on either side.

    Returns:
        The number of places where the sides disagree, and a mask of all places set to 0.
    """
    special = ~(np.isfinite(target) & np.isfinite(golden))
    first, second = target[special], golden[special]
    if target.dtype.kind == "c":
        alike = _find_agreeing(first.real, second.real) & _find_agreeing(first.imag, second.imag)
    else:
        alike = _find_agreeing(first, second)
    target[special] = golden[special] = 0
    return int(np.count_nonzero(~alike)), special


def _find_agreeing(first: Array, second: Array) -> Array:
    mask: Array = (first == second) | (np.isnan(first) & np.isnan(second))
    return mask


def measure_ulp_distance(target: Array, golden: Array, dtype: np.dtype[Any]) -> Array:
    """Return the distances between the elements of two arrays in steps of ``dtype``, as float64.

    Both arrays are rounded to ``dtype`` first; 0.0 and -0.0 are one number. Distances of nan and inf have no
    meaning.
    """
    first_sign, first = _split_sign(target.astype(dtype))
    second_sign, second = _split_sign(golden.astype(dtype))
    distance = np.where(first > second, first - second, second - first)
    return np.where(first_sign == second_sign, distance, first + second).astype(np.float64)


def _split_sign(array: Array) -> tuple[Array, Array]:
    width = array.dtype.itemsize * 8
    bits = array.view(f"u{array.dtype.itemsize}").astype(np.uint64)
    sign = bits >> np.uint64(width - 1)
    return sign, bits & np.uint64((1 << (width - 1)) - 1)
