"""The second stage of the pre-check: each limit of sections 9.3 to 9.9, exactly at it, just below, just above."""

from __future__ import annotations

import importlib.resources
import math
from typing import Any

import pytest
import yaml
from probe_metrics.standards.thresholds import load_thresholds
from probe_precheck.model import Judgement, Numbers, Status, UnusableCell
from probe_precheck.specs import StandardSpec
from probe_precheck.tables import COMPARE_DETAILS
from pytest import approx
from support.cases import every

from probe_core.plugins.manager import Manager

inf, nan = math.inf, math.nan
PASS, WARNING, ERROR = Status.PASS, Status.WARNING, Status.ERROR
RELEASES = ("seed", "8.3")
KINDS = ("float16", "bfloat16", "float32")
GPU_FAILS = "GPU fails as well"
STANDARDS = {item.spec.name: item.spec for item in Manager().contributions("standards")}


def row(kind: str = "float32", name: str = "Torch.x.0.forward.output.0", **cells: Any) -> Numbers:
    """A row of the details as it is read: all cells are texts; None is a blank."""
    texts = {key: " " if value is None else str(value) for key, value in cells.items()}
    return Numbers({"name": name, "device_dtype": f"torch.{kind}", **texts})


def judge(standard: str, npu: Numbers, gpu: Numbers, release: str = "seed") -> Judgement:
    judgement: Judgement = STANDARDS[standard].make().judge(npu, gpu, release)
    assert set(judgement.cells) <= {column.key for column in COMPARE_DETAILS}
    return judgement


def said(judgement: Judgement, language: str = "zh") -> list[str]:
    return [message.text(language) for message in judgement.messages]


def up(value: float) -> float:
    return math.nextafter(value, inf)


def down(value: float) -> float:
    return math.nextafter(value, -inf)


# absolute threshold, binary consistency: exactly 0

ABSOLUTE = {
    "inf_nan_error_rate": ("inf_nan_status", "ERROR: inf/nan错误率超过阈值"),
    "relative_error_rate": ("relative_error_status", "ERROR: 相对误差错误率超过阈值"),
    "absolute_error_rate": ("absolute_error_status", "ERROR: 绝对误差错误率超过阈值"),
}
TINY = 5e-324


@pytest.mark.parametrize("release", RELEASES)
def test_absolute_passes_at_zero(release: str) -> None:
    zeros = row(**dict.fromkeys(ABSOLUTE, 0.0))
    found = judge("absolute_threshold", zeros, row(), release)
    assert found[:3] == (PASS, {**dict.fromkeys(ABSOLUTE, 0), **{v: PASS for v, _ in ABSOLUTE.values()}}, ())


@every("release", RELEASES)
@every("rate", [TINY, 0.5, 1.0, inf, nan])
@every("key", ABSOLUTE)
def test_absolute_fails_above_zero(key: str, rate: float, release: str) -> None:
    zeros = dict.fromkeys(ABSOLUTE, 0.0)
    found = judge("absolute_threshold", row(**{**zeros, key: rate}), row(**zeros), release)
    verdict, message = ABSOLUTE[key]
    assert found.status is ERROR and said(found) == [message]
    assert found.cells[verdict] is ERROR and found.cells[key] == approx(rate, nan_ok=True)
    assert [found.cells[v] for v, _ in ABSOLUTE.values()].count(ERROR) == 1


@pytest.mark.parametrize("key", ABSOLUTE)
def test_absolute_says_where_the_gpu_fails_as_well(key: str) -> None:
    """The message names an indicator in which both fail; the verdict stays."""
    zeros = dict.fromkeys(ABSOLUTE, 0.0)
    npu = row(**{**zeros, key: 0.5})
    for gpu in ({key: 0.1}, {key: nan}):
        found = judge("absolute_threshold", npu, row(**{**zeros, **gpu}))
        assert found.status is ERROR and all(GPU_FAILS in said(found, language)[0] for language in ("zh", "en"))
    others = {other: 0.5 for other in ABSOLUTE if other != key}
    for gpu in (others, {key: 0.0}, {key: None}, {key: "text"}):
        assert GPU_FAILS not in said(judge("absolute_threshold", npu, row(**gpu)))[0]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("rate, status", [(0.0, PASS), (-0.0, PASS), (TINY, ERROR), (1.0, ERROR), (nan, ERROR)])
