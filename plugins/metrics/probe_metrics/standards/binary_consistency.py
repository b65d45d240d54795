"""Standard of the binary consistency method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from probe_precheck.api import Judgement, Message, Output
from probe_precheck.model import Numbers

from probe_metrics.standards.elements import BFLOAT16, compute_share
from probe_metrics.standards.verdicts import find_worst_status, judge_zero_rates

TOPK_API = "topk"
TOPK_HINT = Message(
    "NPU上topk的入参sorted=False不生效，始终返回有序结果，而CPU返回无序结果；如用了sorted=False，请先排除该差异。",
    "On the NPU topk ignores sorted=False and returns sorted values, on the CPU it does not: where the call "
    "has sorted=False, that may be the difference.",
)


class BinaryConsistency:
    """Requires that every element equals the benchmark's; for every dtype.

    Formula, for a device D and a benchmark B of one shape: number of elements with ``D != B``, divided by the
    number of all; a share from 0 to 1, which must be 0. If D is bfloat16, a float64 B is rounded to float32
    first.

    Edge cases:
        * nan equals nan; inf equals inf of the same sign; 0.0 equals -0.0. A benchmark of 0 is not a special
          case.
        * 0-d: like any other. No elements: the share is 0.

    Source: docs/standards.md#binary-consistency, by the pre-check guide of msprobe 1.0.4, in which nan does
    not equal nan.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return the share of elements that differ."""
        return {"error_rate": output.once(measure_error_rate)}

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return pass if no element differs; the GPU's rate only adds to the message."""
        statuses, cells, messages = judge_zero_rates(npu, gpu, {"error_rate": "error_rate_status"})
        if messages and TOPK_API in npu.text("name").split("."):
            messages = (*messages, TOPK_HINT)
        return Judgement(find_worst_status(statuses), cells, messages)


def measure_error_rate(output: Output) -> float:
    """Return the share of elements that differ; 0 if there are none (see ``BinaryConsistency``)."""
    device, bench = output.device.values, output.bench.values
    with np.errstate(all="ignore"):
        if output.device.kind == BFLOAT16 and bench.dtype == np.float64:
            bench = bench.astype(np.float32)
        differ = np.asarray(device != bench)
        if bench.dtype.kind in "fc" and differ.any():
            differ &= ~((device != device) & (bench != bench))
    return compute_share(int(np.count_nonzero(differ)), differ.size)
