"""A wrong custom operator is named itself, not the call after it; recorders that lack such calls agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.recording import recording

SPACE = "probe_test_story"
factor = 2.0


def scale(x: torch.Tensor) -> torch.Tensor:
    return x * factor


class Shifted(torch.autograd.Function):
    """A fused function, whose calls inside reach no function of torch that is recorded."""

    shift = 1.0

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() + Shifted.shift)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient


@pytest.fixture(scope="module", autouse=True)
def library() -> Any:
    defined = torch.library.Library(SPACE, "DEF")
    defined.define("scale(Tensor x) -> Tensor")
    defined.impl("scale", scale, "CPU")
    yield defined
    del defined


def train(path: Path, task: str) -> None:
    """Record one step that calls the operator, the function and calls of torch around them."""
    weight = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    with recording(path, task=task, level="L1") as run:
        run.start()
        hidden = torch.relu(weight @ torch.ones(4, 2))
        hidden = hidden + getattr(torch.ops, SPACE).scale(hidden.detach())
        Shifted.apply(torch.tanh(hidden)).sum().backward()
        run.stop()


@pytest.fixture(params=["tensor", "statistics"])
def task(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_wrong_custom_operator_is_the_cause(
    task: str, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "golden", task)
    monkeypatch.setattr(f"{__name__}.factor", 2.5)
    train(tmp_path / "target", task)
    assert probe("compare", tmp_path / "target", tmp_path / "golden", "-o", tmp_path / "out") == 0
    assert probe.out.startswith(f"DIVERGED: {SPACE}.scale.0.forward returns values that differ"), probe.out


def test_a_wrong_autograd_function_is_the_cause(
    task: str, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "golden", task)
    monkeypatch.setattr(Shifted, "shift", 1.5)
    train(tmp_path / "target", task)
    assert probe("compare", tmp_path / "target", tmp_path / "golden", "-o", tmp_path / "out") == 0
    assert probe.out.startswith("DIVERGED: Autograd.Shifted.0.forward returns values that differ"), probe.out


def test_runs_of_a_recorder_without_such_calls_agree(task: str, probe: Any, tmp_path: Path) -> None:
    train(tmp_path / "target", task)
    train(tmp_path / "golden", task)
    dump = tmp_path / "golden" / "step0" / "rank" / "dump.json"
    content = json.loads(dump.read_text())
    del content["probe"]
    content["data"] = {
        name: record for name, record in content["data"].items() if not name.startswith((SPACE, "Autograd"))
    }
    dump.write_text(json.dumps(content))
    for order in (("target", "golden"), ("golden", "target")):
        assert probe("compare", *(tmp_path / name for name in order), "-o", tmp_path / "out") == 0
        assert probe.out.startswith("AGREE"), probe.out
        assert f"not compared: 3 calls of Autograd, {SPACE}" in " ".join(probe.out.split())
