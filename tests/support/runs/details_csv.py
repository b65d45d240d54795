"""Details files of the pre-check written by hand, compared, and both results read back.

The headers stand here as the guide has them (sections 8 and 10), so that a changed one is seen.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from probe_precheck.assignment import Assignment
from probe_precheck.comparison import compare_details, write_comparison

from probe_core.plugins.manager import Manager

KEYS = ("name", "bench", "dtype", "shape", "cosine", "max_abs", "hundredth", "thousandth", "ten_thousandth",
        "binary", "balance", "rmse", "small", "max_rel", "mean_rel", "inf_nan", "relative", "absolute",
        "ulp_max", "ulp_mean", "ulp_share", "status", "message")  # fmt: skip
"""Short names of the columns of the details."""
CHINESE = ("API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "余弦相似度", "最大绝对误差", "双百指标", "双千指标",
           "双万指标", "二进制一致错误率", "误差均衡性", "均方根误差", "小值域错误占比", "相对误差最大值", "相对误差平均值",
           "inf/nan错误率", "相对误差错误率", "绝对误差错误率", "ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比",
           "Status", "Message")  # fmt: skip
ENGLISH = ("API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "Cosine Similarity", "Max Abs Error",
           "Dual Hundredth", "Dual Thousandth", "Dual Ten-Thousandth", "Binary Error Rate", "Error Balance", "RMSE",
           "Small Value Error Share", "Max Relative Error", "Mean Relative Error", "Inf/NaN Error Rate",
           "Relative Error Rate", "Absolute Error Rate", "ULP Max", "ULP Mean", "ULP Share over Limit",
           "Status", "Message")  # fmt: skip

RESULT = ["API Name", "Forward Test Success", "Backward Test Success", "Message"]
COMPARED = [
    "API Name", "小值域错误比值", "小值域判定结果", "均方根误差比值", "均方根误差判定结果", "相对误差最大值比值",
    "相对误差最大值判定结果", "相对误差平均值比值", "相对误差平均值判定结果", "误差均衡性比值", "误差均衡性判定结果",
    "inf/nan错误率", "inf/nan判定结果", "相对误差错误率", "相对误差判定结果", "绝对误差错误率", "绝对误差判定结果",
    "二进制一致错误率", "二进制一致错误率判定结果", "ULP误差平均值", "ULP误差大于阈值占比", "ULP误差大于阈值占比比值",
    "ULP误差判定结果", "双千指标", "双千指标判定结果", "比对结果", "比对算法", "Message",
]  # fmt: skip
COMPARED_ENGLISH = [
    "API Name", "Small Value Error Ratio", "Small Value Result", "RMSE Ratio", "RMSE Result",
    "Max Relative Error Ratio", "Max Relative Error Result", "Mean Relative Error Ratio",
    "Mean Relative Error Result", "Error Balance Ratio", "Error Balance Result", "Inf/NaN Error Rate",
    "Inf/NaN Result", "Relative Error Rate", "Relative Error Result", "Absolute Error Rate",
    "Absolute Error Result", "Binary Error Rate", "Binary Error Rate Result", "ULP Mean", "ULP Share over Limit",
    "ULP Share Ratio", "ULP Result", "Dual Thousandth", "Dual Thousandth Result", "Compare Result",
    "Compare Algorithm", "Message",
]  # fmt: skip

Row = dict[str, str]
"""A row of the details: texts by ``KEYS``; what it lacks is a single blank."""

RATIOS: dict[str, Any] = dict.fromkeys(("small", "rmse", "max_rel", "mean_rel", "balance"), 0.5)
"""Cells that the benchmark method needs, and passes where both sides have them."""
GOOD: dict[str, dict[str, Any]] = {
    "benchmark": RATIOS,
    "absolute": {"inf_nan": 0.0, "relative": 0.0, "absolute": 0.0},
    "binary": {"binary": 0.0},
    "ulp": {"ulp_mean": 0.0, "ulp_share": 0.0},
    "dual": {"thousandth": 1.0},
}
"""For each method the cells that it needs, with values that pass."""
API = {"benchmark": "exp", "absolute": "mul", "binary": "abs", "ulp": "matmul", "dual": "conv2d"}
"""For each method an API that it judges."""


def row(name: str, dtype: str = "float32", **cells: Any) -> Row:
    """A row; numbers are written so that they read back as the same float64. None is a blank."""
    text = f"torch.{dtype}" if dtype.isalnum() else dtype
    return {"name": name, "dtype": text, **{key: _text(value) for key, value in cells.items()}}


def _text(value: Any) -> str:
    return " " if value is None else value if isinstance(value, str) else repr(float(value))


def output(method: str, number: int = 0, phase: str = "forward", index: int = 0) -> str:
    """The name of an output of an API that ``method`` judges."""
    return f"Torch.{API[method]}.{number}.{phase}.output.{index}"


def write(path: Path, rows: Iterable[Mapping[str, str]], header: Sequence[str] = CHINESE,
          encoding: str = "utf-8-sig", **dialect: Any) -> Path:  # fmt: skip
    """Write a details file, in the columns' order of ``header`` (Chinese or English, or some of either)."""
    keys = {**dict(zip(CHINESE, KEYS)), **dict(zip(ENGLISH, KEYS))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, **dialect)
        writer.writerow(header)
        writer.writerows([line.get(keys.get(name.strip(), name), " ") for name in header] for line in rows)
    return path


class Found(NamedTuple):
    """Both files of a comparison, read back: rows by name, and the headers of the details.

    ``results`` has the statuses of forward and backward, and the message.
    """

    details: dict[str, dict[str, str]]
    results: dict[str, tuple[str, str, str]]
    header: list[str]
    missing: list[str]


def read_back(directory: Path) -> Found:
    """The one pair of files in ``directory``; all rows have all their fields, all names once."""
    (details,) = directory.glob("api_precision_compare_details_*.csv")
    (results,) = directory.glob("api_precision_compare_result_*.csv")
    tables = []
    for path in (details, results):
        assert path.read_bytes().startswith(b"\xef\xbb\xbf") and path.stat().st_mode & 0o777 == 0o640
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
        assert all(len(line) == len(header) and all(line) for line in rows)
        assert len({line[0] for line in rows}) == len(rows)
        tables.append((header, rows))
    (header, rows), (second, lines) = tables
    assert second == RESULT
    by_name = {line[0]: dict(zip(header, line)) for line in rows}
    return Found(by_name, {line[0]: (line[1], line[2], line[3]) for line in lines}, header, [])


@cache
def assignment(release: str) -> Assignment:
    """The standards as installed, with the thresholds of a release."""
    return Assignment(Manager(), release)


def compare_files(npu: Path, gpu: Path, release: str = "seed", language: str | None = None) -> Found:
    """Compare two files, and read back what was written."""
    compared = compare_details(npu, gpu, assignment(release))
    out = npu.parent / f"out-{len(list(npu.parent.iterdir()))}"
    write_comparison(compared, out, "20260101120000", language)
    return read_back(out)._replace(missing=compared.missing)


def compare(directory: Path, npu: Iterable[Row], gpu: Iterable[Row], release: str = "seed") -> Found:
    """Compare rows."""
    return compare_files(write(directory / "npu.csv", npu), write(directory / "gpu.csv", gpu), release)


def printed(value: float) -> str:
    """A number as the results have it, with 14 digits."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.14e}" if 0 < abs(value) < 1e-3 else f"{value:.14f}"


def above(value: float) -> float:
    """The next float64."""
    return math.nextafter(value, math.inf)


def below(value: float) -> float:
    """The float64 before."""
    return math.nextafter(value, -math.inf)
