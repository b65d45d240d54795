"""Training runs that differ between two calls only: recorded, compared, and told by the phases of the step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.probe import Probe
from support.runs.recording import recording
from torch import nn


def train(
    path: Path,
    level: str,
    between: Callable[[nn.Module, int], None],
    lr: float = 1e-3,
    keeps: bool = False,
) -> Path:
    """Record two steps of a net; ``between`` runs between the backward pass and the step.

    Args:
        path: The directory of the run.
        level: The level of the recording.
        between: A function of the model and the number of the step.
        lr: The learning rate.
        keeps: True to add up the gradients of all steps.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    with recording(path, level=level) as found:
        for step in range(2):
            found.start(model)
            model(torch.randn(8, 6)).square().mean().backward()
            between(model, step)
            optimizer.step()
            if not keeps:
                optimizer.zero_grad()
            found.stop()
            found.step()
    return path


def nothing(model: nn.Module, step: int) -> None:
    pass


def clipped(model: nn.Module, step: int) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def doubled(model: nn.Module, step: int) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.numpy()[...] *= 2


def answer(probe: Probe, directory: Path, target: Path, golden: Path) -> dict[str, Any]:
    out = directory / "out"
    assert probe("compare", target, golden, "-o", out) == 0
    (file,) = out.glob("answer_*.json")
    return json.loads(file.read_text("utf-8"))


@pytest.mark.parametrize(
    ("between", "lr", "says"),
    [
        (clipped, 1e-3, "the target calls clip_grad_norm_(max_norm=0.01), the golden does not"),
        (doubled, 1e-3, "are 2 times the golden's"),
        (
            nothing,
            1e-4,
            "AdamW steps with lr 0.0001 against 0.001, and leaves other parameters",
        ),
    ],
)
def test_modules_alone_do_not_show_it(tmp_path: Path, probe: Probe, between: Any, lr: float, says: str) -> None:
    golden = train(tmp_path / "golden", "L0", nothing)
    found = answer(probe, tmp_path, train(tmp_path / "target", "L0", between, lr), golden)
    assert found["verdict"] == "DIVERGED"
    cause = found["causes"][0]
    assert (cause["kind"], cause["step"]) == ("phase", "step0")
    assert cause["op"] == f"phase.{cause['evidence']['step_phase']}"
    assert says in cause["statement"]
    assert "test_step_phases.py" in cause["where"]


def test_a_phase_explains_the_calls_behind_it(tmp_path: Path, probe: Probe) -> None:
    golden = train(tmp_path / "golden", "mix", nothing)
    found = answer(probe, tmp_path, train(tmp_path / "target", "mix", nothing, keeps=True), golden)
    assert found["verdict"] == "DIVERGED"
    cause = found["causes"][0]
    assert (cause["kind"], cause["step"], cause["op"]) == ("phase", "step1", "phase.accumulated.0")
    assert cause["statement"].startswith("the target adds the gradients of this backward pass to earlier ones")
    shown = cause["statement"].partition(" (")[0]
    first = f"in step1, the phases of the step show: {shown}"
    assert found["sentence"].startswith(f"DIVERGED: {first}, at test_step_phases.py, ")
    assert cause["evidence"]["step_phase"] == "accumulated.0"
    assert "backward()" in cause["evidence"]["step_phase_where"]


def test_equal_runs_agree(tmp_path: Path, probe: Probe) -> None:
    runs = [train(tmp_path / name, "L0", clipped) for name in ("target", "golden")]
    found = answer(probe, tmp_path, *runs)
    assert (found["verdict"], found["causes"], found["not_captured"]) == ("AGREE", [], [])


def test_runs_without_step_phases_are_compared_as_before(tmp_path: Path, probe: Probe) -> None:
    runs = [train(tmp_path / name, "L0", between) for name, between in (("target", doubled), ("golden", nothing))]
    for file in runs[1].rglob("step_phases.json"):
        file.unlink()
    found = answer(probe, tmp_path, *runs)
    assert (found["verdict"], found["causes"]) == ("AGREE", [])


