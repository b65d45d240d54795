"""``probe monitor``: planted faults, controls, damaged files, the page."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.monitors import run_of, train
from torch import nn

STEPS = 90
FAULTY_STEP = 70
FIELDS: dict[str, Any] = {
    "wg_distribution": True, "mv_distribution": True, "param_distribution": True, "xy_distribution": True,
    "step_count_per_record": 30,
}  # fmt: skip


def scaled(name: str, factor: float) -> Any:
    def fault(model: nn.Module, step: int) -> None:
        if step == FAULTY_STEP:
            gradient = model.get_parameter(name).grad
            assert gradient is not None
            gradient.mul_(factor)

    return fault


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("control") / "run"
    train(output, steps=STEPS, **FIELDS)
    return output


def test_an_exploding_norm_is_named(tmp_path: Path, probe: Any) -> None:
    train(tmp_path / "run", scaled("2.weight", 1e4), steps=STEPS, **FIELDS)
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out", "--fail-on", "suspect") == 1
    first = probe.out.splitlines()[0]
    assert first.startswith("SUSPICIOUS: grad_reduced of 2.weight in step 70: norm is ")
    answer = json.loads((tmp_path / "out" / "monitor_answer.json").read_text("utf-8"))
    finding = answer["finding"]
    assert (answer["verdict"], answer["sentence"]) == ("SUSPICIOUS", first)
    assert (finding["kind"], finding["step"], finding["rank"]) == ("outside_band", FAULTY_STEP, 0)
    assert finding["value"] > finding["highest"] > finding["usual"] > 0
    later = {(f["task"], f["name"]) for f in answer["findings"][1:]}
    assert {name for _, name in later} == {"2.weight"} and ("exp_avg", "2.weight") in later


def test_a_nan_is_named(tmp_path: Path, probe: Any) -> None:
    train(tmp_path / "run", scaled("4.bias", math.nan), steps=FAULTY_STEP + 2, ops=["norm", "nans"], **FIELDS)
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out") == 0
    assert probe.out.startswith("SUSPICIOUS: grad_reduced of 4.bias in step 70: norm is nan")


def test_a_silent_control_is_normal(control: Path, tmp_path: Path, probe: Any) -> None:
    assert probe("monitor", control, "-o", tmp_path / "out", "--fail-on", "suspect") == 0, probe.out
    assert probe.out.startswith("NORMAL: 60 values in 90 steps are finite and within their bands")
    assert json.loads((tmp_path / "out" / "monitor_answer.json").read_text("utf-8"))["finding"] is None


def test_a_run_of_few_steps_cannot_be_judged(tmp_path: Path, probe: Any) -> None:
    train(tmp_path / "run", steps=4, **FIELDS)
    assert probe("monitor", run_of(tmp_path / "run"), "-o", tmp_path / "out") == 0
    assert probe.out.startswith("CANNOT TELL: 60 values in 4 steps are finite, but a band needs 49 steps")


def test_the_page_has_a_curve_of_each_value_and_marks_the_fault(tmp_path: Path, probe: Any) -> None:
    train(tmp_path / "run", scaled("2.weight", 1e4), steps=STEPS, wg_distribution=True)
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out") == 0
    page = (tmp_path / "out" / "monitor.html").read_text("utf-8")
    assert page.count("<svg") == 12 and page.count('class="chart suspicious"') == 1
    assert page.count("<circle") == 1
    assert not re.search(r"<script|https?://|src=", page)


def test_names_are_escaped_on_the_page(control: Path, tmp_path: Path, probe: Any) -> None:
    shutil.copytree(control, tmp_path / "run")
    file = run_of(tmp_path / "run") / "grad_reduced_0-29.csv"
    file.write_text(file.read_text("utf-8").replace("0.weight", "<script>alert(1)</script>\x1b"), "utf-8")
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out") == 0
    assert "<script>" not in (tmp_path / "out" / "monitor.html").read_text("utf-8")
    assert "\x1b" not in probe.out


def test_damaged_files_are_named_and_the_others_are_read(control: Path, tmp_path: Path, probe: Any) -> None:
    shutil.copytree(control, tmp_path / "run")
    run = run_of(tmp_path / "run")
    (run / "exp_avg_0-29.csv").write_bytes(b"\x00\xff damaged")
    (run / "exp_avg_sq_0-29.csv").write_text("")
    (run / "grad_reduced_60-89.csv").write_bytes((run / "grad_reduced_60-89.csv").read_bytes()[:-7])
    (run / "param_origin_0-29.csv").write_text("vpp_stage,name,step,norm,shape,dtype\n0,x,one,1.0,[],f\n0,y\n")
    (run / "notes.csv").write_text("a")
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out") == 0
    assert probe.out.startswith("NORMAL") and probe.out.count("Not read:") == 2


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_a_directory_without_files_is_refused(name: str, tmp_path: Path, probe: Any) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert probe("monitor", tmp_path / name, "-o", tmp_path / "out") == 2
    assert "Traceback" not in probe.err and probe.err.count("error:") == 1


def test_the_latest_run_of_each_rank_is_read(control: Path, tmp_path: Path, probe: Any) -> None:
    earlier = tmp_path / "run" / "Jan01_00-00-00-rank0-00000000"
    shutil.copytree(run_of(control), earlier)
    shutil.copytree(run_of(control), tmp_path / "run" / "Jan01_00-00-00-rank1-00000000")
    train(tmp_path / "run", steps=2, wg_distribution=True)
    newer = next(run for run in (tmp_path / "run").glob("*-rank0-*") if run != earlier)
    newer.touch()
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out") == 0
    assert "Not read: 1 earlier run of these ranks." in probe.out
    answer = json.loads((tmp_path / "out" / "monitor_answer.json").read_text("utf-8"))
    assert (answer["ranks"], answer["values"]) == ([0, 1], 12 + 60)


def test_values_that_are_no_tensors_and_empty_tensors_are_not_suspicious(tmp_path: Path, probe: Any) -> None:
    model = nn.Module()
    model.register_parameter("empty", nn.Parameter(torch.zeros(0)))
    from support.runs.monitors import monitoring

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.empty.grad = torch.zeros(0)  # type: ignore[union-attr]
    with monitoring(tmp_path / "run", model, optimizer, wg_distribution=True, ops=["norm", "mean", "max"]):
        for _ in range(3):
            optimizer.step()
    assert probe("monitor", tmp_path / "run", "-o", tmp_path / "out") == 0
    assert probe.out.startswith("CANNOT TELL")
