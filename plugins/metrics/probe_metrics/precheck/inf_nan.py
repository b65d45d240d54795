"""The inf/nan error rate (spec: pre-check guide 9.3, decision A2)."""

from __future__ import annotations

import numpy as np

from probe_metrics.precheck.elements import Block, Elements, share


class InfNanTally:
    """Counts elements that are inf or nan on either side, and those of them in which the sides disagree.

    Both sides are clipped to the finite numbers of the device's dtype. They agree where both are nan, or
    where |device - bench| / (|bench| + eps) is at most ``rtol``, with the clipped bench in the device's numpy
    dtype; so inf agrees with the largest number of its sign.
    """

    def __init__(self, elements: Elements, rtol: float) -> None:
        self._elements = elements
        self._rtol = elements.limit(rtol)
        self.count = self._wrong = 0

    def add(self, block: Block) -> None:
        """Count a block."""
        if block.special is None:
            return
        largest = self._elements.range.largest
        device = np.clip(block.device[block.special], -largest, largest)
        bench = np.clip(block.bench[block.special], -largest, largest)
        rounded = self._elements.rounded(bench)
        agree = np.abs(device - rounded) / (np.abs(rounded) + self._elements.eps) <= self._rtol
        agree |= np.isnan(device) & np.isnan(bench)
        self.count += agree.size
        self._wrong += agree.size - int(np.count_nonzero(agree))

    @property
    def rate(self) -> float:
        """The share that disagrees; 0 where nothing is inf or nan."""
        return share(self._wrong, self.count)