class TiedNet(nn.Module):
    """A net whose embedding and head share a weight if ``is_tied``, with a normalization of the given momentum."""

    def __init__(self, is_tied: bool = True, momentum: float = 0.1) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(5, 4), nn.BatchNorm1d(4, momentum=momentum)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = nn.Parameter(self.embedding.weight.detach().clone())
        if is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(ids)))


def train_tied_net(path: Path, **options: Any) -> Path:
    torch.manual_seed(0)
    model = TiedNet(**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording(path, level="mix") as found:
        found.start(model)
        nn.functional.cross_entropy(model(torch.arange(5)), torch.arange(5)).backward()
        optimizer.step()
        found.stop()
        found.step()
    return path


def test_buffers_show_an_argument_that_outputs_do_not(tmp_path: Path, probe: Probe) -> None:
    golden = train_tied_net(tmp_path / "golden")
    found = answer(probe, tmp_path, train_tied_net(tmp_path / "target", momentum=0.9), golden)
    (cause,) = found["causes"]
    assert (found["verdict"], cause["op"]) == ("DIVERGED", "Functional.batch_norm.0.forward")
    assert "momentum" in cause["statement"] and "buffers differ after the step (norm.running_" in cause["statement"]


def test_a_weight_that_is_tied_in_one_run_only(tmp_path: Path, probe: Probe) -> None:
    golden = train_tied_net(tmp_path / "golden")
    found = answer(probe, tmp_path, train_tied_net(tmp_path / "target", is_tied=False), golden)
    statement = found["causes"][0]["statement"]
    assert (
        "head.weight is a parameter of its own in the target, and a second name of a tied weight in the golden"
        in statement
    )


class StatefulNet(nn.Module):
    """A net with buffers that the outputs of the same step do not depend on.

    ``pointer`` counts the received rows by ``stride`` for each row. ``mean`` is the mean of the rows, times two if
    ``is_doubled``, unless the net ``is_frozen``.
    """

    pointer: torch.Tensor
    mean: torch.Tensor

    def __init__(self, stride: int = 1, is_doubled: bool = False, is_frozen: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.stride, self.is_doubled, self.is_frozen = stride, is_doubled, is_frozen
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.pointer[0] = int(self.pointer) + self.stride * len(rows)
        if not self.is_frozen:
            mean = rows.mean(0)
            self.mean.copy_((mean * 2 if self.is_doubled else mean).neg())
        return self.linear(rows)


def train_stateful_net(path: Path, level: str = "mix", **options: Any) -> Path:
    torch.manual_seed(0)
    model = StatefulNet(**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording(path, level=level) as recorder:
        recorder.start(model)
        model(torch.arange(12.0).view(3, 4)).sum().backward()
        optimizer.step()
        recorder.stop()
        recorder.step()
    return path


@pytest.mark.parametrize(
    ("level", "options", "kind", "op", "statement"),
    [
        ("L0", {"stride": 0}, "phase", "phase.buffers.0", "buffers differ after the step (pointer: 0 against 3"),
        ("mix", {"is_doubled": True}, "in_one_run_only", "Tensor.__mul__.0.forward", "is called in the target only"),
        ("mix", {"is_frozen": True}, "in_one_run_only", "Tensor.mean.0.forward", "buffers differ after the step (mean"),
    ],
)
def test_buffers_show_a_fault_that_outputs_do_not(
    level: str, options: dict[str, Any], kind: str, op: str, statement: str, tmp_path: Path, probe: Probe
) -> None:
    golden = train_stateful_net(tmp_path / "golden", level)
    result = answer(probe, tmp_path, train_stateful_net(tmp_path / "target", level, **options), golden)
    cause = result["causes"][0]
    assert (result["verdict"], cause["kind"], cause["op"]) == ("DIVERGED", kind, op)
    assert statement in cause["statement"]
