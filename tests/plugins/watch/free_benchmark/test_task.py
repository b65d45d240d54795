"""The task free_benchmark in trainings: what it reports, and that it changes nothing."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from probe_watch.free_benchmark import task
from probe_watch.free_benchmark.table import FILE, BenchmarkTable
from support.runs.recording import Recording
from torch import nn
from torch.utils.checkpoint import checkpoint

MODES = ("improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu")


@contextmanager
def watching(path: Path, fields: dict[str, Any] | None = None, **section: Any) -> Iterator[Recording]:
    """Run the task in a directory."""
    if section.get("pert_mode") == "to_cpu":
        section["fuzz_device"] = "cpu"
    recording = Recording(path, task="free_benchmark", free_benchmark=section, **(fields or {}))
    try:
        yield recording
    finally:
        recording.finish()


def rows(path: Path, step: int = 0, label: str = "rank") -> list[dict[str, str]]:
    """Return the rows of a step."""
    table = path / f"step{step}" / label / FILE
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


class Model(nn.Module):
    """A model with dropout, batch norm, in-place calls and checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
        self.norm, self.last = nn.BatchNorm1d(8), nn.LSTM(8, 3, batch_first=True)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(x).clone()
        x.mul_(1.5).add_(0.1)
        return F.dropout(F.relu(x, inplace=True), 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        for reentrant in (True, False):
            x = checkpoint(self.block, x, use_reentrant=reentrant)
        x[:, 0] = 0.5
        x = torch.stack([x, torch.empty_like(x).uniform_()], 1).half().float()
        return self.last(x)[0].transpose(1, 2)[:, ::2]


def train(observe: Callable[[Callable[[], None]], None], *, autocast: bool = False) -> list[torch.Tensor]:
    """Train three steps and return everything that a training leaves behind."""
    torch.manual_seed(3)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    left: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(5)

    def step() -> None:
        x = torch.randn(5, 6, generator=generator).requires_grad_()
        with torch.autocast("cpu", enabled=autocast):
            y = model(x)
        y.float().pow(2).sum().backward()
        optimizer.step()
        left.extend([y.detach().clone(), x.grad.clone(), *(p.grad.clone() for p in model.parameters())])  # type: ignore[union-attr]
        optimizer.zero_grad()

    for _ in range(3):
        observe(step)
    left += [*model.state_dict().values(), torch.get_rng_state(), generator.get_state()]
    return left


@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("autocast", [False, True])
def test_training_is_bit_equal(mode: str, stage: str, autocast: bool, tmp_path: Path) -> None:
    def unobserved(step: Callable[[], None]) -> None:
        step()

    expected = train(unobserved, autocast=autocast)
    selection = {"list": ["."]} if stage == "backward" else {}
    with watching(tmp_path / "run", pert_mode=mode, fuzz_stage=stage, **selection) as recording:

        def observed(step: Callable[[], None]) -> None:
            recording.start()
            step()
            recording.stop()
            recording.step()

        result = train(observed, autocast=autocast)
        counts = recording.debugger._recorder._counts  # type: ignore[attr-defined]
    assert len(result) == len(expected)
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(result, expected))
    assert counts.outcomes > 20 or mode == "improve_precision"
    assert {reason.value for reason in counts.skipped} <= {"random"}, counts.skipped


def test_the_autograd_graph_is_the_same(tmp_path: Path) -> None:
    def graph() -> list[str]:
        x = torch.ones(2, 3, requires_grad=True)
        node = F.softmax(F.linear(x, torch.ones(4, 3, requires_grad=True)).relu_(), -1).sum().grad_fn
        names = []
        while node is not None:
            names.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        return names

    expected = graph()
    for section in ({}, {"fuzz_stage": "backward", "list": ["."]}):
        with watching(tmp_path / "run", pert_mode="bit_noise", **section) as recording:
            recording.start()
            assert graph() == expected
            recording.stop()


