"""The binary consistency method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from probe_precheck import Judgement, Message, Numbers, Output

from probe_metrics.precheck.elements import BFLOAT16, share
from probe_metrics.precheck.verdicts import judge_zero_rates, worst

TOPK = "topk"
TOPK_HINT = Message(
    "NPU上topk的入参sorted=False不生效，始终返回有序结果，而CPU返回无序结果；如用了sorted=False，请先排除该差异。",
    "On the NPU topk ignores sorted=False and returns sorted values, on the CPU it does not: where the call "
    "has sorted=False, that may be the difference.",
)


class BinaryConsistency:
    """Equal, element by element; for every dtype.

    Source: pre-check guide 9.6, decision B1.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """The share of elements that differ."""
        return {"error_rate": output.once(error_rate)}

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Pass where no element differs; the GPU's rate is looked at for the message alone (B32)."""
        statuses, cells, messages = judge_zero_rates(npu, gpu, {"error_rate": "error_rate_status"})
        if messages and TOPK in npu.text("name").split("."):
            messages = (*messages, TOPK_HINT)
        return Judgement(worst(statuses), cells, messages)


def error_rate(output: Output) -> float:
    """The share of elements that differ, 0 of none; nan equals nan and 0.0 equals -0.0 (B1).

    A bench of float64 is rounded to float32 where the device's dtype is bfloat16 (7).
    """
    device, bench = output.device.values, output.bench.values
    with np.errstate(all="ignore"):
        if output.device.kind == BFLOAT16 and bench.dtype == np.float64:
            bench = bench.astype(np.float32)
        differ = np.asarray(device != bench)
        if bench.dtype.kind in "fc" and differ.any():
            differ &= ~((device != device) & (bench != bench))
    return share(int(np.count_nonzero(differ)), differ.size)
