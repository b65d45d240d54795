"""Error rate of inf and nan (docs/standards.md#masks)."""

from __future__ import annotations

import numpy as np

from probe_metrics.standards.elements import Block, Elements, compute_share


class InfNanTally:
    """Counts elements that are inf or nan on either side, and those among them in which the sides disagree.

    Formula: both sides are clipped to the finite numbers of the device's dtype, and the benchmark B is
    rounded to the device's numpy dtype. They agree if both are nan, or if ``|device - B| / (|B| + eps) <=
    rtol``. So inf agrees with inf and with the largest number of the same sign; it disagrees with nan. Finite
    elements, zeros of either sign among them, are not counted. 0-d arrays are like any other.

    Args:
        elements: Both sides.
        rtol: The bound of the relative error, a ratio.
    """

    def __init__(self, elements: Elements, rtol: float) -> None:
        self._elements = elements
        self._rtol = elements.limit(rtol)
        self.count = self._wrong = 0

    def add(self, block: Block) -> None:
        """Count the elements of a block."""
        if block.special is None:
            return
        largest = self._elements.range.largest
        device = np.clip(block.device[block.special], -largest, largest)
        bench = np.clip(block.bench[block.special], -largest, largest)
        rounded = self._elements.round_bench(bench)
        agree = np.abs(device - rounded) / (np.abs(rounded) + self._elements.eps) <= self._rtol
        agree |= np.isnan(device) & np.isnan(bench)
        self.count += agree.size
        self._wrong += agree.size - int(np.count_nonzero(agree))

    @property
    def rate(self) -> float:
        """Share of the counted elements in which the sides disagree; 0 without counted elements."""
        return compute_share(self._wrong, self.count)