def test_binary_consistency(rate: float, status: Status, release: str) -> None:
    found = judge("binary_consistency", row(error_rate=rate), row(), release)
    assert found.status is found.cells["error_rate_status"] is status
    assert said(found) == ([] if status is PASS else ["ERROR: 二进制一致错误率超过阈值"])
    both = judge("binary_consistency", row(error_rate=rate), row(error_rate=0.5), release)
    assert any(GPU_FAILS in message for message in said(both)) == (status is ERROR)


def test_topk_has_its_hint() -> None:
    """A failing call of topk says what sorted=False does."""
    for name, hint in (("Tensor.topk.0.forward.output.1", True), ("Torch.sort.0.forward.output.1", False)):
        found = judge("binary_consistency", row("int64", name, error_rate=0.5), row())
        assert any("sorted=False" in message for message in said(found)) == hint
        assert not said(judge("binary_consistency", row("int64", name, error_rate=0), row()))


# benchmark ratio

RATIOS = {
    "small_value_error_share": ("small_value", "小值域错误比值"),
    "rmse": ("rmse", "均方根误差比值"),
    "max_relative_error": ("max_relative", "相对误差最大值比值"),
    "mean_relative_error": ("mean_relative", "相对误差平均值比值"),
    "error_balance": ("error_balance", "误差均衡性比值"),
}
COLUMN = {
    "small_value_error_share": "小值域错误占比", "rmse": "均方根误差", "max_relative_error": "相对误差最大值",
    "mean_relative_error": "相对误差平均值", "error_balance": "误差均衡性",
}  # fmt: skip


def ratio(key: str, npu: Any, gpu: Any, release: str = "seed", kind: str = "float32") -> Judgement:
    """One indicator with these numbers, the other ones alike."""
    ones = dict.fromkeys(RATIOS, 1.0)
    return judge("benchmark_ratio", row(kind, **{**ones, key: npu}), row(kind, **{**ones, key: gpu}), release)


@pytest.mark.parametrize("key", RATIOS)
def test_ratio_limits_of_the_seed(key: str) -> None:
    top = 10 if key == "max_relative_error" else 2
    counts = key != "error_balance"
    steps = [(0, PASS), (down(1), PASS), (1, PASS), (up(1), WARNING), (down(top), WARNING), (top, WARNING),
             (up(top), ERROR), (1e9, ERROR)]  # fmt: skip
    prefix, header = RATIOS[key]
    for value, status in steps:
        found = ratio(key, value, 1.0)
        assert found.cells[f"{prefix}_ratio"] == value and found.cells[f"{prefix}_status"] is status
        assert found.status is (status if counts else PASS)
        words = [f"{status.value.upper()}: {header}超过阈值"] if counts and status is not PASS else []
        assert said(found) == words
        assert ratio(key, -value, 1.0).cells == ratio(key, value, -1.0).cells == found.cells


@every("kind", KINDS)
@every("key", RATIOS)
def test_ratio_limits_of_the_later_release(key: str, kind: str) -> None:
    top = 10 if key == "max_relative_error" else 2
    prefix = RATIOS[key][0]
    for value, status in (
        (0, PASS),
        (1.5, PASS),
        (down(top), PASS),
        (top, PASS),
        (up(top), ERROR),
        (1e9, ERROR),
    ):
        found = ratio(key, value, 1.0, "8.3", kind)
        assert found.cells[f"{prefix}_ratio"] == value and found.cells[f"{prefix}_status"] is status
        assert found.status is (status if key != "error_balance" else PASS)


