"""Standard of the accumulative error method."""

from __future__ import annotations

from collections.abc import Mapping

from probe_precheck.api import Judgement, Output, Status
from probe_precheck.model import Numbers

from probe_metrics.standards.absolute_threshold import RATE_STATUS_COLUMNS, measure_error_rates
from probe_metrics.standards.elements import Elements, measure_error_balance
from probe_metrics.standards.thresholds import get_for_dtype, load_thresholds
from probe_metrics.standards.verdicts import (
    MEASURED_COLUMNS,
    convert_to_status,
    create_limit_message,
    find_number,
    find_worst_status,
    judge_zero_rates,
)


class AccumulativeError:
    """Requires that errors of long sums are within one bound, and about as often above as below.

    Formulas: the three rates of the absolute threshold standard, with one bound for all of them and a small
    value of 1; each must be 0. The error balance ``|#(D > B) - #(D < B)| / size`` of a device D and a
    benchmark B must be at most the dtype's limit. All four are shares. nan, inf, -0.0, a benchmark of 0, 0-d
    and empty arrays: as in ``AbsoluteThreshold``; nan is on neither side of the balance.

    Source: docs/standards.md#accumulative-error, by msprobe 8.3, which has no API for it; a list given
    by ``--assign`` may.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return the three rates of the absolute threshold standard, and the error balance."""
        elements = output.once(Elements)
        limits = load_thresholds(release, "accumulative_error")
        bound = get_for_dtype(limits, elements.kind)["bound"]
        columns = measure_error_rates(elements, bound, limits["small_value"], bound)
        columns["error_balance"] = measure_error_balance(elements)
        return columns

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return pass if each rate is exactly 0 and the balance is within the dtype's limit."""
        limit = get_for_dtype(load_thresholds(release, "accumulative_error"), npu.kind)["error_balance"]
        statuses, cells, messages = judge_zero_rates(npu, gpu, RATE_STATUS_COLUMNS)
        status = convert_to_status(npu["error_balance"] <= limit)
        statuses.append(status)
        cells["error_balance_status"] = status
        if status is Status.ERROR:
            gpu_balance = find_number(gpu, "error_balance")
            gpu_fails = gpu_balance is not None and not gpu_balance <= limit
            messages = (*messages, create_limit_message(MEASURED_COLUMNS["error_balance"], status, gpu_fails))
        return Judgement(find_worst_status(statuses), cells, messages)
