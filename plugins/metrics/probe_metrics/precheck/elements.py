"""What the standards share of one output: both sides flat, in blocks of float64, and how its dtype ends.

No error is computed in the dtype under test: every difference is one of float64 numbers. Blocks stay in a
core's cache and are made anew for each pass, so that no copy of a large output is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from probe_precheck import Output

from probe_core.model.measure import BLOCK

Flat = np.ndarray[Any, Any]
BFLOAT16 = "bfloat16"


class Range(NamedTuple):
    """Where a floating-point dtype ends: its largest number, and the least magnitude that rounds to inf."""

    largest: float
    overflow: float


class Block:
    """Consecutive elements of both sides as float64; do not write into its arrays.

    ``overflow`` is the least magnitude of a bench element that the device's numpy dtype cannot hold.
    """

    def __init__(self, device: Flat, bench: Flat, overflow: float) -> None:
        self.device = device.astype(np.float64)
        self.bench = bench.astype(np.float64)
        self._overflow = overflow

    @cached_property
    def magnitude(self) -> Flat:
        """|bench|."""
        found: Flat = np.abs(self.bench)
        return found

    @cached_property
    def error(self) -> Flat:
        """|device - bench|."""
        found: Flat = self.device - self.bench
        return np.abs(found, out=found)

    @cached_property
    def special(self) -> Flat | None:
        """Where either side is inf or nan, the bench in the device's numpy dtype; None for nowhere (9.2)."""
        finite = np.isfinite(self.device)
        finite &= self.magnitude < self._overflow
        return None if finite.all() else ~finite


class Settled(NamedTuple):
    """A block without its elements that are inf or nan, and how many of these the sides do not agree in."""

    device: Flat
    bench: Flat
    magnitude: Flat
    error: Flat
    apart: int = 0


class Elements:
    """Two floating-point arrays of one shape, flat; ask for them with ``output.once(Elements)``.

    A bench of float64 is rounded to float32 where the device's dtype is bfloat16 (7).

    Attributes:
        kind: The device's dtype: ``bfloat16``.
        size: Number of elements.
        eps: What a denominator adds to |bench|: the eps of the bench array's dtype; for bfloat16 2^-8 (B8).
        range: Where the device's dtype ends.
    """

    def __init__(self, output: Output) -> None:
        self.kind: str = output.device.kind
        self._device: Flat = output.device.values.reshape(-1)
        self._bench: Flat = output.bench.values.reshape(-1)
        if self.kind == BFLOAT16 and self._bench.dtype == np.float64:
            with np.errstate(all="ignore"):
                self._bench = self._bench.astype(np.float32)
        self.size = self._device.size
        self.eps = 2.0**-8 if self.kind == BFLOAT16 else float(np.finfo(self._bench.dtype).eps)
        self._held = _range(self._device.dtype)  # as numpy holds it: bfloat16 as float32
        self.range = _ends(128, 7) if self.kind == BFLOAT16 else self._held

    def limit(self, value: float) -> float:
        """``value`` in the dtype of the benchmark array (B7)."""
        with np.errstate(all="ignore"):
            return float(np.asarray(value, self._bench.dtype))

    def blocks(self) -> Iterable[Block]:
        """All elements, block by block; a small output's only block is made once."""
        return self._only if self.size <= BLOCK else map(self._block, range(0, self.size, BLOCK))

    @cached_property
    def _only(self) -> list[Block]:
        return [self._block(0)] if self.size else []

    def _block(self, start: int) -> Block:
        part = slice(start, start + BLOCK)
        return Block(self._device[part], self._bench[part], self._held.overflow)

    def rounded(self, bench: Flat) -> Flat:
        """Elements of a bench block in the device's numpy dtype, as float64 (B9: bfloat16 as it is)."""
        if self._device.dtype.itemsize >= self._bench.dtype.itemsize:
            return bench
        return bench.astype(self._device.dtype).astype(np.float64)

    def settled(self, block: Block) -> Settled:
        """The block without what is inf or nan on either side (A8).

        The sides agree where both are nan, or where the device has the inf that the bench is, or becomes when
        rounded to the device's dtype.
        """
        if block.special is None:
            return Settled(block.device, block.bench, block.magnitude, block.error)
        kept = np.isfinite(block.device) & np.isfinite(block.bench)
        device, bench = block.device[~kept], block.bench[~kept]
        alike = np.isnan(device) & np.isnan(bench)
        alike |= self.overflows(device, bench)
        apart = int(np.count_nonzero(~alike))
        return Settled(block.device[kept], block.bench[kept], block.magnitude[kept], block.error[kept], apart)

    def overflows(self, device: Flat, bench: Flat) -> Flat:
        """Where the device is inf because the bench, rounded to the device's dtype, is the same inf (B6)."""
        found: Flat = np.isinf(device) & (np.abs(bench) >= self.range.overflow)
        found &= np.signbit(device) == np.signbit(bench)
        return found


def error_balance(elements: Elements) -> float:
    """|#(device > bench) - #(device < bench)| / size, the bench in the device's numpy dtype (9.4)."""
    above = below = 0
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            bench = elements.rounded(block.bench)
            above += int(np.count_nonzero(block.device > bench))
            below += int(np.count_nonzero(block.device < bench))
    return share(abs(above - below), elements.size)


def share(count: float, size: int) -> float:
    """``count / size``; 0 of nothing."""
    return float(count) / size if size else 0.0


def _range(dtype: np.dtype[Any]) -> Range:
    found = np.finfo(dtype)
    return _ends(int(found.maxexp), int(found.nmant))


def _ends(exponent: int, bits: int) -> Range:
    """The ends of a dtype below ``2**exponent`` with ``bits`` of mantissa, that rounds ties to even."""
    if exponent >= 1024:  # float64 itself: nothing finite rounds to inf
        return Range(float(np.finfo(np.float64).max), math.inf)
    limit = 2.0**exponent
    return Range(limit * (1 - 2.0 ** -(bits + 1)), limit * (1 - 2.0 ** -(bits + 2)))
