"""The dual thousandth method."""

from __future__ import annotations

from collections.abc import Mapping

from probe_precheck import Judgement, Message, Numbers, Output

from probe_metrics.precheck.closeness import shares_below
from probe_metrics.precheck.elements import Elements
from probe_metrics.precheck.thresholds import thresholds
from probe_metrics.precheck.verdicts import GPU_FAILS, number, passes


class DualThousandth:
    """Nearly all elements within a thousandth of the benchmark.

    Source: pre-check guide 9.8, decisions A8, C5.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """The share of elements with a relative error below a thousandth; 1 of nothing.

        Elements that are inf or nan are left out where the sides agree, and count as missed where not.
        """
        limit = thresholds(release, "dual_thousandth")["relative"]
        return {"thousandth": shares_below(output.once(Elements), [limit])[0]}

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Pass above the limit; the GPU's share is looked at for the message alone (B32)."""
        limit = thresholds(release, "dual_thousandth")["share"]
        found = npu["thousandth"]
        status = passes(found > limit)
        cells: dict[str, float | str] = {"thousandth": found, "thousandth_status": status}
        if found > limit:
            return Judgement(status, cells)
        theirs = number(gpu, "thousandth")
        too = "" if theirs is None or theirs > limit else GPU_FAILS
        english = f"ERROR: too few elements are within a thousandth of the benchmark{too}"
        return Judgement(status, cells, (Message(f"ERROR: 双千指标不达标{too}", english),))
