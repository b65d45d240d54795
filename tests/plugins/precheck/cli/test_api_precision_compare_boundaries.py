"""``api_precision_compare`` on csv pairs written by hand: each limit of sections 9.3 to 9.8, on it and beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.runs.details_csv import API, GOOD, RATIOS, Found, above, below, compare, printed, row

inf, nan = math.inf, math.nan
RELEASES = ("seed", "8.3")
KINDS = ("float32", "float16", "bfloat16")
TINY = 5e-324
AS_WELL = " (GPU fails as well)"

pytestmark = [pytest.mark.parametrize("release", RELEASES), pytest.mark.parametrize("kind", KINDS)]


@dataclass
class Case:
    """Cells of both sides that differ from those that pass, and what must come of them."""

    npu: dict[str, Any]
    gpu: dict[str, Any]
    status: str
    shown: dict[str, str] = field(default_factory=dict)
    message: str | None = None


def check(directory: Path, method: str, kind: str, release: str, label: str, cases: Sequence[Case]) -> Found:
    """All cases as one pair of files; what the details and the result say of each."""
    names = [f"Torch.{API[method]}.{number}.forward.output.0" for number in range(len(cases))]
    npu, gpu = (
        [row(name, kind, **{**GOOD[method], **(case.npu, case.gpu)[side]}) for name, case in zip(names, cases)]
        for side in (0, 1)
    )
    found = compare(directory, npu, gpu, release)
    for name, case in zip(names, cases):
        line = found.details[name]
        shown = {"比对结果": case.status, "比对算法": label, **case.shown}
        if case.message is not None:
            shown["Message"] = case.message or " "
        assert {key: line[key] for key in shown} == shown, case
        message = " " if case.status == "pass" else line["Message"]
        assert found.results[name.removesuffix(".forward.output.0")] == (case.status, " ", message)
    assert list(found.details) == names and not found.missing
    return found


# 9.3 absolute threshold

RATES = {
    "inf_nan": ("inf/nan错误率", "inf/nan判定结果"),
    "relative": ("相对误差错误率", "相对误差判定结果"),
    "absolute": ("绝对误差错误率", "绝对误差判定结果"),
}


def test_absolute_threshold(kind: str, release: str, tmp_path: Path) -> None:
    """Each rate passes at exactly 0; the GPU's does not count."""
    cases = [Case({}, GOOD["dual"], "pass", {"相对误差判定结果": "pass"}, "")]
    for key, (header, verdict) in RATES.items():
        others = {other: "pass" for _, other in RATES.values() if other != verdict}
        message = f"ERROR: {header}超过阈值"
        for rate, status in ((0.0, "pass"), (-0.0, "pass"), (TINY, "error"), (1e-15, "error"), (1.0, "error"),
                             (inf, "error"), (nan, "error")):  # fmt: skip
            shown = {**others, header: printed(rate), verdict: status}
            for theirs in (0.0, 1.0, None, "text"):
                too = AS_WELL if theirs == 1.0 else ""
                words = message + too if status == "error" else ""
                cases.append(Case({key: rate}, {key: theirs}, status, shown, words))
        another = next(other for other in RATES if other != key)
        cases.append(Case({key: 0.5}, {another: 0.5}, "error", {}, message))
    every = dict.fromkeys(RATES, 0.25)
    message = "; ".join(f"ERROR: {header}超过阈值" for header, _ in RATES.values())
    cases.append(Case(every, {}, "error", dict.fromkeys((v for _, v in RATES.values()), "error"), message))
    check(tmp_path, "absolute", kind, release, "绝对阈值法", cases)


# 9.4, 9.5 benchmark ratio

INDICATORS = {
    "small": ("小值域错误比值", "小值域判定结果", "小值域错误占比", 2),
    "rmse": ("均方根误差比值", "均方根误差判定结果", "均方根误差", 2),
    "max_rel": ("相对误差最大值比值", "相对误差最大值判定结果", "相对误差最大值", 10),
    "mean_rel": ("相对误差平均值比值", "相对误差平均值判定结果", "相对误差平均值", 2),
    "balance": ("误差均衡性比值", "误差均衡性判定结果", "误差均衡性", 2),
}
FLOOR = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-14}


def ratio_case(key: str, npu: float, gpu: float, ratio: float, verdict: str) -> Case:
    """One indicator with these numbers, all others alike: its ratio, its verdict, and what they come to."""
    header, column, _, _ = INDICATORS[key]
    counts = key != "balance"
    message = f"{verdict.upper()}: {header}超过阈值" if counts and verdict != "pass" else ""
    others = {other: "pass" for _, other, _, _ in INDICATORS.values() if other != column}
    shown = {**others, header: printed(ratio), column: verdict}
    return Case({key: npu}, {key: gpu}, verdict if counts else "pass", shown, message)


