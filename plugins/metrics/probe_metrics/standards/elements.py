"""Both sides of one output as flat blocks of float64, shared by all standards, and the ends of its dtype.

No error is computed in the dtype under test: all differences are taken in float64. Blocks fit into a core's
cache and are made again for each pass, so that no copy of a large output is kept. The masks of elements that
are inf, nan or small are defined in docs/standards.md#masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from probe_precheck.api import Output

from probe_core.model.measure import BLOCK_ELEMENTS

Flat = np.ndarray[Any, Any]
BFLOAT16 = "bfloat16"


class FloatRange(NamedTuple):
    """Largest number of a floating-point dtype, and the smallest magnitude that rounds to inf."""

    largest: float
    overflow: float


class Block:
    """Consecutive elements of both sides as float64; do not write into its arrays.

    Args:
        device: Elements of the device under test.
        bench: The same elements of the benchmark.
        overflow: The smallest magnitude of a benchmark element that is inf in the device's numpy dtype.
    """

    def __init__(self, device: Flat, bench: Flat, overflow: float) -> None:
        self.device = device.astype(np.float64)
        self.bench = bench.astype(np.float64)
        self._overflow = overflow

    @cached_property
    def magnitude(self) -> Flat:
        """Magnitudes of the benchmark, ``|bench|``."""
        magnitude: Flat = np.abs(self.bench)
        return magnitude

    @cached_property
    def error(self) -> Flat:
        """Absolute errors, ``|device - bench|``."""
        error: Flat = self.device - self.bench
        return np.abs(error, out=error)

    @cached_property
    def special(self) -> Flat | None:
        """Mask of elements that are inf or nan on either side; None if there are none.

        The benchmark counts as inf if it is so in the device's numpy dtype.
        """
        finite = np.isfinite(self.device)
        finite &= self.magnitude < self._overflow
        return None if finite.all() else ~finite


class FiniteBlock(NamedTuple):
    """Block without elements that are inf or nan; ``nonfinite_mismatches`` counts those in which the sides disagree."""

    device: Flat
    bench: Flat
    magnitude: Flat
    error: Flat
    nonfinite_mismatches: int = 0


class Elements:
    """Two flat floating-point arrays of one shape; call it as ``output.once(Elements)`` to share them.

    If the device's dtype is bfloat16, a float64 benchmark is rounded to float32.

    Attributes:
        kind: The device's dtype, such as ``bfloat16``.
        size: The number of elements.
        eps: The number that is added to ``|bench|`` in denominators: the distance from 1 to the next number
            of the benchmark's dtype; 2^-8 if the device's dtype is bfloat16.
        range: The ends of the device's dtype.
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
        self._held = _find_range(self._device.dtype)  # of the dtype in numpy: bfloat16 is held as float32
        self.range = _compute_range(128, 7) if self.kind == BFLOAT16 else self._held

    def limit(self, value: float) -> float:
        """Return a limit rounded to the dtype of the benchmark array."""
        with np.errstate(all="ignore"):
            return float(np.asarray(value, self._bench.dtype))

    def split_blocks(self) -> Iterable[Block]:
        """Return all elements, block by block; the only block of a small output is made once."""
        return (
            self._only if self.size <= BLOCK_ELEMENTS else map(self._create_block, range(0, self.size, BLOCK_ELEMENTS))
        )

    @cached_property
    def _only(self) -> list[Block]:
        return [self._create_block(0)] if self.size else []

    def _create_block(self, start: int) -> Block:
        part = slice(start, start + BLOCK_ELEMENTS)
        return Block(self._device[part], self._bench[part], self._held.overflow)

    def round_bench(self, bench: Flat) -> Flat:
        """Return benchmark elements, rounded to the device's numpy dtype (bfloat16: float32), as float64."""
        if self._device.dtype.itemsize >= self._bench.dtype.itemsize:
            return bench
        return bench.astype(self._device.dtype).astype(np.float64)

    def drop_special(self, block: Block) -> FiniteBlock:
        """Return the block without elements that are inf or nan on either side.

        The sides agree if both are nan, or if the device is inf and the benchmark, rounded to the device's
        dtype, is the same inf.
        """
        if block.special is None:
            return FiniteBlock(block.device, block.bench, block.magnitude, block.error)
        is_finite = np.isfinite(block.device) & np.isfinite(block.bench)
        device, bench = block.device[~is_finite], block.bench[~is_finite]
        alike = np.isnan(device) & np.isnan(bench)
        alike |= self.find_overflows(device, bench)
        nonfinite_mismatches = int(np.count_nonzero(~alike))
        return FiniteBlock(
            block.device[is_finite],
            block.bench[is_finite],
            block.magnitude[is_finite],
            block.error[is_finite],
            nonfinite_mismatches,
        )

    def find_overflows(self, device: Flat, bench: Flat) -> Flat:
        """Return a mask of elements that are inf on the device and, in its dtype, on the benchmark."""
        mask: Flat = np.isinf(device) & (np.abs(bench) >= self.range.overflow)
        mask &= np.signbit(device) == np.signbit(bench)
        return mask


def measure_error_balance(elements: Elements) -> float:
    """Return the error balance ``|#(device > bench) - #(device < bench)| / size``, a share.

    The benchmark is rounded to the device's numpy dtype first. nan is neither above nor below; 0 for no
    elements.
    """
    above = below = 0
    with np.errstate(all="ignore"):
        for block in elements.split_blocks():
            bench = elements.round_bench(block.bench)
            above += int(np.count_nonzero(block.device > bench))
            below += int(np.count_nonzero(block.device < bench))
    return compute_share(abs(above - below), elements.size)


def compute_share(count: float, size: int) -> float:
    """Return ``count / size``; 0 if ``size`` is 0."""
    return float(count) / size if size else 0.0


def _find_range(dtype: np.dtype[Any]) -> FloatRange:
    limits = np.finfo(dtype)
    return _compute_range(int(limits.maxexp), int(limits.nmant))


def _compute_range(exponent: int, bits: int) -> FloatRange:
    """Return the ends of a dtype below ``2**exponent`` with ``bits`` mantissa bits; ties round to even."""
    if exponent >= 1024:  # float64 itself: nothing finite rounds to inf
        return FloatRange(float(np.finfo(np.float64).max), math.inf)
    limit = 2.0**exponent
    return FloatRange(limit * (1 - 2.0 ** -(bits + 1)), limit * (1 - 2.0 ** -(bits + 2)))
