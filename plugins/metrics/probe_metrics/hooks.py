"""Hooks of probe-metrics: its metrics, policies, standards and the advisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.model import Mode
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.parameters import Parameter
from probe_core.plugins.specs import MetricSpec, Needs, PolicySpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probe_precheck.api import StandardSpec, StatusRuleSpec
    from probe_reporters.api import HighlightSpec, Text

    from probe_core.model import Advice
    from probe_core.model.report import Report

ULP_LIMIT = Parameter("limit", float, "distance in ulp that an element may have; by dtype unless given")
MEASURE_AHEAD_PATH = "probe_metrics.kernel:measure_ahead"
GUIDE_NAME = "whole-net comparison guide, 8.3"
APIS_FILE = "probe_metrics.standards:apis.yaml"
MINT_RESULT_COLUMNS = tuple((key, header, header) for key, header in (
    ("name", "API Name"), ("forward", "Forward Test Success"), ("backward", "Backward Test Success"),
    ("message", "Message"), ("standard", "Standard"),
))  # fmt: skip
MINT_DETAILS_COLUMNS = tuple((key, header, header) for key, header in (
    ("name", "API Name"), ("bench_dtype", "Bench Dtype"), ("device_dtype", "Tested Dtype"),
    ("shape", "Shape"), ("cosine", "Cosine"), ("max_abs_error", "MaxAbsErr"),
    ("max_relative_error", "MaxRelativeErr"), ("status", "Status"), ("message", "Message"),
    ("standard", "Standard"), ("standard_message", "Standard Message"),
))  # fmt: skip
"""Columns of the pre-check of ``mindspore.mint``: those of msprobe, and the verdict of the API's standard."""


@hookimpl
def probe_metrics() -> list[MetricSpec]:
    """Return the metrics of the three tables, and those that ``--metric`` adds."""
    return [
        MetricSpec("cosine", "cosine of the angle between both tensors",
                   "probe_metrics.cosine:Cosine", ("Cosine",), ahead=MEASURE_AHEAD_PATH),
        MetricSpec("euclidean", "Euclidean distance of both tensors",
                   "probe_metrics.euclidean:Euclidean", ("EucDist",), ahead=MEASURE_AHEAD_PATH),
        MetricSpec("max_error", "largest absolute and largest relative error",
                   "probe_metrics.max_error:MaxError", ("MaxAbsErr", "MaxRelativeErr"), ahead=MEASURE_AHEAD_PATH),
        MetricSpec("error_ratio", "share of elements with a relative error below 1/1000 and 5/1000",
                   "probe_metrics.error_ratio:ErrorRatio",
                   ("One Thousandth Err Ratio", "Five Thousandths Err Ratio"), ahead=MEASURE_AHEAD_PATH),
        MetricSpec("statistics", "differences of the recorded maximum, minimum, mean and norm",
                   "probe_metrics.statistics:StatisticsDifference",
                   ("Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr",
                    "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"), Needs.STATISTICS),
        MetricSpec("checksum", "equality of the recorded checksums",
                   "probe_metrics.checksum:Checksum", ("Checksum equal",), Needs.CHECKSUM),
        MetricSpec("rmse", "root mean square error",
                   "probe_metrics.rmse:Rmse", ("RMSE",), ahead=MEASURE_AHEAD_PATH),
        MetricSpec("mape", "mean absolute percentage error, as a ratio",
                   "probe_metrics.mape:Mape", ("MAPE",), ahead=MEASURE_AHEAD_PATH),
        MetricSpec("ulp", "distance in units in the last place, exact",
                   "probe_metrics.ulp:Ulp", ("ULP max", "ULP mean", "ULP share over limit"), ahead=MEASURE_AHEAD_PATH,
                   parameters=(ULP_LIMIT,)),
        MetricSpec("equal", "bitwise equality of both tensors",
                   "probe_metrics.equal:Equal", ("Bitwise equal",), ahead=MEASURE_AHEAD_PATH),
    ]  # fmt: skip