@pytest.mark.parametrize("key", INDICATORS)
def test_benchmark_ratio(key: str, kind: str, release: str, tmp_path: Path) -> None:
    """The guide warns above 1 and fails above 2 (10 for the largest relative error); msprobe 8.3 does not warn."""
    top = INDICATORS[key][3]
    between = "warning" if release == "seed" else "pass"
    steps = [(0.0, "pass"), (below(1), "pass"), (1.0, "pass"), (above(1), between), (1.5, between),
             (below(top), between), (float(top), between), (above(top), "error"), (1e9, "error")]  # fmt: skip
    if top > 2:
        steps += [(below(2), between), (2.0, between), (above(2), between)]
    cases = []
    for ratio, verdict in steps:
        for scale in (1.0, 0.5, 2.0**30):  # powers of two, so that the quotient is exact; none under a floor
            cases.append(ratio_case(key, ratio * scale, scale, ratio, verdict))
        cases.append(ratio_case(key, -ratio, 1.0, ratio, verdict))
        cases.append(ratio_case(key, ratio, -1.0, ratio, verdict))
    check(tmp_path, "benchmark", kind, release, "标杆比对法", cases)


@pytest.mark.parametrize("key", INDICATORS)
def test_benchmark_ratio_of_small_numbers(key: str, kind: str, release: str, tmp_path: Path) -> None:
    """0 to 0 is 1 in the guide; in 8.3 the GPU's number counts as at least the dtype's floor."""
    top, floor = INDICATORS[key][3], FLOOR[kind]
    if release == "seed":
        cases = [ratio_case(key, 0.0, 0.0, 1.0, "pass"), ratio_case(key, -0.0, 0.0, 1.0, "pass"),
                 ratio_case(key, 0.0, TINY, 0.0, "pass"),
                 ratio_case(key, top * 2.0**-40, 2.0**-40, top, "warning"),
                 ratio_case(key, above(top * 2.0**-40), 2.0**-40, top, "error"),
                 ratio_case(key, 3e-15, 3e-15, 1.0, "pass"), ratio_case(key, 3.1e-15, 1e-16, 31.0, "error")]  # fmt: skip
    else:
        cases = [ratio_case(key, 0.0, 0.0, 0.0, "pass"), ratio_case(key, TINY, 0.0, 0.0, "pass"),
                 ratio_case(key, 2 * floor, 2 * floor, 1.0, "pass"),
                 ratio_case(key, 3 * floor, 2 * floor, 1.5, "pass"),
                 ratio_case(key, above(top * above(floor)), above(floor), top, "error")]  # fmt: skip
        cases[1].shown[INDICATORS[key][0]] = printed(TINY / floor)
        for gpu in (0.0, -0.0, TINY, floor / 4, -floor / 4, below(floor), floor, -floor):
            cases.append(ratio_case(key, top * floor, gpu, top, "pass"))
            cases.append(ratio_case(key, below(top * floor), gpu, top, "pass"))
            cases.append(ratio_case(key, above(top * floor), gpu, top, "error"))
    check(tmp_path, "benchmark", kind, release, "标杆比对法", cases)


@pytest.mark.parametrize("key", INDICATORS)
def test_benchmark_ratio_to_zero(key: str, kind: str, release: str, tmp_path: Path) -> None:
    """Something to nothing is 10000 in the guide, however small; in 8.3 it is a matter of the floor."""
    numbers = (TINY, 1e-30, 3e-15, -1.0)
    cases = []
    for npu in numbers:
        for gpu in (0.0, -0.0):
            ratio = 1e4 if release == "seed" else abs(npu) / FLOOR[kind]
            cases.append(ratio_case(key, npu, gpu, ratio, "error" if ratio > 10 else "pass"))
            if release == "seed":
                del cases[-1].shown[INDICATORS[key][0]]
    found = check(tmp_path, "benchmark", kind, release, "标杆比对法", cases)
    if release == "seed":
        assert {float(line[INDICATORS[key][0]]) for line in found.details.values()} == {1e4}