def fragile_softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax without subtraction of the largest element, in half precision."""
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)


def test_a_fragile_operator_is_reported_and_stable_ones_are_not(tmp_path: Path) -> None:
    constant = 1 + 2**-23 * torch.tensor([[0.0, 5.0, 2.0, 9.0]])
    with watching(tmp_path / "fragile", pert_mode="bit_noise") as recording:
        recording.start()
        F.layer_norm(constant, (4,), eps=1e-14)  # its variance cancels
        recording.stop()
    assert [row["api_name"] for row in rows(tmp_path / "fragile")] == ["Functional.layer_norm.0.forward"]
    with watching(tmp_path / "stable", pert_mode="bit_noise") as recording:
        recording.start()
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
        F.softmax(torch.tanh(F.linear(x, torch.eye(8))), -1).sum()
        recording.stop()
    assert not rows(tmp_path / "stable")


def test_a_softmax_that_overflows_in_half_precision_is_reported(tmp_path: Path) -> None:
    x = torch.tensor([[12.0, 11.0, 1.0]], dtype=torch.half)
    with watching(tmp_path / "run", pert_mode="improve_precision") as recording:
        recording.start()
        fragile_softmax(x)
        F.softmax(x, -1)
        recording.stop()
    (row, *others) = rows(tmp_path / "run")
    assert (row["api_name"], row["max_rel"]) == ("Torch.exp.0.forward", "not_finite")
    assert not [other for other in others if "softmax" in other["api_name"]]


def test_names_are_those_of_the_recorder(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.ones(2, 3)
        for _ in range(2):
            x = F.linear(x, torch.ones(3, 3)) + 1
        torch.sort(-x @ x.t())
        with pytest.raises(RuntimeError):
            torch.matmul(x, torch.ones(5, 5))
        torch.matmul(x, x.t())

    recording = Recording(tmp_path / "recorded", level="L1")
    recording.start()
    program()
    recording.stop()
    recorded = [name for name in recording.records() if "ones" not in name]
    recording.finish()
    names: list[str] = []
    with watching(tmp_path / "run", pert_mode="no_change") as recording:
        original = task.FreeBenchmark._report
        recording.debugger._recorder._benchmark.judge.report = (  # type: ignore[attr-defined]
            lambda name, outcome: (names.append(name), original(recording.debugger._recorder, name, outcome))  # type: ignore[arg-type]
        )
        recording.start()
        program()
        recording.stop()
    assert list(dict.fromkeys(names)) == recorded


def test_fix_replaces_results_and_keeps_gradients(tmp_path: Path) -> None:
    x = torch.tensor([[12.0, 11.0, 1.0]], dtype=torch.half, requires_grad=True)
    with watching(tmp_path / "run", pert_mode="improve_precision", handler_type="fix") as recording:
        recording.start()
        plain = F.logsigmoid(x)
        y = x * 2
        result = y.mul_(3)
        values, indices = torch.max(x, 1)
        recording.stop()
    assert result is y and y.tolist() == [[72.0, 66.0, 6.0]]
    assert plain.dtype == torch.half and torch.equal(plain, F.logsigmoid(x.float()).half())
    assert (values.item(), indices.item(), values.dtype) == (12.0, 0, torch.half)
    (y.float().sum() + values.float().sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [[7.0, 6.0, 6.0]]
    assert not rows(tmp_path / "run")


def test_failures_of_the_second_run_do_not_reach_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching(tmp_path / "run", pert_mode="to_cpu") as recording:
        recording.start()
        sparse = torch.mul(torch.eye(3).to_sparse(), 2)
        recording.stop()
    assert sparse.is_sparse
    assert "Torch.mul not examined: tensors of a kind" in capsys.readouterr().err


@pytest.mark.parametrize("selection", [{"list": ["relu"]}, {"scope": ["Functional.relu.1.forward"]}])
def test_calls_steps_and_ranks_are_selected(selection: dict[str, list[str]], tmp_path: Path) -> None:
    for fields, steps in (({}, 3), ({"step": [1]}, 1), ({"rank": [4]}, 0)):
        path = tmp_path / f"run{steps}"
        with watching(path, fields, pert_mode="change_value", **selection) as recording:
            for _ in range(3):
                recording.start()
                for _ in range(2):
                    F.relu(torch.tensor([1.0, 2.0]))
                    F.silu(torch.tensor([1.0, 2.0]))
                recording.stop()
                recording.step()
        found = [row["api_name"] for step in range(3) for row in rows(path, step)]
        names = ["Functional.relu.0.forward", "Functional.relu.1.forward"]
        assert found == (names if "list" in selection else names[1:]) * steps


def test_an_earlier_table_is_replaced(tmp_path: Path) -> None:
    for count in (2, 0):
        with watching(tmp_path / "run", pert_mode="change_value") as recording:
            recording.start()
            for _ in range(count):
                F.relu(torch.tensor([1.0, 2.0]))
            recording.stop()
        assert len(rows(tmp_path / "run")) == count


def test_the_directory_of_a_rank_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with watching(tmp_path / "run", pert_mode="change_value") as recording:
        recording.start()
        F.relu(torch.tensor([1.0, 2.0]))
        recording.stop()
    (row,) = rows(tmp_path / "run", label="rank3")
    assert row["rank"] == "3"


def test_a_failed_write_ends_the_table_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BenchmarkTable, "add", fail)
    with watching(tmp_path / "run", pert_mode="change_value") as recording:
        recording.start()
        assert F.relu(torch.tensor([1.0, -2.0])).tolist() == [1.0, 0.0]
        F.relu(torch.tensor([1.0, 2.0]))
        recording.stop()
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_a_failed_comparison_ends_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watching(tmp_path / "run", pert_mode="change_value", if_preheat=True) as recording:
        recorder: Any = recording.debugger._recorder
        ended_steps: list[int] = []
        monkeypatch.setattr(recorder._preheat, "end_step", lambda: ended_steps.append(recorder.current_step))
        recording.start()
        with monkeypatch.context() as patch:
            patch.setattr(recorder._benchmark, "flush", lambda: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                recording.step()
        assert recorder._table is None
        assert recorder.current_step == 1 and ended_steps == [0]
        recording.start()
        assert recorder._table is not None


def test_a_killed_process_leaves_whole_rows(tmp_path: Path) -> None:
    script = f"""
import json, os, torch
from probe_pytorch import PrecisionDebugger
json.dump({{"task": "free_benchmark", "dump_path": {str(tmp_path / "run")!r},
           "free_benchmark": {{"pert_mode": "change_value"}}}}, open({str(tmp_path / "c.json")!r}, "w"))
PrecisionDebugger({str(tmp_path / "c.json")!r}).start()
for _ in range(5):
    torch.neg(torch.tensor([1.0, 2.0]))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [row["api_name"] for row in rows(tmp_path / "run")] == [f"Torch.neg.{n}.forward" for n in range(5)]
