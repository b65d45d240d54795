"""Standard of the dual thousandth method."""

from __future__ import annotations

from collections.abc import Mapping

from probe_precheck.api import Judgement, Message, Output
from probe_precheck.model import Numbers

from probe_metrics.standards.closeness import measure_shares_below
from probe_metrics.standards.elements import Elements
from probe_metrics.standards.thresholds import load_thresholds
from probe_metrics.standards.verdicts import GPU_FAILS_SUFFIX, convert_to_status, find_number


class DualThousandth:
    """Requires that nearly all elements are within a thousandth of the benchmark.

    Formula, in float64, for a device D and a benchmark B of one shape: share of the elements with
    ``|D - B| / (|B| + eps) < 0.001``, which must be above 0.999. eps is that of B's dtype; 2^-8 if D is
    bfloat16.

    Edge cases:
        * nan or inf: left out if the sides agree; counted as missed if not.
        * B is 0 (or -0.0): eps alone is the denominator.
        * 0-d: like any other. No elements, or none that is finite: the share is 1.

    Source: docs/standards.md#dual-thousandth, by the pre-check guide of msprobe 1.0.4.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return the share of elements with a relative error below a thousandth."""
        limit = load_thresholds(release, "dual_thousandth")["relative"]
        return {"thousandth": measure_shares_below(output.once(Elements), [limit])[0]}

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return pass if the share is above the limit; the GPU's share only adds to the message."""
        limit = load_thresholds(release, "dual_thousandth")["share"]
        share = npu["thousandth"]
        status = convert_to_status(share > limit)
        cells: dict[str, float | str] = {"thousandth": share, "thousandth_status": status}
        if share > limit:
            return Judgement(status, cells)
        gpu_share = find_number(gpu, "thousandth")
        gpu_fails = "" if gpu_share is None or gpu_share > limit else GPU_FAILS_SUFFIX
        english = f"ERROR: too few elements are within a thousandth of the benchmark{gpu_fails}"
        return Judgement(status, cells, (Message(f"ERROR: 双千指标不达标{gpu_fails}", english),))
