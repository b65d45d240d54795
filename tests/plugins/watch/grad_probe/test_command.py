"""``probe grad compare``: planted faults, controls, and files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_watch.grad_probe import page
from support.runs.gradients import debugging, record, write_run
from torch import nn

STEPS = 50
FAULTY_STEP = 31
Fault = Callable[[nn.Module, int], None]


def train(path: Path, fault: Fault | None = None, *, is_rounded: bool = False, **fields: Any) -> Path:
    """Record 50 steps of two layers; ``fault`` changes gradients before the step of the optimizer."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"net": nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))})
    if is_rounded:
        with torch.no_grad():
            model["net"][0].weight.mul_(1 + 1e-7)
    inputs, targets = torch.randn(64, 8), torch.randn(64, 4)
    with debugging(path, **fields) as debugger:
        debugger.monitor(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(STEPS):
            optimizer.zero_grad()
            (model["net"](inputs) - targets).square().mean().backward()
            if fault is not None:
                fault(model, step)
            optimizer.step()
    return path


def scaled(parameter: str, factor: float, step: int = FAULTY_STEP) -> Fault:
    def fault(model: nn.Module, current: int) -> None:
        if current >= step:
            gradient = model.get_parameter(parameter).grad
            assert gradient is not None
            gradient.mul_(factor)

    return fault


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("golden") / "run")


@pytest.mark.parametrize("kind", ["npy", "packed"])
def test_a_gradient_that_flips_at_step_31_is_named_in_the_first_line(
    kind: str, golden: Path, tmp_path: Path, probe: Any
) -> None:
    target = train(tmp_path / "run", scaled("net.2.weight", -1.0), direction_files=kind)
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    first, *details = probe.out.splitlines()
    assert first == ("SUSPICIOUS: net.2.weight in step 31: 0 % of the gradient signs agree, 100 % in the step before")
    assert details[0].startswith("  0 of 64 signs agree; the gradient norm is ")
    answer = json.loads((tmp_path / "out" / "grad_answer.json").read_text())
    assert answer["verdict"] == "SUSPICIOUS" and answer["sentence"] == first
    finding = answer["finding"]
    assert (finding["step"], finding["parameter"], finding["rank"]) == (31, "net.2.weight", 0)
    assert (finding["rule"], finding["similarity"], finding["previous_similarity"]) == (
        "similarity_drop",
        0,
        1,
    )
    assert (finding["equal_signs"], finding["elements"]) == (0, 64)
    assert answer["limits"]["similarity_drop"] == 0.03 and answer["ranks"][0]["steps"] == list(range(STEPS))


@pytest.mark.parametrize("factor", [1e-12, 0.0])
def test_a_vanishing_gradient_is_named(factor: float, golden: Path, tmp_path: Path, probe: Any) -> None:
    target = train(tmp_path / "run", scaled("net.0.weight", factor, step=20))
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    assert probe.out.startswith("SUSPICIOUS: net.0.weight in step 20: the gradient vanishes: its norm is ")


def test_a_gradient_that_is_nan_is_named(golden: Path, tmp_path: Path, probe: Any) -> None:
    target = train(tmp_path / "run", scaled("net.2.bias", float("nan")))
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    assert probe.out.startswith("SUSPICIOUS: net.2.bias in step 31: the gradient norm is nan in the target and")


def test_a_frozen_parameter_is_named(golden: Path, tmp_path: Path, probe: Any) -> None:
    def freeze(model: nn.Module, step: int) -> None:
        if step >= FAULTY_STEP:
            model.get_parameter("net.0.bias").grad = None

    target = train(tmp_path / "run", freeze)
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    assert probe.out.startswith("SUSPICIOUS: net.0.bias in step 31: only the golden run has a gradient")


def test_the_same_run_twice_agrees(golden: Path, tmp_path: Path, probe: Any) -> None:
    target = train(tmp_path / "run", grad_level="L2")
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    assert probe.out.splitlines()[0] == ("AGREE: all compared gradient signs of 4 parameters in 50 steps are equal")
    assert json.loads((tmp_path / "out" / "grad_answer.json").read_text())["finding"] is None


def test_a_run_that_differs_by_rounding_agrees(golden: Path, tmp_path: Path, probe: Any) -> None:
    target = train(tmp_path / "run", is_rounded=True)
    summaries = [run / "rank0" / "grad_summary_9.csv" for run in (target, golden)]
    assert summaries[0].read_bytes() != summaries[1].read_bytes()
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    assert probe.out.startswith("AGREE: ")


