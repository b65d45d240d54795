"""Columns of the pre-check's csv files: key, Chinese and English header (docs/standards.md#csv)."""

from __future__ import annotations

from typing import NamedTuple


class CsvColumn(NamedTuple):
    """Column of a csv file.

    Attributes:
        key: The name of the column in code.
        chinese: The header of msprobe's files.
        english: The header with ``--lang en``.
    """

    key: str
    chinese: str
    english: str

    def header(self, language: str) -> str:
        """Return the header in ``zh`` or ``en``."""
        return self.english if language == "en" else self.chinese


def _create_column(key: str, header: str) -> CsvColumn:
    """Return a column with the same header in both languages."""
    return CsvColumn(key, header, header)


RESULT = (
    _create_column("name", "API name"),
    _create_column("forward", "Forward Test Success"),
    _create_column("backward", "Backward Test Success"),
    _create_column("message", "Message"),
)
"""Columns of the result file of run_ut, which has a row for each API call."""

NUMBERS = (
    CsvColumn("cosine", "余弦相似度", "Cosine Similarity"),
    CsvColumn("max_abs_error", "最大绝对误差", "Max Abs Error"),
    CsvColumn("hundredth", "双百指标", "Dual Hundredth"),
    CsvColumn("thousandth", "双千指标", "Dual Thousandth"),
    CsvColumn("ten_thousandth", "双万指标", "Dual Ten-Thousandth"),
    CsvColumn("error_rate", "二进制一致错误率", "Binary Error Rate"),
    CsvColumn("error_balance", "误差均衡性", "Error Balance"),
    CsvColumn("rmse", "均方根误差", "RMSE"),
    CsvColumn("small_value_error_share", "小值域错误占比", "Small Value Error Share"),
    CsvColumn("max_relative_error", "相对误差最大值", "Max Relative Error"),
    CsvColumn("mean_relative_error", "相对误差平均值", "Mean Relative Error"),
    CsvColumn("inf_nan_error_rate", "inf/nan错误率", "Inf/NaN Error Rate"),
    CsvColumn("relative_error_rate", "相对误差错误率", "Relative Error Rate"),
    CsvColumn("absolute_error_rate", "绝对误差错误率", "Absolute Error Rate"),
    CsvColumn("ulp_max", "ULP误差最大值", "ULP Max"),
    CsvColumn("ulp_mean", "ULP误差平均值", "ULP Mean"),
    CsvColumn("ulp_share", "ULP误差大于阈值占比", "ULP Share over Limit"),
)
"""Columns of the numbers that are measured for an output, in the order of the details file."""
_NUMBER_COLUMNS = {column.key: column for column in NUMBERS}

DETAILS = (
    _create_column("name", "API Name"),
    _create_column("bench_dtype", "Bench Dtype"),
    _create_column("device_dtype", "DEVICE Dtype"),
    _create_column("shape", "Shape"),
    *NUMBERS,
    _create_column("status", "Status"),
    _create_column("message", "Message"),
)
"""Columns of the details file of run_ut, which has a row for each output."""


class Tables(NamedTuple):
    """Columns of the result file and the details file of a pre-check.

    The first stage of a framework may define other columns.
    """

    result: tuple[CsvColumn, ...] = RESULT
    details: tuple[CsvColumn, ...] = DETAILS


COMPARE_RESULT = (_create_column("name", "API Name"), *RESULT[1:])
"""Columns of the result file of api_precision_compare, which has a row for each API call."""

COMPARE_DETAILS = (
    _create_column("name", "API Name"),
    CsvColumn("small_value_ratio", "小值域错误比值", "Small Value Error Ratio"),
    CsvColumn("small_value_status", "小值域判定结果", "Small Value Result"),
    CsvColumn("rmse_ratio", "均方根误差比值", "RMSE Ratio"),
    CsvColumn("rmse_status", "均方根误差判定结果", "RMSE Result"),
    CsvColumn("max_relative_ratio", "相对误差最大值比值", "Max Relative Error Ratio"),
    CsvColumn("max_relative_status", "相对误差最大值判定结果", "Max Relative Error Result"),
    CsvColumn("mean_relative_ratio", "相对误差平均值比值", "Mean Relative Error Ratio"),
    CsvColumn("mean_relative_status", "相对误差平均值判定结果", "Mean Relative Error Result"),
    CsvColumn("error_balance_ratio", "误差均衡性比值", "Error Balance Ratio"),
    CsvColumn("error_balance_status", "误差均衡性判定结果", "Error Balance Result"),
    _NUMBER_COLUMNS["inf_nan_error_rate"],
    CsvColumn("inf_nan_status", "inf/nan判定结果", "Inf/NaN Result"),
    _NUMBER_COLUMNS["relative_error_rate"],
    CsvColumn("relative_error_status", "相对误差判定结果", "Relative Error Result"),
    _NUMBER_COLUMNS["absolute_error_rate"],
    CsvColumn("absolute_error_status", "绝对误差判定结果", "Absolute Error Result"),
    _NUMBER_COLUMNS["error_rate"],
    CsvColumn("error_rate_status", "二进制一致错误率判定结果", "Binary Error Rate Result"),
    _NUMBER_COLUMNS["ulp_mean"],
    _NUMBER_COLUMNS["ulp_share"],
    CsvColumn("ulp_share_ratio", "ULP误差大于阈值占比比值", "ULP Share Ratio"),
    CsvColumn("ulp_status", "ULP误差判定结果", "ULP Result"),
    _NUMBER_COLUMNS["thousandth"],
    CsvColumn("thousandth_status", "双千指标判定结果", "Dual Thousandth Result"),
    CsvColumn("status", "比对结果", "Compare Result"),
    CsvColumn("algorithm", "比对算法", "Compare Algorithm"),
    _create_column("message", "Message"),
)
"""Columns of the details file of api_precision_compare, which has a row for each output."""