@pytest.mark.parametrize("key", INDICATORS)
def test_benchmark_ratio_of_inf_and_nan(key: str, kind: str, release: str, tmp_path: Path) -> None:
    """Alike they pass; else they fail, but for the error balance, which does not count."""
    header, verdict, measured, _ = INDICATORS[key]
    cases = []
    for npu in (inf, -inf, nan, 0.0, 1.0):
        for gpu in (inf, -inf, nan, 0.0, 1.0):
            if math.isfinite(npu) and math.isfinite(gpu):
                continue
            alike = npu == gpu or (math.isnan(npu) and math.isnan(gpu))
            own = "pass" if alike else "error"
            message = f"{measured}同为同号inf或nan" if alike else f"{measured}inf或nan不一致"
            status = own if key != "balance" else "pass"
            cases.append(Case({key: npu}, {key: gpu}, status, {header: "nan", verdict: own}, message))
    assert len(cases) == 21
    check(tmp_path, "benchmark", kind, release, "标杆比对法", cases)


def test_benchmark_ratio_takes_the_worst(kind: str, release: str, tmp_path: Path) -> None:
    seed = release == "seed"
    warning, error = "WARNING: 均方根误差比值超过阈值", "ERROR: 相对误差最大值比值超过阈值"
    cases = [
        Case({"rmse": 0.75, "max_rel": 5.5}, {}, "error", {}, f"{warning}; {error}" if seed else error),
        Case({"rmse": 0.75, "small": 0.5}, {}, "warning" if seed else "pass", {}, warning if seed else ""),
        Case({"rmse": nan, "balance": 5.0}, {"rmse": nan}, "pass", {"误差均衡性判定结果": "error"}),
        Case(dict.fromkeys(RATIOS, 0.0), dict.fromkeys(RATIOS, 1.0), "pass", {}, ""),
    ]
    check(tmp_path, "benchmark", kind, release, "标杆比对法", cases)


def test_inf_nan_rate_of_the_benchmark_method(kind: str, release: str, tmp_path: Path) -> None:
    """A rate above 0 fails where it is above the GPU's, or where the GPU's is blank."""
    message = "ERROR: inf/nan错误率超过阈值"
    cases = [Case({"inf_nan": None}, {"inf_nan": theirs}, "pass", {"inf/nan判定结果": " "}, "")
             for theirs in (None, 0.0, 1.0)]  # fmt: skip
    for ours, theirs, status, too in (
        (0.0, None, "pass", ""), (0.0, 0.0, "pass", ""), (0.0, 0.5, "pass", ""), (0.5, 0.5, "pass", ""),
        (below(0.5), 0.5, "pass", ""), (above(0.5), 0.5, "error", AS_WELL), (TINY, 0.0, "error", ""),
        (TINY, None, "error", ""), (1.0, None, "error", ""), (1.0, 0.0, "error", ""), (nan, 0.0, "error", ""),
    ):  # fmt: skip
        shown = {"inf/nan错误率": printed(ours), "inf/nan判定结果": status, "均方根误差判定结果": "pass"}
        words = message + too if status == "error" else ""
        cases.append(Case({"inf_nan": ours}, {"inf_nan": theirs}, status, shown, words))
    check(tmp_path, "benchmark", kind, release, "标杆比对法", cases)


# 9.6 binary consistency


def test_binary_consistency(kind: str, release: str, tmp_path: Path) -> None:
    """An error rate of exactly 0 passes."""
    cases = []
    for rate, status in ((0.0, "pass"), (-0.0, "pass"), (TINY, "error"), (0.5, "error"), (inf, "error"),
                         (nan, "error")):  # fmt: skip
        shown = {"二进制一致错误率": printed(rate), "二进制一致错误率判定结果": status}
        for theirs in (0.0, 0.5, None):
            too = AS_WELL if theirs else ""
            message = f"ERROR: 二进制一致错误率超过阈值{too}" if status == "error" else ""
            cases.append(Case({"binary": rate}, {"binary": theirs}, status, shown, message))
    check(tmp_path, "binary", kind, release, "二进制一致法", cases)


# 9.7 ULP


def ulp(npu: tuple[float, float], gpu: tuple[float, float], status: str, **more: Any) -> Case:
    """A case of (mean, share) of both sides."""
    ours, theirs = ({"ulp_mean": mean, "ulp_share": share} for mean, share in (npu, gpu))
    shown = {
        "ULP误差平均值": printed(npu[0]),
        "ULP误差大于阈值占比": printed(npu[1]),
        "ULP误差判定结果": status,
    }
    return Case(ours, theirs, status, shown, **more)


