"""Wrong kernels whose errors the tables' rules pass, through both stages: six softmaxes, three gradients of GELU."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_metrics.standards.first_stage import FirstStage
from probe_precheck.api import Array, Call, Outcome, Outputs
from probe_precheck.comparison import DetailsComparison, compare_details
from probe_precheck.judging import CallJudge
from probe_precheck.model import Result, Status
from probe_precheck.results import CheckFiles
from probe_precheck.tables import DETAILS
from support.probe import Probe
from support.programs.numpy_kernels import gelu_slope, softmax
from support.runs.details_csv import assignment, read_back

half, single = np.float16, np.float32
SOFTMAX: dict[str, tuple[int, dict[str, Any]]] = {
    "Functional.softmax.0": (16, {"powers": half}),
    "Functional.softmax.1": (64, {"powers": half}),
    "Functional.softmax.2": (1024, {"powers": half}),
    "Functional.softmax.3": (64, {"powers": single, "sums": half}),
    "Functional.softmax.4": (256, {"powers": single, "sums": half}),
    "Functional.softmax.5": (4096, {"powers": half, "sums": single}),
}
"""For each call the number of classes, and dtypes that are too narrow."""
GELU = {"Functional.gelu.0": 16, "Functional.gelu.1": 64, "Functional.gelu.2": 256}
"""For each call the width of its rows; wrong is the gradient of the approximation by tanh."""
CALLS = (*SOFTMAX, *GELU)
BOTH = pytest.mark.parametrize("release", ("guide", "8.3"))


@cache
def sides(name: str, wrong: bool) -> tuple[Any, Any]:
    """The device's output in float32, and the reference."""
    width = SOFTMAX[name][0] if name in SOFTMAX else GELU[name]
    random = np.random.default_rng(width)
    x = random.standard_normal((64, width)).astype(np.float32).astype(np.float64)
    if name in SOFTMAX:
        dtypes = SOFTMAX[name][1] if wrong else {"powers": single, "sums": single}
        return softmax(x, **dtypes).astype(np.float32), softmax(x)
    gradient = 1e-3 * random.standard_normal(x.shape)
    right = gelu_slope(x, tanh=False) * gradient
    return (gelu_slope(x, tanh=True) * gradient if wrong else right).astype(np.float32), right


def first_stage(directory: Path, wrong: tuple[str, ...], release: str) -> tuple[Path, list[Result]]:
    """Check all calls, some with a wrong kernel; the details file, and the rows."""
    judge = CallJudge(FirstStage(), assignment(release))
    results = []
    files = CheckFiles.create(directory, "20260101120000", DETAILS, "zh", 14)
    for number, name in enumerate(CALLS):
        device, bench = sides(name, name in wrong)
        outputs = Outputs(Array(bench, "torch.float64"), Array(device, "torch.float32"))
        call = Call(name, number, {"output": []}, {"output": []} if name in GELU else None)
        right = Outputs(Array(bench, "torch.float64"), Array(bench.astype(np.float32), "torch.float32"))
        outcome = Outcome(right, outputs) if name in GELU else Outcome(outputs, None)
        results.append(judge.judge_call(call, outcome))
        files.append(results[-1])
    files.finish(CALLS)
    return files.details, results


def second_stage(directory: Path, npu: tuple[str, ...], gpu: tuple[str, ...], release: str) -> DetailsComparison:
    details = [first_stage(directory / side, wrong, release)[0] for side, wrong in (("npu", npu), ("gpu", gpu))]
    return compare_details(*details, assignment(release))


def failed(found: DetailsComparison) -> set[str]:
    return found.beyond | {api for api, (*statuses, _) in found.apis.items() if Status.ERROR in statuses}


@BOTH
def test_the_first_stage_finds_all_nine(release: str, tmp_path: Path) -> None:
    """The rule of the guide passes each of them by its absolute error."""
    _, results = first_stage(tmp_path / "wrong", CALLS, release)
    assert [result.name for result in results if result.standard is Status.ERROR] == list(CALLS)
    assert {result.forward for result in results} == {Status.PASS}
    _, results = first_stage(tmp_path / "right", (), release)
    assert not [result.name for result in results if result.standard is Status.ERROR]


@BOTH
def test_beside_a_right_device_the_second_stage_finds_all_nine(release: str, tmp_path: Path) -> None:
    assert failed(second_stage(tmp_path, CALLS, (), release)) == set(CALLS)


@BOTH
def test_beside_a_device_that_is_wrong_as_well_it_finds_all_nine(release: str, tmp_path: Path) -> None:
    """Ratios of 1 pass each row, so statuses and cells are the guide's; the message says that both fail."""
    found = second_stage(tmp_path, CALLS, CALLS, release)
    assert found.beyond == set(CALLS)
    assert {status for *statuses, _ in found.apis.values() for status in statuses} == {Status.PASS, None}
    for _, _, (message,) in found.apis.values():
        assert message.english.startswith("NPU: Within the limits; beyond rounding: ")
        assert message.english.endswith(") (GPU fails as well)")


@BOTH
def test_right_devices_and_a_wrong_trusted_one_give_none(release: str, tmp_path: Path) -> None:
    assert not failed(second_stage(tmp_path / "right", (), (), release))
    assert not failed(second_stage(tmp_path / "trusted", (), CALLS, release))


def test_beside_a_right_device_ratios_alone_find_all_nine(tmp_path: Path) -> None:
    """Files of msprobe 8.3 know no such message."""
    details = [first_stage(tmp_path / side, wrong, "8.3")[0] for side, wrong in (("npu", CALLS), ("gpu", ()))]
    for path in details:
        path.write_text(path.read_text("utf-8-sig").replace("误差超出舍入误差", ""), "utf-8-sig")
    found = compare_details(*details, assignment("8.3"))
    assert failed(found) == set(CALLS) and not found.beyond


def test_the_command_counts_them_as_failed(tmp_path: Path, probe: Probe) -> None:
    paths = [
        first_stage(tmp_path / side, ("Functional.gelu.1", "Functional.softmax.4"), "guide")[0]
        for side in ("npu", "gpu")
    ]
    out = tmp_path / "out"
    options = ("--npu", paths[0], "--gpu", paths[1], "-o", out, "--lang", "en")
    assert probe("api-precision-compare", *options, "--fail-on", "error") == 1
    assert (
        "2 error (2 by no rule of the tables, but off by more than rounding explains), 0 warning, 7 pass" in probe.out
    )
    assert "Functional.gelu.1  error  NPU: Within the limits; beyond rounding: " in probe.out
    assert probe("api-precision-compare", *options[:-4], "-o", tmp_path / "zh") == 0
    found = read_back(tmp_path / "zh")
    forward, backward, message = found.results["Functional.gelu.1"]
    assert (forward, backward) == ("pass", "pass")
    assert message.startswith("NPU: 未超出上述限值; 误差超出舍入误差: 为舍入误差所能解释的")
    assert found.details["Functional.gelu.1.backward.output.0"]["比对结果"] == "pass"