def test_several_ranks_and_remarks(tmp_path: Path, probe: Any) -> None:
    yes, no = np.ones(64, bool), np.zeros(64, bool)
    target, golden = tmp_path / "t", tmp_path / "g"
    for rank in (0, 1):
        write_run(golden, [{"a": yes, "b": yes, "c": yes[:9], "y": yes}] * 2, rank=rank)
    write_run(target, [{"a": yes, "b": yes, "c": yes, "x": yes}] * 3, rank=0)
    write_run(target, [{"a": yes, "b": yes, "c": yes}, {"a": no, "b": no, "c": yes}], rank=1)
    write_run(target, [{"a": yes}], rank=2)
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    lines = probe.out.splitlines()
    assert lines[0].startswith("SUSPICIOUS: a in step 1 on rank 1: 0 % of the gradient signs agree")
    assert lines[1:9] == [
        "  0 of 64 signs agree; the gradient norm is 1 in the target and 1 in the golden run.",
        "  Rule: a similarity that falls by more than 0.03 from one step to the next is suspicious.",
        "  Also in step 1: b, 0 % of the gradient signs agree, 100 % in the step before.",
        "  Not compared: 1 rank that only one run has.",
        "  Not compared: 1 step that one run lacks, or has no signs of.",
        "  Not compared: 1 parameter that only the target has, such as x.",
        "  Not compared: 1 parameter that only the golden run has, such as y.",
        "  Not compared: c in 4 steps: the shapes differ, [64] and [9].",
    ]
    assert [line.strip() for line in lines[9:]] == [
        str(tmp_path / "out" / name)
        for name in (
            "rank0/similarities.csv",
            "rank1/similarities.csv",
            "grad_compare.html",
            "grad_answer.json",
        )
    ]
    rows = (tmp_path / "out" / "rank1" / "similarities.csv").read_text("utf-8-sig").splitlines()
    assert rows == ["step,0,1", "a,1.0,0.0", "b,1.0,0.0", "c,,", "summary,1.0,0.0"]


def test_equal_inputs_make_equal_files(tmp_path: Path, golden: Path, probe: Any) -> None:
    for name in ("one", "two"):
        assert probe("grad", "compare", golden, golden, "-o", tmp_path / name) == 0
    for name in ("grad_compare.html", "grad_answer.json", "rank0/similarities.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_page_is_self_contained_and_escapes_names(tmp_path: Path, probe: Any) -> None:
    name = "<script>alert(1)<&'\u202e"
    packed = [{"a": np.ones(8, bool)}, {"a": np.zeros(8, bool)}]
    target, golden = write_run(tmp_path / "t", packed), write_run(tmp_path / "g", packed[:1] * 2)
    for file in tmp_path.glob("*/rank0/*.csv"):
        file.write_text(file.read_text("utf-8-sig").replace("a,", f'"{name}",'), "utf-8")
    for file in tmp_path.glob("*/rank0/step*/a.npy"):
        from probe_watch.grad_probe.names import format_direction_file_name

        file.rename(file.with_name(format_direction_file_name(name)))
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    assert "\u202e" not in probe.out
    text = (tmp_path / "out" / "grad_compare.html").read_text("utf-8")
    assert not re.search(r"(?:src|href|url|@import)\b\s*[=(]|https?://", text)
    assert "<script" not in text and "\u202e" not in text
    assert "&lt;script&gt;alert(1)&lt;&amp;&#x27;" in text and text.count("<svg") == 3
    json.loads((tmp_path / "out" / "grad_answer.json").read_text())


def test_names_are_no_formulas_in_the_csv(tmp_path: Path, probe: Any) -> None:
    for name in ("a", "b"):
        record(tmp_path / name, {"=1+1": torch.ones(3)})
    assert probe("grad", "compare", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out") == 0, probe.err
    rows = (tmp_path / "out" / "rank0" / "similarities.csv").read_text("utf-8-sig").splitlines()
    assert rows[1] == "'=1+1,1.0"


def test_the_page_draws_suspicious_parameters_first(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_CHARTS", 2)
    names = [f"p{number}" for number in range(6)]
    steps = [dict.fromkeys(names, np.ones(100, bool)) for _ in range(3)]
    bad = np.arange(100) < 50
    target = write_run(tmp_path / "t", [steps[0], steps[1], {**steps[2], "p4": bad}])
    golden = write_run(tmp_path / "g", steps)
    assert probe("grad", "compare", target, golden, "-o", tmp_path / "out") == 0
    text = (tmp_path / "out" / "grad_compare.html").read_text("utf-8")
    assert re.findall("<h3>(p.)</h3>", text) == ["p0", "p4"]
    assert "4 parameters of higher similarity are not drawn" in text
    assert text.count("<circle") == 3  # on the similarity and on both norms


def test_an_output_that_is_a_file_is_one_sentence(tmp_path: Path, golden: Path, probe: Any) -> None:
    (tmp_path / "out").write_text("")
    assert probe("grad", "compare", golden, golden, "-o", tmp_path / "out") == 2
    assert "is a file, not a directory" in probe.err and "Traceback" not in probe.err


@pytest.mark.parametrize("arguments", [("grad",), ("grad", "--help"), ("grad", "compare", "--help")])
def test_help(arguments: tuple[str, ...], probe: Any) -> None:
    probe(*arguments)
    assert "compare" in probe.out + probe.err


def test_a_missing_run_is_one_sentence(tmp_path: Path, golden: Path, probe: Any) -> None:
    assert probe("grad", "compare", tmp_path / "missing", golden) == 2
    assert probe.err.startswith("error: ") and "cannot be read" in probe.err and not probe.out