@hookimpl
def probe_policies() -> list[PolicySpec]:
    """Return the policies behind the verdict columns of the three tables, and that of ``-da``."""
    return [
        PolicySpec("accuracy", "Accuracy Reached or Not, by cosine and largest absolute error",
                   "probe_metrics.accuracy:Accuracy", GUIDE_NAME, ("cosine", "max_error"), (Mode.TENSOR,)),
        PolicySpec("statistics", "Warning if a statistic differs by more than half",
                   "probe_metrics.statistics_result:StatisticsResult", GUIDE_NAME, ("statistics",),
                   (Mode.STATISTICS,)),
        PolicySpec("checksum", "Pass where checksum, shape and dtype agree",
                   "probe_metrics.checksum_result:ChecksumResult", GUIDE_NAME, ("checksum",), (Mode.MD5,)),
        PolicySpec("first_difference", "differs or agrees, by more than rounding explains; for -da",
                   "probe_metrics.first_difference:FirstDifference", "probe"),
    ]  # fmt: skip


@hookimpl
def probe_reasons() -> Mapping[str, Text]:
    """Return the texts of this package's reasons, by their codes."""
    from probe_metrics.reasons import REASONS

    return REASONS


@hookimpl
def probe_highlighters() -> list[HighlightSpec]:
    """Return the highlighter behind ``-hl``: red and yellow marks."""
    from probe_reporters.api import HighlightSpec

    return [
        HighlightSpec("red_yellow", "marks outputs that are worse than their inputs",
                      "probe_metrics.highlight:Highlight", GUIDE_NAME,
                      ("cosine", "max_error", "error_ratio", "statistics")),
    ]  # fmt: skip


@hookimpl
def probe_standards() -> list[StandardSpec]:
    """Return the precision standards of the pre-check."""
    from probe_precheck.api import JudgedOutputs, StandardSpec

    return [
        StandardSpec("binary_consistency", "no element differs",
                     "probe_metrics.standards.binary_consistency:BinaryConsistency",
                     "二进制一致法", "Binary Consistency", APIS_FILE, JudgedOutputs.EXACT),
        StandardSpec("absolute_threshold", "no element's error is over its bound",
                     "probe_metrics.standards.absolute_threshold:AbsoluteThreshold",
                     "绝对阈值法", "Absolute Threshold", APIS_FILE),
        StandardSpec("ulp", "few elements with a large error in ulp, or fewer than on the GPU",
                     "probe_metrics.standards.ulp:UlpError", "ULP误差比对法", "ULP Error", APIS_FILE),
        StandardSpec("dual_thousandth", "nearly all elements are within a thousandth",
                     "probe_metrics.standards.dual_thousandth:DualThousandth",
                     "双千指标法", "Dual Thousandth", APIS_FILE),
        StandardSpec("accumulative_error", "errors of long sums within one bound, to either side alike",
                     "probe_metrics.standards.accumulative_error:AccumulativeError",
                     "累积误差比对法", "Accumulative Error", APIS_FILE),
        StandardSpec("benchmark_ratio", "errors no larger than the GPU's, by their ratio",
                     "probe_metrics.standards.benchmark_ratio:BenchmarkRatio",
                     "标杆比对法", "Benchmark Ratio", APIS_FILE, JudgedOutputs.REST),
    ]  # fmt: skip


@hookimpl
def probe_status_rules() -> list[StatusRuleSpec]:
    """Return the first stages of the pre-check: for every framework, and for MindSpore."""
    from probe_precheck.api import CsvColumn, StatusRuleSpec

    result, details = (
        tuple(CsvColumn(*names) for names in table) for table in (MINT_RESULT_COLUMNS, MINT_DETAILS_COLUMNS)
    )

    return [
        StatusRuleSpec("first_stage", "cosine, largest error and shares of small relative errors; exact for "
                       "integers", "probe_metrics.standards.first_stage:FirstStage"),
        StatusRuleSpec("mint_stage", "cosine and largest error for mindspore, and the verdict of the API's "
                       "standard beside it", "probe_metrics.standards.mint_stage:MintStage", "mindspore",
                       result=result, details=details),
    ]  # fmt: skip


@hookimpl
def probe_advise(report: Report) -> Advice | None:
    """Return advice on the first row that fails."""
    from probe_metrics.advisor import advise

    return advise(report)
