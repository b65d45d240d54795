"""The accumulative error method."""

from __future__ import annotations

from collections.abc import Mapping

from probe_precheck import Judgement, Numbers, Output, Status

from probe_metrics.precheck.absolute_threshold import RATES, error_rates
from probe_metrics.precheck.elements import Elements, error_balance
from probe_metrics.precheck.thresholds import of_kind, thresholds
from probe_metrics.precheck.verdicts import MEASURED, judge_zero_rates, number, over_the_limit, passes, worst


class AccumulativeError:
    """Errors of long sums: the absolute threshold method with one bound, and errors to either side alike.

    Source: pre-check guide 9.9 (from release 8.3 on; it serves for any release).
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """The three rates of the absolute threshold method, and the error balance."""
        elements = output.once(Elements)
        limits = thresholds(release, "accumulative_error")
        bound = of_kind(limits, elements.kind)["bound"]
        found = error_rates(elements, bound, limits["small_value"], bound)
        found["error_balance"] = error_balance(elements)
        return found

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Pass where each rate is exactly 0 and the balance within the dtype's limit."""
        limit = of_kind(thresholds(release, "accumulative_error"), npu.kind)["error_balance"]
        statuses, cells, messages = judge_zero_rates(npu, gpu, RATES)
        status = passes(npu["error_balance"] <= limit)
        statuses.append(status)
        cells["error_balance_status"] = status
        if status is Status.ERROR:
            theirs = number(gpu, "error_balance")
            as_well = theirs is not None and not theirs <= limit
            messages = (*messages, over_the_limit(MEASURED["error_balance"], status, as_well))
        return Judgement(worst(statuses), cells, messages)
