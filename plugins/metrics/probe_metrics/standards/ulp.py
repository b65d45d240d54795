"""Standard of the ULP error method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from probe_precheck.api import Judgement, Message, Output
from probe_precheck.model import Numbers

from probe_metrics.standards.elements import Block, Elements, Flat, compute_share
from probe_metrics.standards.ratio import compare_numbers
from probe_metrics.standards.thresholds import get_for_dtype, load_thresholds
from probe_metrics.standards.verdicts import GPU_FAILS_SUFFIX, convert_to_status

EXPONENT_MASK, EXPONENT_BIAS, MANTISSA_BITS = np.int64(0x7FF), np.int64(1023), np.int64(52)
"""Layout of float64: mask of the exponent, its bias, and number of mantissa bits."""


class UlpError:
    """Requires few large errors in units of the last place (ulp), or fewer than on the trusted device.

    Formula, in float64, for a device D and a benchmark B of one shape: ``|D - B| * 2^(mantissa_bits - e)``, e
    being B's binary exponent, at least ``min_exponent`` of D's dtype. Largest and mean are in ulp, the share
    of elements over the dtype's limit is from 0 to 1.

    Edge cases:
        * B is 0 (or -0.0): its exponent counts as 0, so that errors are measured in ulp of 1.0.
        * D is inf, and B in D's dtype is the same inf: the error is 0.
        * Any other inf or nan: the error is inf or nan, and so are largest and mean.
        * 0-d: like any other. No elements: all three are 0.

    Source: docs/standards.md#ulp, by the pre-check guide of msprobe 1.0.4.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return largest and mean error in ulp, and the share of elements over the dtype's limit."""
        elements = output.once(Elements)
        limits = get_for_dtype(load_thresholds(release, "ulp"), elements.kind)
        largest, total, over = 0.0, 0.0, 0
        with np.errstate(all="ignore"):
            for block in elements.split_blocks():
                errors = measure_ulp_errors(elements, block, limits["mantissa_bits"], limits["min_exponent"])
                largest = float(np.maximum(largest, errors.max()))  # nan stays nan
                total += float(np.add.reduce(errors))
                over += int(np.count_nonzero(errors > limits["element_limit"]))
        return {
            "ulp_max": largest,
            "ulp_mean": compute_share(total, elements.size),
            "ulp_share": compute_share(over, elements.size),
        }

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return pass if the share over the limit is small, or smaller than the GPU's, else error.

        float32 also passes with a small mean. Means or shares that are inf or nan on one device only, or not
        the same, are an error.
        """
        limits = load_thresholds(release, "ulp")
        mean = compare_numbers("ulp_mean", npu["ulp_mean"], gpu["ulp_mean"], limits["by_zero"])
        floors = load_thresholds(release, "benchmark_ratio").get("floor")
        floor = get_for_dtype(floors, npu.kind) if floors else 0.0
        ratio = compare_numbers("ulp_share", npu["ulp_share"], gpu["ulp_share"], limits["by_zero"], floor)
        ok = mean.is_consistent and ratio.is_consistent
        ok = ok and (_is_good(npu, limits) or npu["ulp_share"] < gpu["ulp_share"])
        messages = [item.message for item in (mean, ratio) if item.message]
        if not ok:
            gpu_fails = "" if _is_good(gpu, limits) else GPU_FAILS_SUFFIX
            english = f"ERROR: the ULP error is over the standard's limits{gpu_fails}"
            messages.append(Message(f"ERROR: ULP误差不满足标准{gpu_fails}", english))
        cells: dict[str, float | str] = {
            "ulp_mean": npu["ulp_mean"],
            "ulp_share": npu["ulp_share"],
            "ulp_share_ratio": ratio.value,
            "ulp_status": convert_to_status(ok),
        }
        return Judgement(convert_to_status(ok), cells, tuple(messages))


def measure_ulp_errors(elements: Elements, block: Block, mantissa_bits: int, min_exponent: int) -> Flat:
    """Return the errors of a block in ulp, by the formula of ``UlpError``.

    The exponent is read from the bits of float64, so that it is exact; subnormals of float64 itself have
    -1023.

    Args:
        elements: The output that the block is of.
        block: The elements.
        mantissa_bits: The number of mantissa bits of the device's dtype.
        min_exponent: Its smallest exponent.
    """
    exponent = block.bench.view(np.int64) >> MANTISSA_BITS
    exponent &= EXPONENT_MASK
    exponent -= EXPONENT_BIAS
    exponent[block.bench == 0] = 0
    np.maximum(exponent, min_exponent, out=exponent)
    scale = np.subtract(mantissa_bits + EXPONENT_BIAS, exponent, out=exponent)
    scale <<= MANTISSA_BITS
    errors: Flat = block.error * scale.view(np.float64)
    if block.special is not None:
        errors[elements.find_overflows(block.device, block.bench)] = 0
    return errors


def _is_good(numbers: Numbers, limits: Mapping[str, Mapping[str, float]]) -> bool:
    """Return True if one device's numbers meet a criterion without the other device's."""
    dtype_limits = get_for_dtype(limits, numbers.kind)
    mean_limit = dtype_limits.get("mean_limit")
    if mean_limit is not None and numbers["ulp_mean"] < mean_limit:
        return True
    is_few: bool = numbers["ulp_share"] < dtype_limits["share_limit"]
    return is_few
