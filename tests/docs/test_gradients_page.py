"""The scripts and commands of the page on gradients, run as they stand."""

from __future__ import annotations

import atexit
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_recording.settings.config import parse
from probe_watch.grad_probe.rules import RuleKind, load_rules
from probe_watch.grad_probe.settings import FIELDS, GradSettings
from test_pages import ROOT, blocks
from torch import nn

PAGE = ROOT / "docs" / "gradients.md"
STEPS = 33


def train(script: str, config: Path, faulty_step: int) -> None:
    """Run the script of the page, with a gradient that changes its sign at a step."""
    from probe_pytorch import PrecisionDebugger

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    model = nn.ModuleDict({"net": net})
    model.forward = net.forward  # type: ignore[method-assign]
    batches = [(torch.randn(6, 8), torch.randn(6, 4)) for _ in range(STEPS)]
    calls = iter(range(STEPS))
    net[2].weight.register_hook(lambda gradient: -gradient if next(calls) >= faulty_step else gradient)
    names = {
        "model": model,
        "batches": batches,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_function": nn.functional.mse_loss,
    }
    PrecisionDebugger._instance = None
    try:
        exec(script, names)
        recorder = names["debugger"]._recorder  # type: ignore[attr-defined]
        atexit.unregister(recorder.finish)
        recorder.finish()
    finally:
        PrecisionDebugger._instance = None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    (config,) = blocks(PAGE, "json")
    script = blocks(PAGE, "python")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, faulty_step in (("target", 31), ("golden", STEPS)):
            Path("config.json").write_text(config.replace("./target", f"./{name}"))
            train(script, directory / "config.json", faulty_step)
    return directory


def test_the_example_names_the_step_and_the_parameter(runs: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    (command,) = blocks(PAGE, "bash")
    assert probe(*shlex.split(command)[1:]) == 0, probe.err
    shown = PAGE.read_text("utf-8").partition("```\nSUSPICIOUS:")[2].partition("```")[0].splitlines()
    written = probe.out.splitlines()
    assert written[0] == f"SUSPICIOUS:{shown[0]}"
    assert [line for line in shown[2:] if "later" not in line] == [line for line in written[2:] if "later" not in line]
    answer = json.loads((runs / "out" / "grad_answer.json").read_text())
    text = PAGE.read_text("utf-8")
    for name in (*answer, *answer["finding"]):
        assert name == "schema" or f"`{name}`" in text, name


def test_the_packed_signs_are_read_as_the_page_says(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors")
    monkeypatch.chdir(runs)
    names: dict[str, Any] = {}
    exec(blocks(PAGE, "python")[1], names)
    assert np.array_equal(names["is_positive"], np.load("target/rank0/step0/net.2.weight.npy"))


def test_the_interface_from_python(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    exec(blocks(PAGE, "python")[2], {})
    assert "31 net.2.weight similarity_drop" in capsys.readouterr().out


def test_fields_and_limits_are_those_of_the_code() -> None:
    text = PAGE.read_text("utf-8")
    for name in FIELDS:
        assert f"| `{name}` |" in text
    for rule in RuleKind:
        assert f"| `{rule.value}` |" in text
    rules = load_rules()
    for number in (rules.first_similarity, rules.similarity_drop, rules.norm_ratio):
        assert f" {number:g} " in text or f" {number:g}:" in text
    settings = parse(json.loads(blocks(PAGE, "json")[0])).settings
    assert settings == GradSettings()
