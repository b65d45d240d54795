"""A third-party metric: the sign flips between two tensors."""

import numpy as np

from probe_core.hookspecs import hookimpl
from probe_core.model import Measurement
from probe_core.specs import MetricSpec


@hookimpl
def probe_metrics():
    """One metric with one column."""
    return [
        MetricSpec(
            name="sign_flips",
            summary="share of elements whose sign differs",
            columns=("Sign flips",),
            factory="probe_sample:SignFlips",
        )
    ]


class SignFlips:
    """Share of elements where one side is above zero and the other below; nan never flips."""

    def measure(self, pair):
        """The share, from 0 to 1."""
        if pair.target.dtype.kind == "c":
            return [Measurement.absent("no_number")]
        flips = sum(np.count_nonzero(np.sign(n) * np.sign(b) < 0) for n, b in pair.blocks())
        return [Measurement(flips / pair.target.size)]
