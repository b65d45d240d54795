"""The ULP error method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from probe_precheck import Judgement, Message, Numbers, Output

from probe_metrics.precheck.elements import Block, Elements, Flat, share
from probe_metrics.precheck.ratio import ratio_of
from probe_metrics.precheck.thresholds import of_kind, thresholds
from probe_metrics.precheck.verdicts import GPU_FAILS, passes

EXPONENT_BITS, BIAS, MANTISSA_BITS = np.int64(0x7FF), np.int64(1023), np.int64(52)
"""The layout of float64."""


class UlpError:
    """|device - bench| in units of the last place that the bench has in the device's dtype.

    Source: pre-check guide 9.7, decisions B2 to B6, B22, C6.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Largest and mean error in ulp, and the share of elements over the dtype's limit; 0 of nothing."""
        elements = output.once(Elements)
        limits = of_kind(thresholds(release, "ulp"), elements.kind)
        largest, total, over = 0.0, 0.0, 0
        with np.errstate(all="ignore"):
            for block in elements.blocks():
                found = ulp_errors(elements, block, limits["mantissa_bits"], limits["min_exponent"])
                largest = float(np.maximum(largest, found.max()))  # nan stays nan
                total += float(np.add.reduce(found))
                over += int(np.count_nonzero(found > limits["element_limit"]))
        return {
            "ulp_max": largest,
            "ulp_mean": share(total, elements.size),
            "ulp_share": share(over, elements.size),
        }

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Pass where one of the dtype's criteria is met: few elements over the limit, or less than the GPU's.

        float32 has a third one: a small mean. Means or shares that are inf or nan on one side fail.
        """
        limits = thresholds(release, "ulp")
        mean = ratio_of("ulp_mean", npu["ulp_mean"], gpu["ulp_mean"], limits["by_zero"])
        floors = thresholds(release, "benchmark_ratio").get("floor")
        floor = of_kind(floors, npu.kind) if floors else 0.0
        ratio = ratio_of("ulp_share", npu["ulp_share"], gpu["ulp_share"], limits["by_zero"], floor)
        ok = mean.consistent and ratio.consistent
        ok = ok and (_good(npu, limits) or npu["ulp_share"] < gpu["ulp_share"])
        messages = [one.message for one in (mean, ratio) if one.message]
        if not ok:
            too = "" if _good(gpu, limits) else GPU_FAILS
            english = f"ERROR: the ULP error is over the standard's limits{too}"
            messages.append(Message(f"ERROR: ULP误差不满足标准{too}", english))
        cells: dict[str, float | str] = {
            "ulp_mean": npu["ulp_mean"],
            "ulp_share": npu["ulp_share"],
            "ulp_share_ratio": ratio.value,
            "ulp_status": passes(ok),
        }
        return Judgement(passes(ok), cells, tuple(messages))


def ulp_errors(elements: Elements, block: Block, mantissa_bits: int, min_exponent: int) -> Flat:
    """|device - bench| 2^(mantissa_bits - e) of a block, e the bench's binary exponent, at least the minimum.

    The exponent of 0 counts as 0 (B4). 0 where the device is inf and the bench rounds to the same (B6). The
    exponent is read from the bits of float64, so that it is exact; float64's own subnormals read as -1023.
    """
    exponent = block.bench.view(np.int64) >> MANTISSA_BITS
    exponent &= EXPONENT_BITS
    exponent -= BIAS
    exponent[block.bench == 0] = 0
    np.maximum(exponent, min_exponent, out=exponent)
    scale = np.subtract(mantissa_bits + BIAS, exponent, out=exponent)
    scale <<= MANTISSA_BITS
    found: Flat = block.error * scale.view(np.float64)
    if block.special is not None:
        found[elements.overflows(block.device, block.bench)] = 0
    return found


def _good(numbers: Numbers, limits: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether one side meets a criterion by itself."""
    own = of_kind(limits, numbers.kind)
    mean_limit = own.get("mean_limit")
    if mean_limit is not None and numbers["ulp_mean"] < mean_limit:
        return True
    found: bool = numbers["ulp_share"] < own["share_limit"]
    return found
