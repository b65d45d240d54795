"""Standard of the absolute threshold method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from probe_precheck.api import Judgement, Output
from probe_precheck.model import Numbers

from probe_metrics.standards.elements import Elements, compute_share
from probe_metrics.standards.inf_nan import InfNanTally
from probe_metrics.standards.thresholds import get_for_dtype, load_thresholds
from probe_metrics.standards.verdicts import find_worst_status, judge_zero_rates

RATE_STATUS_COLUMNS = {
    "inf_nan_error_rate": "inf_nan_status",
    "relative_error_rate": "relative_error_status",
    "absolute_error_rate": "absolute_error_status",
}
"""Columns of the details whose values must be 0, each with the column of its verdict."""


class AbsoluteThreshold:
    """Requires that every element is within the bound of its class: the three shares of misses must be 0.

    Formulas, in float64, for the output D of the device and the benchmark B, which have the same shape. The limits
    are converted to the dtype of B. An element is special (inf or nan on either side), small (``|B| <=
    small_value``) or normal. A normal element misses its bound unless ``|D - B| / (|B| + eps) <= rtol``, and a small
    element unless ``|D - B| <= atol`` (in the unit of the data). eps is the eps of the dtype of B, or 2^-8 if D is
    bfloat16. Each share is relative to the number of elements of its class.

    Edge cases:
        * nan or inf on either side: judged by ``inf_nan.InfNanTally``; nan on both sides agrees, and so does
          inf with inf or the largest number of the same sign.
        * B is 0 (or -0.0): the element is small.
        * 0-d: like other tensors. No elements, or no elements of a class: the share is 0.

    Source: docs/standards.md#absolute-threshold, which follows the pre-check guide of msprobe 1.0.4.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return the three rates, each between 0 and 1; 0 if its class has no elements."""
        elements = output.once(Elements)
        limits = get_for_dtype(load_thresholds(release, "absolute_threshold"), elements.kind)
        return measure_error_rates(elements, limits["rtol"], limits["small_value"], limits["small_value_atol"])

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return pass if each rate of the device is exactly 0; the GPU's rates only add to the message."""
        statuses, cells, messages = judge_zero_rates(npu, gpu, RATE_STATUS_COLUMNS)
        return Judgement(find_worst_status(statuses), cells, messages)


def measure_error_rates(elements: Elements, rtol: float, small_value: float, atol: float) -> dict[str, float | int]:
    """Return the shares of special, normal and small elements that miss their bound.

    Args:
        elements: The elements of both sides.
        rtol: The bound of ``|device - bench| / (|bench| + eps)`` for normal values.
        small_value: The largest ``|bench|`` of a small value.
        atol: The bound of ``|device - bench|`` for small values.
    """
    tally = InfNanTally(elements, rtol)
    rtol, small_value, atol = elements.limit(rtol), elements.limit(small_value), elements.limit(atol)
    small_count = small_wrong = wrong = 0
    with np.errstate(all="ignore"):
        for block in elements.split_blocks():
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
        "relative_error_rate": compute_share(wrong, elements.size - tally.count - small_count),
        "absolute_error_rate": compute_share(small_wrong, small_count),
    }
