"""The absolute threshold method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from probe_precheck import Judgement, Numbers, Output

from probe_metrics.precheck.elements import Elements, share
from probe_metrics.precheck.inf_nan import InfNanTally
from probe_metrics.precheck.thresholds import of_kind, thresholds
from probe_metrics.precheck.verdicts import judge_zero_rates, worst

RATES = {
    "inf_nan_error_rate": "inf_nan_status",
    "relative_error_rate": "relative_error_status",
    "absolute_error_rate": "absolute_error_status",
}
"""The columns of the details that must be 0, and those of their verdicts."""


class AbsoluteThreshold:
    """Small errors, element by element: three shares of elements that miss a bound, all to be 0.

    Source: pre-check guide 9.2, 9.3, decisions A2, B7, B8.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """The three rates, each between 0 and 1; 0 where no element is of their kind."""
        elements = output.once(Elements)
        limits = of_kind(thresholds(release, "absolute_threshold"), elements.kind)
        return error_rates(elements, limits["rtol"], limits["small_value"], limits["small_value_atol"])

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Pass where each rate of the device is exactly 0; the GPU's are for the message alone (B32)."""
        statuses, cells, messages = judge_zero_rates(npu, gpu, RATES)
        return Judgement(worst(statuses), cells, messages)


def error_rates(elements: Elements, rtol: float, small_value: float, atol: float) -> dict[str, float | int]:
    """Shares of elements that miss their bound: of inf and nan, of normal values, of small values (9.3).

    Normal values miss ``|device - bench| / (|bench| + eps) <= rtol``; small ones, up to ``small_value`` in
    |bench|, miss ``|device - bench| <= atol``.
    """
    tally = InfNanTally(elements, rtol)
    rtol, small_value, atol = elements.limit(rtol), elements.limit(small_value), elements.limit(atol)
    small_count = small_wrong = wrong = 0
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            tally.add(block)
            small = block.magnitude <= small_value
            missed = block.error / (block.magnitude + elements.eps) > rtol
            if block.special is not None:
                small &= ~block.special
                missed &= ~block.special
            small_count += int(np.count_nonzero(small))
            small_wrong += int(np.count_nonzero(block.error[small] > atol))
            wrong += int(np.count_nonzero(missed & ~small))
    return {
        "inf_nan_error_rate": tally.rate,
        "relative_error_rate": share(wrong, elements.size - tally.count - small_count),
        "absolute_error_rate": share(small_wrong, small_count),
    }