@pytest.mark.parametrize("kind, floor", [("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-14)])
def test_the_later_release_has_a_floor(kind: str, floor: float) -> None:
    for gpu in (0, -0.0, floor / 4, -floor / 4, floor):
        found = ratio("rmse", floor * 2, gpu, "8.3", kind)
        assert found.cells["rmse_ratio"] == 2 and found.status is PASS
        assert ratio("rmse", up(floor * 2), gpu, "8.3", kind).status is ERROR
    assert ratio("rmse", floor * 3, floor * 2, "8.3", kind).cells["rmse_ratio"] == 1.5
    assert ratio("rmse", 0, 0, "8.3", kind).cells["rmse_ratio"] == 0


def test_ratio_to_zero_in_the_seed() -> None:
    assert ratio("rmse", 0, 0).cells["rmse_ratio"] == 1 and ratio("rmse", 0, 0).status is PASS
    assert ratio("rmse", TINY, 0).cells["rmse_ratio"] == 10000 and ratio("rmse", TINY, 0).status is ERROR
    assert ratio("rmse", 0, TINY).cells["rmse_ratio"] == 0
    assert ratio("rmse", 1e300, 1e-300).status is ERROR


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("key", RATIOS)
def test_ratio_of_inf_and_nan(key: str, release: str) -> None:
    prefix, _ = RATIOS[key]
    for npu, gpu in ((inf, inf), (-inf, -inf), (nan, nan)):
        found = ratio(key, npu, gpu, release)
        assert math.isnan(found.cells[f"{prefix}_ratio"])  # type: ignore[arg-type]
        assert found.status is found.cells[f"{prefix}_status"] is PASS
        assert said(found) == [f"{COLUMN[key]}同为同号inf或nan"] and "same" in said(found, "en")[0]
    for npu, gpu in ((inf, -inf), (inf, nan), (nan, inf), (inf, 1), (1, inf), (nan, 0), (0, nan)):
        found = ratio(key, npu, gpu, release)
        assert found.cells[f"{prefix}_status"] is ERROR
        assert found.status is (ERROR if key != "error_balance" else PASS)
        assert said(found) == [f"{COLUMN[key]}inf或nan不一致"]


def test_the_worst_indicator_decides() -> None:
    ones = row(**dict.fromkeys(RATIOS, 1.0))
    found = judge("benchmark_ratio", row(**{**dict.fromkeys(RATIOS, 1.0), "rmse": 1.5, "max_relative_error": 11}), ones)
    assert found.status is ERROR
    assert said(found) == ["WARNING: 均方根误差比值超过阈值", "ERROR: 相对误差最大值比值超过阈值"]
    assert said(found, "en") == [
        "WARNING: RMSE Ratio is over the limit", "ERROR: Max Relative Error Ratio is over the limit",
    ]  # fmt: skip


@every("release", RELEASES)
@every(
    "npu, gpu, status, as_well",
    [(0, None, PASS, False), (0, 0.5, PASS, False), (0.5, 0.5, PASS, False), (0.5, 0.6, PASS, False),
     (up(0.5), 0.5, ERROR, True), (TINY, 0, ERROR, False), (TINY, None, ERROR, False), (nan, 1, ERROR, True)],
)  # fmt: skip
def test_inf_nan_of_the_benchmark_method(npu: float, gpu: Any, status: Status, as_well: bool, release: str) -> None:
    """An error is a rate above 0 and above the GPU's, or where the GPU's is blank."""
    ones = dict.fromkeys(RATIOS, 1.0)
    ours, theirs = row(**ones, inf_nan_error_rate=npu), row(**ones, inf_nan_error_rate=gpu)
    found = judge("benchmark_ratio", ours, theirs, release)
    assert found.status is found.cells["inf_nan_status"] is status
    assert found.cells["inf_nan_error_rate"] == approx(npu, abs=0, nan_ok=True)
    assert all(message.startswith("ERROR: inf/nan错误率超过阈值") for message in said(found))
    assert len(said(found)) == (status is ERROR) and (GPU_FAILS in "".join(said(found))) == as_well


def test_no_inf_nan_rate_no_verdict_on_it() -> None:
    ones = dict.fromkeys(RATIOS, 1.0)
    assert "inf_nan_status" not in judge("benchmark_ratio", row(**ones), row(**ones, inf_nan_error_rate=1)).cells


# ULP


def ulp(kind: str, npu: tuple[Any, Any], gpu: tuple[Any, Any], release: str = "seed") -> Judgement:
    """Rows of (mean, share)."""
    ours, theirs = (row(kind, ulp_mean=mean, ulp_share=share) for mean, share in (npu, gpu))
    found = judge("ulp", ours, theirs, release)
    assert found.cells["ulp_status"] is found.status
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_ulp_of_16_bits(kind: str, release: str) -> None:
    """A share below 0.001, or below the GPU's; the mean does not count."""
    for share, status in ((0, PASS), (down(0.001), PASS), (0.001, ERROR), (up(0.001), ERROR)):
        assert ulp(kind, (0.1, share), (0.1, 0), release).status is status
    for share, status in ((down(0.5), PASS), (0.5, ERROR), (up(0.5), ERROR)):  # B22: equal is not smaller
        assert ulp(kind, (0.1, share), (0.1, 0.5), release).status is status
    assert ulp(kind, (1e9, 0), (0, 0), release).status is PASS


@pytest.mark.parametrize("release", RELEASES)
def test_ulp_of_32_bits(release: str) -> None:
    """A pass is a mean below 64, a share below 0.05, or a share below the GPU's."""
    for mean, status in ((down(64), PASS), (64, ERROR), (up(64), ERROR)):
        assert ulp("float32", (mean, 1), (1, 0.5), release).status is status
    for share, status in ((down(0.05), PASS), (0.05, ERROR), (up(0.05), ERROR)):
        assert ulp("float32", (100, share), (1, 0), release).status is status
    for share, status in ((down(0.5), PASS), (0.5, ERROR), (up(0.5), ERROR)):
        assert ulp("float32", (100, share), (1, 0.5), release).status is status


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", KINDS)
def test_ulp_of_inf_and_nan(kind: str, release: str) -> None:
    """Means or shares that are not inf or nan alike fail; alike, the share decides."""
    for npu, gpu in ((inf, 1), (1, inf), (inf, -inf), (nan, inf), (nan, 0), (0, nan)):
        for ours, theirs in (((npu, 0), (gpu, 0.5)), ((0, npu), (0, gpu))):
            found = ulp(kind, ours, theirs, release)
            assert found.status is ERROR and any("inf或nan不一致" in message for message in said(found))
            assert any(message.startswith("ERROR: ULP误差不满足标准") for message in said(found))
    for value in (inf, -inf, nan):
        assert ulp(kind, (value, 0), (value, 0), release).status is PASS
        if value != -inf:
            assert ulp(kind, (value, 0.5), (value, 0.5), release).status is ERROR


@pytest.mark.parametrize("release", RELEASES)
def test_ulp_cells_and_messages(release: str) -> None:
    found = ulp("float16", (3, 0.25), (2, 0.5), release)
    assert found.cells == {"ulp_mean": 3, "ulp_share": 0.25, "ulp_share_ratio": 0.5, "ulp_status": PASS}
    nothing, something = (1, 10000) if release == "seed" else (0, 0.5 / 2**-11)
    assert ulp("float16", (0, 0), (0, 0), release).cells["ulp_share_ratio"] == nothing
    assert ulp("float16", (0, 0.5), (0, 0), release).cells["ulp_share_ratio"] == something
    assert said(ulp("float16", (3, 0.5), (0, 0.0009), release)) == ["ERROR: ULP误差不满足标准"]
    assert said(ulp("float16", (3, 0.5), (0, 0.001), release)) == [f"ERROR: ULP误差不满足标准 ({GPU_FAILS})"]
    assert said(ulp("float32", (64, 0.5), (64, 0.05), release)) == [f"ERROR: ULP误差不满足标准 ({GPU_FAILS})"]
    assert said(ulp("float32", (64, 0.5), (63, 0.05), release)) == ["ERROR: ULP误差不满足标准"]


# dual thousandth


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "share, status", [(1, PASS), (up(0.999), PASS), (0.999, ERROR), (down(0.999), ERROR), (nan, ERROR)]
)
def test_dual_thousandth(share: float, status: Status, release: str) -> None:
    """A share that equals the limit fails."""
    found = judge("dual_thousandth", row(thousandth=share), row(), release)
    assert found.status is found.cells["thousandth_status"] is status
    assert found.cells["thousandth"] == approx(share, abs=0, rel=0, nan_ok=True)
    assert said(found) == ([] if status is PASS else ["ERROR: 双千指标不达标"])
    for theirs, as_well in ((1, False), (0.999, True), (None, False)):
        both = judge("dual_thousandth", row(thousandth=share), row(thousandth=theirs), release)
        assert (GPU_FAILS in "".join(said(both))) == (as_well and status is ERROR)


# accumulative error


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind, limit", [("float16", 2.0**-20), ("bfloat16", 2.0**-7), ("float32", 2.0**-14)])
def test_accumulative_error(kind: str, limit: float, release: str) -> None:
    zeros = dict.fromkeys(ABSOLUTE, 0.0)
    for balance, status in ((0, PASS), (down(limit), PASS), (limit, PASS), (up(limit), ERROR), (nan, ERROR)):
        found = judge("accumulative_error", row(kind, **zeros, error_balance=balance), row(kind), release)
        assert found.status is found.cells["error_balance_status"] is status
        assert said(found) == ([] if status is PASS else ["ERROR: 误差均衡性超过阈值"])
    for key, (verdict, message) in ABSOLUTE.items():
        found = judge("accumulative_error", row(kind, **{**zeros, key: TINY}, error_balance=0), row(kind), release)
        assert found.status is found.cells[verdict] is ERROR and said(found) == [message]
    found = judge("accumulative_error", row(kind, **zeros, error_balance=1), row(kind, error_balance=1), release)
    assert GPU_FAILS in said(found)[0]


# blank cells

NEEDED = {
    "absolute_threshold": (dict.fromkeys(ABSOLUTE, 0), {}),
    "accumulative_error": ({**dict.fromkeys(ABSOLUTE, 0), "error_balance": 0}, {}),
    "binary_consistency": ({"error_rate": 0}, {}),
    "dual_thousandth": ({"thousandth": 1}, {}),
    "ulp": ({"ulp_mean": 0, "ulp_share": 0}, {"ulp_mean": 0, "ulp_share": 0}),
    "benchmark_ratio": (dict.fromkeys(RATIOS, 0), dict.fromkeys(RATIOS, 0)),
}


@every("release", RELEASES)
@every("standard", NEEDED)
def test_cells_that_hold_no_number(standard: str, release: str) -> None:
    """Each needed cell, on each side: blank or a text raises; without change it does not."""
    npu, gpu = NEEDED[standard]
    for kind in KINDS:
        assert judge(standard, row(kind, **npu), row(kind, **gpu), release).status is PASS
        for side, cells in enumerate((npu, gpu)):
            for key in cells:
                for bad in (None, "text"):
                    changed = [dict(npu), dict(gpu)]
                    changed[side][key] = bad
                    with pytest.raises(UnusableCell):
                        judge(standard, row(kind, **changed[0]), row(kind, **changed[1]), release)


# the plugins and their data


def test_names_and_labels() -> None:
    labels = {name: (spec.label, spec.judges) for name, spec in STANDARDS.items() if name in NEEDED}
    assert labels == {
        "benchmark_ratio": ("标杆比对法", "rest"), "binary_consistency": ("二进制一致法", "exact"),
        "absolute_threshold": ("绝对阈值法", "listed"), "ulp": ("ULP误差比对法", "listed"),
        "dual_thousandth": ("双千指标法", "listed"), "accumulative_error": ("累积误差比对法", "listed"),
    }  # fmt: skip
    assert all(isinstance(spec, StandardSpec) and spec.english_label.isascii() for spec in STANDARDS.values())


def test_lists_of_apis() -> None:
    package, _, name = STANDARDS["ulp"].apis.partition(":")
    lists = yaml.safe_load(importlib.resources.files(package).joinpath(name).read_text("utf-8"))
    plain = {standard: [api for api in apis if isinstance(api, str)] for standard, apis in lists.items()}
    assert {standard: len(apis) for standard, apis in plain.items()} == {
        "absolute_threshold": 30, "binary_consistency": 61, "ulp": 17, "dual_thousandth": 2, "accumulative_error": 0,
        "benchmark_ratio": 0,
    }  # fmt: skip
    assert [api for api in lists["binary_consistency"] if not isinstance(api, str)] == [{"8.3": ["histc"]}]
    every = [api for apis in plain.values() for api in apis]
    assert len(set(every)) == len(every)
    assert {"add", "rsub", "prelu"} < set(plain["absolute_threshold"]) and "mm" in plain["ulp"]


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_has_every_standard(release: str) -> None:
    for standard in set(NEEDED) - {"binary_consistency"}:
        assert load_thresholds(release, standard)
