"""The metric sign_flips, imported when it is first used."""

import numpy as np

from probe_core.model import Measurement


class SignFlips:
    """Metric: share of elements where one side is above zero and the other below; nan never flips."""

    def measure(self, pair):
        """Return the share of a pair, from 0 to 1; complex tensors have none."""
        if pair.target.dtype.kind == "c":
            return [Measurement.absent("no_number")]
        with np.errstate(all="ignore"):
            flips = sum(np.count_nonzero(np.sign(n) * np.sign(b) < 0) for n, b in pair.blocks())
        return [Measurement(flips / pair.target.size)]