def test_ulp(kind: str, release: str, tmp_path: Path) -> None:
    """Few elements over the limit, or fewer than the GPU's; for float32 also a small mean."""
    limit = 0.05 if kind == "float32" else 0.001
    mean, words = 100.0, "ERROR: ULP误差不满足标准"
    cases = [
        ulp((mean, 0.0), (0.0, 0.0), "pass", message=""),
        ulp((mean, below(limit)), (0.0, 0.0), "pass"),
        ulp((mean, limit), (0.0, limit), "error", message=f"{words}{AS_WELL if kind != 'float32' else ''}"),
        ulp((mean, limit), (mean, above(limit)), "pass"),
        ulp((mean, 0.5), (0.0, 0.5), "error"),  # B22: equal is not smaller
        ulp((mean, below(0.5)), (0.0, 0.5), "pass"),
        ulp((mean, above(0.5)), (0.0, 0.5), "error"),
        ulp((mean, 1.0), (mean, 1.0), "error", message=words + AS_WELL),
        ulp((mean, 0.9), (63.0, 0.04 if kind == "float32" else 0.0009), "error", message=words),
    ]  # fmt: skip
    for value, status in ((below(64), "pass"), (64.0, "error"), (above(64), "error"), (0.0, "pass")):
        expected = status if kind == "float32" else "error"
        cases += [ulp((value, 1.0), (1.0, 0.5), expected), ulp((value, 0.5), (1.0, 0.5), expected)]
    check(tmp_path, "ulp", kind, release, "ULP误差比对法", cases)


def test_ulp_share_beside_a_share_of_zero(kind: str, release: str, tmp_path: Path) -> None:
    """No share is smaller than none of the GPU's, in 8.3 as well."""
    limit = 0.05 if kind == "float32" else 0.001
    cases = [ulp((100.0, share), (0.0, 0.0), status)
             for share, status in ((below(limit), "pass"), (limit, "error"), (above(limit), "error"))]  # fmt: skip
    check(tmp_path, "ulp", kind, release, "ULP误差比对法", cases)


def test_ratio_of_ulp_shares(kind: str, release: str, tmp_path: Path) -> None:
    cases = [ulp((0.0, ours), (0.0, theirs), "pass" if status else "error")
             for ours, theirs, status in ((0.25, 0.5, True), (0.5, 1.0, True))]  # fmt: skip
    for case in cases:
        case.shown["ULP误差大于阈值占比比值"] = printed(0.5)
    if release == "seed":
        cases += [ulp((0.0, 0.0), (0.0, 0.0), "pass"), ulp((0.0, 1e-9), (0.0, 0.0), "pass")]
        cases[-2].shown["ULP误差大于阈值占比比值"] = printed(1.0)
    found = check(tmp_path, "ulp", kind, release, "ULP误差比对法", cases)
    if release == "seed":
        last = list(found.details.values())[-1]
        assert float(last["ULP误差大于阈值占比比值"]) == 1e4


def test_ulp_of_inf_and_nan(kind: str, release: str, tmp_path: Path) -> None:
    """Means or shares that are inf or nan fail unless alike; alike, the criteria decide."""
    cases = []
    words = "ULP误差{}inf或nan不一致; ERROR: ULP误差不满足标准{}"
    unlike = ((inf, 1.0), (1.0, inf), (inf, -inf), (nan, inf), (inf, nan), (nan, 0.0), (0.0, nan))
    for ours, theirs in unlike:
        cases.append(ulp((ours, 0.0), (theirs, 0.0), "error", message=words.format("平均值", "")))
        small = kind == "float32" or theirs in (-inf, 0.0)  # the GPU's mean, or share
        message = words.format("大于阈值占比", "" if small else AS_WELL)
        cases.append(ulp((0.0, ours), (0.0, theirs), "error", message=message))
    for value in (inf, -inf, nan):
        cases.append(ulp((value, 0.0), (value, 0.0), "pass", message="ULP误差平均值同为同号inf或nan"))
    for value in (inf, nan):
        cases.append(ulp((value, 0.5), (value, 0.5), "error"))
        cases.append(ulp((100.0, value), (100.0, value), "error"))
    check(tmp_path, "ulp", kind, release, "ULP误差比对法", cases)


# 9.8 dual thousandth


def test_dual_thousandth(kind: str, release: str, tmp_path: Path) -> None:
    """The share must be above 0.999; equality fails."""
    cases = []
    for share, status in ((1.0, "pass"), (above(0.999), "pass"), (0.999, "error"), (below(0.999), "error"),
                          (0.0, "error"), (nan, "error")):  # fmt: skip
        shown = {"双千指标": printed(share), "双千指标判定结果": status}
        for theirs in (1.0, above(0.999), 0.999, None):
            too = AS_WELL if theirs == 0.999 else ""
            message = f"ERROR: 双千指标不达标{too}" if status == "error" else ""
            cases.append(Case({"thousandth": share}, {"thousandth": theirs}, status, shown, message))
    check(tmp_path, "dual", kind, release, "双千指标法", cases)
