"""The metric itself, imported when it is asked for."""

import numpy as np

from probe_core.model import Measurement


class SignFlips:
    """Share of elements where one side is above zero and the other below; nan never flips."""

    def measure(self, pair):
        """The share, from 0 to 1."""
        if pair.target.dtype.kind == "c":
            return [Measurement.absent("no_number")]
        with np.errstate(all="ignore"):
            flips = sum(np.count_nonzero(np.sign(n) * np.sign(b) < 0) for n, b in pair.blocks())
        return [Measurement(flips / pair.target.size)]
